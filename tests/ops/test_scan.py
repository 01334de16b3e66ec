"""The fast scan against the loop over time, in float64, and against what public scans got wrong."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from scan_cases import NAMES, arguments, gradients
from torch import Tensor

from msbench.ops.scan import dispatch, torch_engine
from msbench.ops.scan.dispatch import kernel_name, selective_scan
from msbench.ops.scan.reference import selective_scan_reference


@pytest.fixture(params=["torch", "cpp"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here is run with each kernel."""
    if missing := dispatch.KERNELS[request.param].missing("cpu"):
        pytest.skip(missing)
    monkeypatch.setenv("MSBENCH_SCAN", request.param)
    return str(request.param)


def assert_equal(values: Sequence[Tensor], tolerance: float = 1e-10, **options: Any) -> None:
    expected, expected_gradients = gradients(selective_scan_reference, values, **options)
    actual, actual_gradients = gradients(selective_scan, values, **options)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    for name, one, other in zip(NAMES, actual_gradients, expected_gradients, strict=False):
        scale = float(other.abs().max()) + 1e-300
        error = float((one - other).abs().max()) / scale
        assert error < tolerance, f"gradient of {name} is off by {error:.1e}"


@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 31, 33, 49, 100, 257])
def test_output_and_gradients_equal_the_loop_at_any_length(length: int) -> None:
    assert_equal(arguments(length=length))


@pytest.mark.parametrize(("b", "m", "d", "n"), [(1, 1, 1, 1), (5, 1, 3, 16), (2, 5, 130, 26), (3, 2, 7, 257)])
def test_sizes(b: int, m: int, d: int, n: int) -> None:
    assert_equal(arguments(b=b, m=m, d=d, n=n, length=20))


@pytest.mark.parametrize("count", [5, 6, 7])
@pytest.mark.parametrize("discretisation", ["euler", "raw"])
def test_with_and_without_skip_and_mix(count: int, discretisation: str) -> None:
    assert_equal(arguments()[:count], discretisation=discretisation)


def test_mix_without_skip() -> None:
    values = arguments()
    u, dt, A, B, C, _, mix = values
    torch.testing.assert_close(
        selective_scan(u, dt, A, B, C, mix=mix), selective_scan_reference(u, dt, A, B, C, mix=mix)
    )


def test_one_stream_written_out() -> None:
    u, dt, A, B, C = arguments(b=1, length=2, m=1, d=1, n=1)[:5]
    u1, u2 = u.flatten().tolist()
    dt1, dt2 = dt.flatten().tolist()
    h = dt1 * B[0, 0, 0, 0] * u1
    h = torch.exp(dt2 * A[0, 0, 0]) * h + dt2 * B[0, 1, 0, 0] * u2
    torch.testing.assert_close(selective_scan(u, dt, A, B, C)[0, 1, 0, 0], C[0, 1, 0, 0] * h)


def test_closed_form_without_a_recurrence() -> None:
    u, dt, A, B, C = arguments(b=1, length=9, m=1, d=2, n=3)[:5]
    log = torch.cumsum(dt.unsqueeze(-1) * A, dim=1)[0, :, 0]
    expected = torch.zeros(9, 2, dtype=torch.float64)
    for t, j in itertools.product(range(9), range(9)):
        if j <= t:
            factor = torch.exp(log[t] - log[j]) * C[0, t, 0] * B[0, j, 0]
            expected[t] += factor.sum(-1) * dt[0, j, 0] * u[0, j, 0]
    torch.testing.assert_close(selective_scan(u, dt, A, B, C)[0, :, 0], expected)


def test_gradcheck() -> None:
    values = [value.requires_grad_() for value in arguments(b=1, length=18, m=2, d=2, n=2)]
    assert torch.autograd.gradcheck(selective_scan, values, atol=1e-6)


