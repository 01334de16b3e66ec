"""Step sizes and streams made inside the scan, against the same one after the other in float64."""

import math
from collections.abc import Iterator

import pytest
import torch
from scan_cases import gradients
from torch import Tensor
from torch.nn import functional

from msbench.ops import native_library
from msbench.ops.scan import dispatch, fused, native_engine
from msbench.ops.scan.dispatch import selective_scan
from msbench.ops.scan.fused import NAMES, check_fused_scan, low_rank_scan, multi_scale_scan, run_by_parts
from msbench.ops.scan.reference import selective_scan_reference, step_sizes


@pytest.fixture(params=["torch", "cpp"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here is run with each kernel: only one of them fuses."""
    if missing := dispatch.KERNELS[request.param].missing("cpu"):
        pytest.skip(missing)
    monkeypatch.setenv("MSBENCH_SCAN", request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def problem(
    b: int, length: int, d: int, n: int, r: int, levels: int, k: int, dtype: torch.dtype
) -> list[Tensor]:
    """x, filters, filter bias, low, weight, bias, A, B, C, skip, mix."""
    m, source = levels + 2, torch.Generator().manual_seed(length + d + n)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source, dtype=torch.float64).to(dtype)

    signal = [normal(b, length, d), normal(levels, 2, k, d) * 0.5, normal(levels, 2, d)]
    steps = [normal(b, length, m, r), normal(m, d, r) * 0.3, normal(m, d) - 2]
    scan = [-normal(m, d, n).abs() * n, normal(b, length, m, n), normal(b, length, m, n)]
    return [*signal, *steps, *scan, normal(m, d), normal(b, length, m)]


SIZES = {  # b, length, d, n, r, levels, k
    "one step": (1, 1, 5, 3, 2, 2, 2),
    "shorter than the filters": (2, 5, 20, 3, 2, 4, 4),
    "the model's": (2, 57, 19, 5, 4, 3, 4),
    "filters longer than a span": (2, 90, 17, 3, 2, 5, 5),
    "several tiles": (1, 50, 300, 7, 5, 1, 2),
    "one tap": (2, 33, 16, 16, 1, 3, 1),
}


def assert_equal(found: tuple[Tensor, ...], truth: tuple[Tensor, ...], tolerance: float) -> None:
    for name, one, other in zip(NAMES, found, truth, strict=False):
        error = float((one.double() - other).abs().max()) / (float(other.abs().max()) + 1e-12)
        assert error <= tolerance, f"{name} is off by {error:.1e}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)])
def test_multi_scale_scan_equals_its_parts(size: str, dtype: torch.dtype, tolerance: float) -> None:
    values = problem(*SIZES[size], dtype)
    found = gradients(multi_scale_scan, values)
    truth = gradients(run_by_parts, [x.double() for x in values])
    assert found[0].dtype == dtype
    assert_equal((found[0], *found[1]), (truth[0], *truth[1]), tolerance)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("discretisation", ["euler", "raw"])
def test_low_rank_scan_equals_its_parts(mixed: bool, discretisation: str) -> None:
    _, _, _, low, weight, bias, A, B, C, skip, mix = problem(2, 40, 21, 5, 6, 3, 2, torch.float64)
    u = torch.randn(2, 40, 5, 21, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = [u, low, weight, bias, A, B, C, skip, *([mix] if mixed else [])]

    def parts(u: Tensor, low: Tensor, weight: Tensor, bias: Tensor, *rest: Tensor) -> Tensor:
        return selective_scan_reference(
            u,
            step_sizes(low, weight, bias),
            *rest,
            discretisation=discretisation,  # type: ignore[arg-type]
        )

    found = gradients(low_rank_scan, values, discretisation=discretisation)
    truth = gradients(parts, values)
    for one, other in zip((found[0], *found[1]), (truth[0], *truth[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_without_bias_and_skip() -> None:
    x, filters, _, low, weight, bias, A, B, C, _, mix = problem(2, 40, 18, 3, 2, 2, 3, torch.float64)
    values = [x, filters, low, weight, bias, A, B, C, mix]

    def call(x: Tensor, filters: Tensor, *rest: Tensor) -> Tensor:
        low, weight, bias, A, B, C, mix = rest
        return multi_scale_scan(x, filters, None, low, weight, bias, A, B, C, None, mix)

    def parts(x: Tensor, filters: Tensor, *rest: Tensor) -> Tensor:
        *rest_, mix = rest
        nothing = torch.zeros(2, 2, 18, dtype=torch.float64), torch.zeros(4, 18, dtype=torch.float64)
        return run_by_parts(x, filters, nothing[0], *rest_, nothing[1], mix)

    found, truth = gradients(call, values), gradients(parts, values)
    for one, other in zip((found[0], *found[1]), (truth[0], *truth[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_slices_of_projections_are_taken_as_they_are() -> None:
    values = problem(2, 40, 18, 3, 2, 2, 3, torch.float64)
    expected = gradients(multi_scale_scan, values)
    x, low = values[0], values[3]
    values[0] = torch.cat([x, x + 1], dim=-1)[..., : x.shape[2]]
    values[3] = torch.cat([low, low + 1], dim=-1)[..., : low.shape[3]]
    assert not values[0].is_contiguous()
    torch.testing.assert_close(multi_scale_scan(*values), expected[0], rtol=0, atol=0)
    torch.testing.assert_close(gradients(multi_scale_scan, values)[1], expected[1], rtol=0, atol=0)


@pytest.mark.parametrize("kernel", ["cpp"], indirect=True)  # PyTorch's own sums depend on the threads
def test_bits_do_not_depend_on_threads_or_runs() -> None:
    values = problem(4, 200, 40, 8, 4, 3, 4, torch.float32)
    runs = []
    for threads in (1, 2, 3, 2):
        torch.set_num_threads(threads)
        out, grads = gradients(multi_scale_scan, values)
        runs.append([out, *grads])
    for other in runs[1:]:
        assert all(torch.equal(one, two) for one, two in zip(runs[0], other, strict=True))


def test_the_smallest_and_largest_steps_are_relatively_right() -> None:
    # With A = 0 and one input, the state is the step size itself.
    bias = torch.linspace(-20, 90, 301).view(1, -1)
    one = torch.ones(1, 1, 1, 1)
    weight, low = torch.zeros(1, 301, 1), torch.zeros(1, 1, 1, 1)
    dt = low_rank_scan(torch.ones(1, 1, 1, 301), low, weight, bias, torch.zeros(1, 301, 1), one, one)
    exact = functional.softplus(bias.double(), threshold=1e9)
    exact = torch.where(bias < -10, torch.log1p(bias.double().exp()), exact)
    assert ((dt[0, 0].double() - exact) / exact).abs().max() < 1.5e-6


def test_half_inputs_are_scanned_in_float32() -> None:
    half = [x.bfloat16() for x in problem(2, 60, 18, 4, 2, 3, 4, torch.float32)]
    found, full = multi_scale_scan(*half), multi_scale_scan(*(x.float() for x in half))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, full.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = multi_scale_scan(*(x.float() for x in half))
    assert torch.equal(again, full)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (9, 4, 6), ()])
def test_biases_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    # The C++ kernel would read beyond their ends.
    values = problem(2, 9, 6, 3, 2, 2, 3, torch.float32)
    for position, words in ((2, "bias of the filters"), (5, "bias")):
        wrong = list(values)
        wrong[position] = torch.zeros(shape)
        with pytest.raises(ValueError, match=words):
            multi_scale_scan(*wrong)


def test_streams_without_a_mixer_are_not_its_business() -> None:
    *values, _ = problem(2, 9, 6, 3, 2, 2, 3, torch.float32)
    with pytest.raises(ValueError, match="mix is missing"):
        multi_scale_scan(*values[:10], mix=None)  # type: ignore[misc,arg-type]


def test_one_stream_of_any_stride() -> None:
    # A tensor whose axis of one stream has a strange stride counts as contiguous.
    _, _, _, _, weight, bias, A, B, C, _, _ = (x[:1] if x.ndim < 4 else x[:, :, :1] for x in one_stream())
    u = torch.randn(2, 9, 1, 6, generator=torch.Generator().manual_seed(2))
    low = torch.randn(2, 1, 9, 2, generator=torch.Generator().manual_seed(3)).transpose(1, 2)
    plain = low.clone(memory_format=torch.contiguous_format)
    torch.testing.assert_close(
        low_rank_scan(u, low, weight, bias, A, B, C), low_rank_scan(u, plain, weight, bias, A, B, C)
    )


def one_stream() -> list[Tensor]:
    return problem(2, 9, 6, 3, 2, 2, 3, torch.float32)


@pytest.mark.parametrize(
    ("gap", "first"),
    [
        *((gap, 0) for gap in (-0.29, -0.14, -0.01, 1e-4, 0.14, 0.16, 0.29, 0.31, 1.0)),
        *((gap, 26) for gap in (-0.29, -0.14, -0.01)),  # falling by less than half: made from neighbours too
    ],
)
def test_rates_that_are_near_each_other(gap: float, first: int) -> None:
    # Evenly spaced rates, rising or falling, on both sides of the limits for decays made from their
    # neighbours. All step sizes are equal: errors of a decay add up, most where nothing is forgotten.
    limit = 1e-5 if abs(gap) < 0.05 else 2e-6
    b, length, m, d, n = 1, 200, 2, 17, 26
    source = torch.Generator().manual_seed(0)
    u, B, C = (torch.randn(b, length, m, size, generator=source) for size in (d, n, n))
    A = -(torch.arange(n) + first).float().mul(abs(gap) / 0.1 * 0.6931472).expand(m, d, n)
    values = [u, torch.full_like(u, 0.1), A.flip(2) if gap < 0 else A, B, C]
    truth = gradients(selective_scan_reference, [x.double() for x in values])
    found = gradients(selective_scan, values)
    for one, other in zip((found[0], *found[1]), (truth[0], *truth[1]), strict=True):
        assert float((one.double() - other).abs().max() / other.abs().max()) < limit


def test_wrong_shapes_are_reported() -> None:
    values = problem(2, 9, 6, 3, 2, 2, 3, torch.float32)
    for position, words in ((1, "filters"), (3, "low must be"), (4, "weight"), (7, "B must be"), (10, "mix")):
        wrong = list(values)
        wrong[position] = wrong[position][..., :-1]
        with pytest.raises(ValueError, match=words):
            multi_scale_scan(*wrong)


def test_second_derivatives_are_refused() -> None:
    values = [x.requires_grad_() for x in problem(1, 9, 6, 3, 2, 2, 3, torch.float64)]
    (first,) = torch.autograd.grad(multi_scale_scan(*values).square().sum(), values[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        torch.autograd.grad(first.sum(), values[0])


@pytest.mark.parametrize("kernel", ["torch"], indirect=True)
def test_only_the_cpp_kernel_fuses() -> None:
    assert not fused.is_fused_native()


@pytest.mark.parametrize("kernel", ["cpp"], indirect=True)
def test_a_wrong_kernel_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_fused_scan() == ""
    dispatch._is_right.cache_clear()
    true_run = fused.run_fused
    monkeypatch.setattr(fused, "run_fused", lambda *x, **how: true_run(*x, **how) * 1.001)
    with pytest.warns(RuntimeWarning, match=r"C\+\+ fused scan is not used: its output is off"):
        assert not fused.is_fused_native()
    dispatch._is_right.cache_clear()


@pytest.mark.parametrize("instructions", [1, 2, 3])
@pytest.mark.parametrize("state", [0, 3, 16, 17])
def test_a_rate_that_is_not_a_number_reaches_its_channel_alone(
    state: int, instructions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "instructions", instructions)
    u, dt, B, C = (torch.full((1, 20, 1, last), 0.05) for last in (40, 40, 18, 18))
    A = -torch.arange(1.0, 19).expand(1, 40, 18).clone()
    A[0, 21, state] = math.nan
    out, _ = native_engine.ENGINE.forward((u, dt, A, B, C, None, None), scaled=True, keep=False)
    assert out.isnan().any(dim=1).squeeze().nonzero().flatten().tolist() == [21]


@pytest.mark.parametrize("kernel", ["cpp"], indirect=True)
@pytest.mark.parametrize("instructions", [1, 2, 3])
def test_every_instruction_set_is_right(instructions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "instructions", instructions)
    assert check_fused_scan() == ""
    assert dispatch.check_kernel(dispatch.KERNELS["cpp"]) == ""
