"""The time-invariant scan against the loop over time, filters of scipy, and the other operations."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import signal
from torch import Tensor

from msbench.ops import (
    long_convolution,
    lti_scan,
    lti_scan_reference,
    recurrences_native,
    scan_native,
    selective_scan,
)
from msbench.ops.recurrence_kernels import Engines, self_check

built = pytest.mark.skipif(scan_native.library() is None, reason="built without a C++ compiler")
NAMES = ("out", "u", "log_decay", "weight", "skip", "mix")


@pytest.fixture(params=["torch", pytest.param("cpp", marks=built)], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test here is run with each engine."""
    monkeypatch.setenv("MSBENCH_SCAN", request.param)
    before = torch.get_num_threads()
    yield str(request.param)
    torch.set_num_threads(before)


def arguments(
    b: int = 2, length: int = 7, m: int = 3, d: int = 4, n: int = 5, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Rates from 1e-3 to 2."""
    generator = torch.Generator().manual_seed(b + length + m + d + n)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)

    rate = 10 ** (torch.rand((m, d, n), generator=generator, dtype=torch.float64) * 3.3 - 3)
    return [
        normal(b, length, m, d), -rate.to(dtype), normal(m, d, n), normal(m, d), normal(b, length, m)
    ]  # fmt: skip


def gradients(
    function: Callable[..., Tensor], values: Sequence[Tensor], weight: Tensor | None = None
) -> list[Tensor]:
    """Output and gradients of all values."""
    leaves = [value.detach().clone().requires_grad_() for value in values]
    out = function(*leaves)
    if weight is None:
        weight = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)
    return [out.detach(), *torch.autograd.grad((out * weight.to(out.dtype)).sum(), leaves)]


def assert_equal(values: Sequence[Tensor], tolerance: float = 1e-10, **options: Any) -> None:
    truth = gradients(lti_scan_reference, [x.double() for x in values], **options)
    for name, one, other in zip(NAMES, gradients(lti_scan, values, **options), truth, strict=False):
        assert one.shape == other.shape
        error = float((one - other).abs().max()) / (float(other.abs().max()) + 1e-300)
        assert error < tolerance, f"{name} is off by {error:.1e}"


@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 100, 129, 1000, 1025])
def test_output_and_gradients_equal_the_loop_at_any_length(length: int) -> None:
    assert_equal(arguments(length=length))
    assert_equal(arguments(length=length, m=1)[:4])


@pytest.mark.parametrize(
    ("b", "m", "d", "n"),
    [
        (1, 1, 1, 1),
        (3, 1, 3, 16),
        (1, 5, 37, 25),
        (2, 5, 130, 26),
        (1, 1, 7, 128),
        (2, 2, 3, 256),
        (30, 1, 5, 9),
    ],
)
def test_sizes(b: int, m: int, d: int, n: int) -> None:
    values = arguments(b=b, m=m, d=d, n=n, length=150)
    assert_equal(values)
    assert_equal([x.float() for x in values], 2e-5)


@pytest.mark.parametrize("n", range(1, 18))
def test_any_number_of_states(n: int) -> None:
    assert_equal([x.float() for x in arguments(n=n, d=19, length=40)], 1e-5)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_with_and_without_skip_and_mix(count: int) -> None:
    assert_equal(arguments(length=70)[:count])


def test_mix_without_skip() -> None:
    u, log_decay, weight, _, mix = arguments(length=40)
    found = gradients(lambda u, a, w, e: lti_scan(u, a, w, mix=e), [u, log_decay, weight, mix])
    expected = gradients(lambda u, a, w, e: lti_scan_reference(u, a, w, mix=e), [u, log_decay, weight, mix])
    torch.testing.assert_close(found, expected)


def test_a_mixer_without_a_gradient() -> None:
    u, log_decay, weight, skip, mix = arguments(length=40)
    values = [u, log_decay, weight, skip]
    found = gradients(lambda u, a, w, s: lti_scan(u, a, w, s, mix), values)
    torch.testing.assert_close(
        found, gradients(lambda u, a, w, s: lti_scan_reference(u, a, w, s, mix), values)
    )


def test_gradcheck() -> None:
    values = [value.requires_grad_() for value in arguments(b=1, length=19, m=2, d=2, n=2)]
    assert torch.autograd.gradcheck(lti_scan, values)


def test_gradcheck_over_several_chunks() -> None:
    u, *rest = arguments(b=1, length=131, m=1, d=1, n=2)
    values = [value.requires_grad_() for value in rest[:2]]
    assert torch.autograd.gradcheck(lambda a, w: lti_scan(u, a, w), values)


def test_loss_on_the_last_step_only_reaches_the_first() -> None:
    values = arguments(length=200)
    values[1] *= 1e-3
    weight = torch.zeros(2, 200, 4)
    weight[:, -1] = 1
    assert float(gradients(lti_scan, values, weight)[1][:, 0].abs().min()) > 0
    assert_equal(values, weight=weight)


# What is left is the rounding of sums, once in 16 steps or not at all.
@pytest.mark.parametrize("rate", [1e-6, 3.3e-5, 1e-3, 0.01, 0.2, 1.0, 4.0])
def test_slow_decays_do_not_drift(rate: float) -> None:
    u, _, weight = arguments(b=1, length=16_384, m=1, d=2, n=2, dtype=torch.float32)[:3]
    log_decay = torch.tensor([-rate, -1.1 * rate]).expand(1, 2, 2)
    values = [u.abs(), log_decay, weight.abs()]
    wide = [x.double() for x in values]
    truth = gradients(lti_scan, wide)  # in double precision, which the loop has confirmed
    np.testing.assert_allclose(truth[0], filtered(wide[0], torch.exp(wide[1]), wide[2]), rtol=1e-11)
    for name, one, other in zip(NAMES, gradients(lti_scan, values), truth, strict=False):
        error = float((one - other).abs().max() / other.abs().max())
        assert error < 1e-5, f"{name} is off by {error:.1e}"


def test_rounded_decays_would_drift() -> None:
    u, rate = torch.ones(1, 16_384, 1, 1), torch.full((1, 1, 1), -1e-6)
    truth = filtered(u, torch.exp(rate.double()), torch.ones(1, 1, 1))
    rounded = filtered(u, torch.exp(rate), torch.ones(1, 1, 1))
    assert abs(rounded / truth - 1)[0, -1, 0, 0] > 1e-4
    assert abs(lti_scan(u, rate, torch.ones(1, 1, 1)).numpy() / truth - 1).max() < 1e-5


def test_the_first_step_reaches_the_last() -> None:
    u, rate = torch.zeros(1, 16_384, 1, 1), torch.tensor([[[-1e-6, -1e-5, -1e-4]]])
    u[0, 0] = 1
    last = lti_scan(u, rate, torch.ones(1, 1, 3))[0, -1, 0, 0].double()
    torch.testing.assert_close(last, torch.exp(16_383 * rate.double()).sum(), rtol=3e-6, atol=0)


@pytest.mark.parametrize("rate", [20.0, 69.0, 88.0, 120.0, 1e5])
def test_fast_and_vanishing_decays(rate: float) -> None:
    values = [x.float() for x in arguments(length=70)]
    values[1] = torch.full_like(values[1], -rate)
    values[1][..., 0] = -0.1
    assert_equal(values, 1e-5)
    # Their own gradients are next to 0, not rounding errors that Adam would take for a signal.
    gradient = gradients(lti_scan, values)[2][..., 1:]
    assert float(gradient.abs().max()) <= 1e3 * np.exp(-rate)


def test_no_decay_and_growth() -> None:
    values = [x.float() for x in arguments(length=300)]
    values[1][..., 0], values[1][..., 1] = 0, 1e-3
    assert_equal(values, 2e-5)


def test_gradients_of_fast_decays_are_relatively_right() -> None:
    values = [x.float() for x in arguments(length=100, n=3)]
    values[1] = -torch.tensor([2.0, 6.0, 15.0]).expand(3, 4, 3)
    truth = gradients(lti_scan_reference, [x.double() for x in values])[2]
    torch.testing.assert_close(gradients(lti_scan, values)[2].double(), truth, rtol=1e-4, atol=1e-12)


def test_strided_and_expanded_inputs_equal_contiguous_ones() -> None:
    values = arguments(length=21)
    strided = [value.mT.contiguous().mT for value in values]
    torch.testing.assert_close(gradients(lti_scan, strided), gradients(lti_scan, values))
    u = values[0][:, ::2, :1, 1:].expand(-1, -1, 3, -1)
    rest = [values[1][:, 1:], values[2][:, 1:], values[3][:, 1:], values[4][:, ::2]]
    assert_equal([u, *rest])
    leaf = values[0].clone().requires_grad_()
    found, expected = (
        f(leaf, *values[1:]).sum() for f in (lti_scan, lti_scan_reference)
    )  # expanded gradients
    torch.testing.assert_close(torch.autograd.grad(found, leaf), torch.autograd.grad(expected, leaf))


def test_half_precision_is_promoted_and_autocast_ignored() -> None:
    values = arguments(length=400, dtype=torch.float32)
    for half in (torch.bfloat16, torch.float16):
        u = values[0].to(half)
        assert torch.equal(lti_scan(u, *values[1:]), lti_scan(u.float(), *values[1:]).to(half))
    expected = gradients(lti_scan, values)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = gradients(lti_scan, values)
    assert all(torch.equal(one, other) for one, other in zip(inside, expected, strict=True))


@pytest.mark.parametrize("shape", [(1, 700, 5, 130, 9), (6, 200, 1, 70, 33), (9, 1001, 2, 9, 16)])
@pytest.mark.parametrize("count", [4, 5])
def test_bits_do_not_depend_on_threads_or_runs(
    shape: tuple[int, int, int, int, int], count: int, engine: str
) -> None:
    values = arguments(*shape, dtype=torch.float32)[:count]
    runs = []
    for threads in (1, 2, 3, 1) if engine == "cpp" else (1, 1):
        torch.set_num_threads(threads)
        runs.append(gradients(lti_scan, values))
    for other in runs[1:]:
        assert all(torch.equal(one, two) for one, two in zip(runs[0], other, strict=True))


@built
@pytest.mark.parametrize("instructions", [1, 2, 3])
def test_every_instruction_set_keeps_slow_decays(
    instructions: int, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "torch":
        pytest.skip("has no instruction sets")
    native = recurrences_native.Lti(instructions)
    monkeypatch.setattr(recurrences_native.LTI, "instructions", instructions)
    assert self_check(Engines(recurrences_native.LINEAR, native)) == ""
    test_slow_decays_do_not_drift(1e-6)
    assert_equal(arguments(d=19, length=70))


@built
@pytest.mark.parametrize("position", range(6))
def test_the_check_sees_wrong_kernels(position: int) -> None:
    class Wrong(recurrences_native.Lti):
        def forward(self, tensors: Any, *, keep: bool) -> tuple[Tensor, Tensor]:
            out, kept = super().forward(tensors, keep=keep)
            return out * (1.001 if position == 0 else 1), kept

        def backward(self, gout: Tensor, tensors: Any, kept: Tensor) -> Any:
            found = super().backward(gout, tensors, kept)
            return tuple(x if x is None or i + 1 != position else x * 1.001 for i, x in enumerate(found))

    fault = self_check(Engines(recurrences_native.LINEAR, Wrong()))
    assert f"lti: output or gradient {position} is off by" in fault


def test_function_transforms() -> None:
    values = arguments(b=1, length=18, m=2, d=2, n=2)

    def last(u: Tensor) -> Tensor:
        return lti_scan(u, *values[1:])[0, -1]

    expected = torch.autograd.functional.jacobian(last, values[0])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(last)(values[0]), expected)
    u = values[0].clone().requires_grad_()
    (rows,) = torch.autograd.grad(last(u), u, torch.eye(2, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(torch.func.vmap(last)(torch.stack([u, 2 * u]))[1], last(2 * u))


def test_gradients_for_each_example() -> None:
    u, log_decay, weight, skip, mix = arguments(length=12)

    def loss(mix: Tensor, u: Tensor) -> Tensor:
        return lti_scan(u[None], log_decay, weight, skip, mix[None]).square().sum()

    found = torch.func.vmap(torch.func.grad(loss))(mix, u)
    mix = mix.clone().requires_grad_()
    outputs = lti_scan_reference(u, log_decay, weight, skip, mix)
    (expected,) = torch.autograd.grad(outputs.square().sum(), mix)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("count", [3, 5])
def test_compiled_graphs_keep_it_whole(count: int) -> None:
    values = arguments(length=17)[:count]
    lti_scan(*values)
    compiled: Any = torch.compile(lti_scan, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, values), gradients(lti_scan, values))


def test_second_derivatives_are_refused() -> None:
    values = [value.requires_grad_() for value in arguments()]
    first = torch.autograd.grad(lti_scan(*values).square().sum(), values[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="lti_scan_reference"):
        torch.autograd.grad(first[0].sum(), values[0])


def test_no_states_are_kept() -> None:
    for count, kept in ((4, 0), (5, 2 * 300 * 3 * 4)):
        values = [x.requires_grad_() for x in arguments(length=300)[:count]]
        saved: list[int] = []

        def note(x: Tensor, saved: list[int] = saved) -> Tensor:
            saved.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            lti_scan(*values)
        assert sum(saved) == sum(x.numel() for x in values) + kept


def filtered(u: Tensor, decay: Tensor, weight: Tensor) -> Any:
    """The output by scipy, one state after the other, in float64."""
    y = np.zeros(u.shape)
    for s, c, i in np.ndindex(*decay.shape):
        coefficients = [float(weight[s, c, i])], [1, -float(decay[s, c, i])]
        y[:, :, s, c] += signal.lfilter(*coefficients, u[:, :, s, c].double().numpy(), axis=1)
    return y


def test_equals_scipys_filters() -> None:
    u, log_decay, weight, skip, mix = arguments(length=600, n=3)
    expected = filtered(u, torch.exp(log_decay), weight)
    np.testing.assert_allclose(lti_scan(u, log_decay, weight), expected, rtol=1e-11, atol=1e-11)
    expected = ((expected + (skip * u).numpy()) * mix[..., None].numpy()).sum(2)
    np.testing.assert_allclose(lti_scan(u, log_decay, weight, skip, mix), expected, rtol=1e-11, atol=1e-11)


def test_many_states_are_scipys_discrete_system() -> None:
    u, log_decay, weight, *_ = arguments(b=1, length=200, m=1, d=1, n=4)
    a, w = np.diag(torch.exp(log_decay[0, 0]).numpy()), weight[0, 0].numpy()[None]
    system = (a, np.ones((4, 1)), w @ a, [[w.sum()]], 1.0)  # dlsim reads the state before its update
    _, expected, _ = signal.dlsim(system, u[0, :, 0, 0].numpy())
    np.testing.assert_allclose(lti_scan(u, log_decay, weight)[0, :, 0], expected, rtol=1e-11, atol=1e-11)


def test_equals_the_convolution_with_its_kernel_and_the_selective_scan_with_constant_steps() -> None:
    u, log_decay, weight, skip, mix = arguments(length=301, n=7)
    found = gradients(lti_scan, [u, log_decay, weight])

    def convolved(u: Tensor, log_decay: Tensor, weight: Tensor) -> Tensor:
        lags = torch.arange(301, dtype=torch.float64)
        return long_convolution(
            u, torch.einsum("mdn,mdnk->kmd", weight, torch.exp(log_decay[..., None] * lags))
        )

    for one, other in zip(gradients(convolved, [u, log_decay, weight]), found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    # There C is shared by the channels; with dt 1 and B 1 the rest is alike.
    shared = weight[:, :1].expand(-1, 4, -1)
    ones, C = torch.ones(2, 301, 3, 7, dtype=torch.float64), weight[:, 0].expand(2, 301, 3, 7)
    expected = selective_scan(u, torch.ones_like(u), log_decay, ones, C, skip, mix)
    torch.testing.assert_close(lti_scan(u, log_decay, shared, skip, mix), expected)


@pytest.mark.parametrize("position", range(1, 5))
def test_wrong_shapes_are_named(position: int) -> None:
    values = arguments()
    values[position] = values[position][..., :1]
    with pytest.raises(ValueError, match=rf"{NAMES[position + 1]} must be|weight must be"):
        lti_scan(*values)


def test_empty_sequences_and_complex_poles_are_refused() -> None:
    with pytest.raises(ValueError, match="none empty"):
        lti_scan(*arguments(length=0))
    u, log_decay, weight, *_ = arguments()
    with pytest.raises(ValueError, match="complex poles need"):
        lti_scan(u, log_decay + 1j, weight)