def test_loss_on_the_last_step_only_reaches_the_first() -> None:
    values = arguments(length=50)
    values[2] *= 1e-3
    weight = torch.zeros(2, 50, 4, dtype=torch.float64)
    weight[:, -1] = 1
    expected = gradients(selective_scan_reference, values, weight)[1]
    actual = gradients(selective_scan, values, weight)[1]
    assert float(actual[0][:, 0].abs().min()) > 0
    torch.testing.assert_close(actual, expected)


# float32 rounds the decay exp(-1e-6) by up to 2^-25, and 16,384 steps multiply that.
@pytest.mark.parametrize(
    ("rate", "length", "tolerance"), [(-50.0, 64, 1e-5), (-130.0, 64, 1e-5), (-1e-6, 16_384, 16_384 * 2**-25)]
)
def test_fast_and_slow_decay_stay_finite_and_right(rate: float, length: int, tolerance: float) -> None:
    values = arguments(b=1, length=length, m=1, d=2, n=2)
    values[1].fill_(1.0)
    values[2].fill_(rate)
    single = [value.float() for value in values]
    expected = selective_scan_reference(*values).float()
    actual = selective_scan(*single)
    assert torch.isfinite(actual).all()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * float(expected.abs().max()))


def test_float32_gradients_are_close_to_float64() -> None:
    values = arguments(length=300, n=26)
    expected = gradients(selective_scan_reference, values)[1]
    weight = torch.linspace(-1, 1, 2 * 300 * 4).view(2, 300, 4)
    actual = gradients(selective_scan, [value.float() for value in values], weight)[1]
    for one, other in zip(actual, expected, strict=True):
        assert float((one - other).abs().max() / other.abs().max()) < 5e-6


def test_strided_inputs_equal_contiguous_ones() -> None:
    values = arguments(b=2, length=21)
    strided = [value.mT.contiguous().mT for value in values[:6]]
    strided.append(values[6].repeat(1, 1, 2)[..., ::2].contiguous())
    strided[6] = torch.stack([values[6], values[6]], dim=-1)[..., 0]
    assert not any(value.is_contiguous() for value in strided)
    torch.testing.assert_close(gradients(selective_scan, strided), gradients(selective_scan, values))


def test_expanded_streams_equal_copies() -> None:
    values = arguments()
    u = values[0][:, :, :1].expand(-1, -1, 3, -1)
    torch.testing.assert_close(
        selective_scan(u, *values[1:]), selective_scan(u.contiguous(), *values[1:]), rtol=0, atol=0
    )


def test_blocks_of_examples_and_channels_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = arguments(b=5, length=37, m=2, d=9, n=3)
    expected = gradients(selective_scan, values)
    for name, value in {"STEP_SIZE": 20, "CHANNELS": 2, "STEPS": 5}.items():
        monkeypatch.setattr(torch_engine, name, value)
    torch.testing.assert_close(gradients(selective_scan, values), expected, rtol=1e-12, atol=1e-12)


def test_padding_behind_leaks_into_nothing() -> None:
    values = arguments(length=40)
    u, dt, A, B, C, skip, mix = values
    short = [u[:, :23], dt[:, :23], A, B[:, :23], C[:, :23], skip, mix[:, :23]]
    weight = torch.ones(2, 23, 4, dtype=torch.float64)
    padded = torch.cat([weight, torch.zeros(2, 17, 4, dtype=torch.float64)], dim=1)
    out, grads = gradients(selective_scan, values, padded)
    expected, expected_grads = gradients(selective_scan, short, weight)
    torch.testing.assert_close(out[:, :23], expected)
    torch.testing.assert_close(grads[2], expected_grads[2])
    torch.testing.assert_close(grads[0][:, :23], expected_grads[0])
    assert not grads[0][:, 23:].any()


def test_repeated_runs_are_bit_equal() -> None:
    values = arguments(b=4, length=64, d=16, dtype=torch.float32)
    one, other = gradients(selective_scan, values), gradients(selective_scan, values)
    assert torch.equal(one[0], other[0])
    assert all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


