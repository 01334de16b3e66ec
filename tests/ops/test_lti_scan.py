"""The time-invariant scan against the loop over time, filters of scipy, and the other operations."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from lti_cases import arguments
from op_gradients import gradients
from torch import Tensor

from msbench.ops import native_library
from msbench.ops.lti_scan import lti_scan, lti_scan_reference

built = pytest.mark.skipif(native_library.load_library() is None, reason="built without a C++ compiler")
NAMES = ("out", "u", "log_decay", "weight", "skip", "mix")


@pytest.fixture(params=["torch", pytest.param("cpp", marks=built)], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test here is run with each engine."""
    monkeypatch.setenv("MSBENCH_SCAN", request.param)
    before = torch.get_num_threads()
    yield str(request.param)
    torch.set_num_threads(before)


def assert_equal(values: Sequence[Tensor], tolerance: float = 1e-10, **options: Any) -> None:
    truth = gradients(lti_scan_reference, [x.double() for x in values], **options)
    for name, one, other in zip(NAMES, gradients(lti_scan, values, **options), truth, strict=False):
        assert one.shape == other.shape
        error = float((one - other).abs().max()) / (float(other.abs().max()) + 1e-300)
        assert error < tolerance, f"{name} is off by {error:.1e}"


@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 100, 129, 1000, 1025])
def test_output_and_gradients_equal_the_loop_at_any_length(length: int) -> None:
    assert_equal(arguments(length=length, m=2))


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
    values = arguments(length=121)
    strided = [value.mT.contiguous().mT for value in values]
    assert not strided[1].is_contiguous()
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