def test_state_is_float32_under_autocast_and_for_half_inputs() -> None:
    values = arguments(length=400, n=16, dtype=torch.float32)
    values[2] = torch.full_like(values[2], -0.01)
    half = [value.bfloat16() for value in values]
    expected = selective_scan(*(value.float() for value in half))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = selective_scan(*half)
        full = selective_scan(*values)
    assert actual.dtype == torch.bfloat16
    assert torch.equal(actual, expected.bfloat16())
    assert torch.equal(full, selective_scan(*values))


def test_backward_under_autocast_is_float32() -> None:
    values = arguments(length=40, dtype=torch.float32)[:5]
    expected = gradients(selective_scan, values)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = gradients(selective_scan, values)
    assert all(torch.equal(a, b) for a, b in zip(actual[1], expected[1], strict=True))


def test_function_transforms() -> None:
    values = arguments(b=1, length=18, m=2, d=2, n=2)

    def last(u: Tensor) -> Tensor:
        return selective_scan(u, *values[1:])[0, -1]

    expected = torch.autograd.functional.jacobian(last, values[0])  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(last)(values[0]), expected)
    u = values[0].clone().requires_grad_()
    (rows,) = torch.autograd.grad(last(u), u, torch.eye(2, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(rows, expected)
    pull = torch.func.vjp(last, values[0])[1]
    (rows,) = torch.func.vmap(pull)(torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(rows, expected)
    many = torch.stack([values[0], 2 * values[0]])
    torch.testing.assert_close(torch.func.vmap(last)(many)[1], last(2 * values[0]))
    gradient = torch.func.grad(lambda u: last(u).sum())
    torch.testing.assert_close(torch.func.vmap(gradient)(many)[1], expected.sum(0))


def test_second_derivatives_are_refused() -> None:
    values = [value.requires_grad_() for value in arguments()]
    first = torch.autograd.grad(selective_scan(*values).square().sum(), values[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="selective_scan_reference"):
        torch.autograd.grad(first[0].sum(), values[0])


def test_states_of_a_sequence_are_never_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    b, length, m, d, n = 2, 512, 2, 16, 32
    largest = 0
    inner = torch_engine.StepBuffers.__init__

    def recording(self: torch_engine.StepBuffers, inputs: torch_engine.ScanInputs) -> None:
        nonlocal largest
        inner(self, inputs)
        largest = max(largest, self.state.numel())

    monkeypatch.setattr(torch_engine.StepBuffers, "__init__", recording)
    values = arguments(b, length, m, d, n, dtype=torch.float32)
    gradients(selective_scan, values)
    u, dt, A, B, C, _, _ = values
    inputs = torch_engine.ScanInputs(u, dt, A.mT.contiguous(), B, C, None, None)
    kept = torch_engine.forward(inputs, scaled=True, keep=True)[1]
    assert 0 < largest <= b * length * m * d * n // 16
    assert kept.numel() == b * length * m * d * n // torch_engine.STEPS


def test_silence_leaves_no_subnormal_states() -> None:
    u, dt, A, B, C, _, _ = arguments(b=1, length=600, m=1, d=2, n=2, dtype=torch.float32)
    u[:, 1:] = 0
    dt.fill_(0.5)
    A.fill_(-1.0)
    inputs = torch_engine.ScanInputs(u, dt, A.mT.contiguous(), B, C, None, None)
    kept = torch_engine.forward(inputs, scaled=True, keep=True)[1].abs()
    assert bool(kept[1:5].all())
    assert not bool(((kept > 0) & (kept < torch_engine.NEGLIGIBLE)).any())
    assert not kept[-1].any()


@pytest.mark.parametrize("position", range(1, 7))
def test_wrong_shapes_are_named(position: int) -> None:
    values = arguments()
    values[position] = values[position][..., :1]
    with pytest.raises(ValueError, match=rf"{NAMES[position]} must be|B must be"):
        selective_scan(*values)


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(ValueError, match="none empty"):
        selective_scan(*arguments(length=0))


def test_kernel_has_a_name(kernel: str) -> None:
    assert kernel_name("cpu").startswith(kernel)
