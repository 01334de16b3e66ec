"""Step sizes in Triton, and the scan behind them, against PyTorch operations in float64."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from scan_cases import gradients
from torch import Tensor
from torch.nn import functional

from msbench.ops.gpu import scan_steps
from msbench.ops.gpu.launch import find_missing
from msbench.ops.gpu.scan_steps import compute_step_gradients, compute_steps
from msbench.ops.scan import dispatch, engines, fused
from msbench.ops.scan.fused import low_rank_scan, multi_scale_scan, run_by_parts, scan_low_rank_by_parts
from msbench.ops.scan.reference import step_sizes
from msbench.ops.scan.triton_engine import TritonScanEngine

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")


KERNELS = [
    "msbench.ops.scan.triton_backward_kernels",
    "msbench.ops.scan.triton_forward_kernels",
    "msbench.ops.gpu.bank_kernels",
    "msbench.ops.gpu.scan_packing_kernels",
    "msbench.ops.gpu.scan_step_kernels",
]


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    prepare_interpreter(monkeypatch, KERNELS)
    dispatch._choose.cache_clear()
    monkeypatch.setenv("MSBENCH_SCAN", "triton")
    monkeypatch.setitem(engines.ENGINES, "triton", TritonScanEngine(every=8, schedulers=1))
    monkeypatch.setattr(scan_steps, "PROGRAMS", 2)
    yield
    dispatch._choose.cache_clear()


def normal(*size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(size)))


def assert_close(found: Tensor, truth: Tensor, tolerance: float = 3e-6) -> None:
    assert found.shape == truth.shape
    assert float((found - truth).abs().max() / truth.abs().max()) < tolerance


class TestSteps:
    @pytest.mark.parametrize(
        ("b", "length", "m", "d", "rank"),
        [(1, 1, 1, 1, 1), (2, 5, 2, 3, 2), (1, 37, 1, 130, 4), (2, 3, 1, 33, 16), (1, 9, 2, 20, 17)],
    )
    def test_values_and_gradients(self, b: int, length: int, m: int, d: int, rank: int) -> None:
        low, weight, bias = normal(b, length, m, rank), normal(m, d, rank) * rank**-0.5, normal(m, d) - 2
        leaves = [x.double().requires_grad_() for x in (low, weight, bias)]
        dt, g = step_sizes(*leaves), normal(b, length, m, d)
        assert_close(compute_steps(low, weight, bias), dt.detach(), 1e-6)
        truth = torch.autograd.grad((dt * g).sum(), leaves)
        for one, other in zip(compute_step_gradients(low, weight, bias, g), truth, strict=True):
            assert_close(one, other)

    @pytest.mark.parametrize("rank", [3, 17])
    def test_gradients_of_groups_are_summed(self, rank: int) -> None:
        low, weight, bias, g = normal(1, 9, 2, rank), normal(2, 5, rank), normal(2, 5), normal(1, 9, 6, 5)
        found = compute_step_gradients(low, weight, bias, g)
        summed = compute_step_gradients(low, weight, bias, g.view(1, 9, 2, 3, 5).sum(3))
        for one, other in zip(found, summed, strict=True):
            assert_close(one, other)

    def test_every_step_is_relatively_right(self) -> None:
        bias = torch.linspace(-60, 90, 601).view(1, -1)
        dt = compute_steps(torch.zeros(1, 1, 1, 1), torch.zeros(1, 601, 1), bias)[0, 0].double()
        exact = functional.softplus(bias.double(), threshold=1e9)
        exact = torch.where(bias < -10, torch.log1p(bias.double().exp()), exact)
        assert float(((dt - exact) / exact).abs().max()) < 4e-6  # 60 log2(e) has its last bit at 8e-6
        near = bias.abs() < 12
        assert float(((dt - exact) / exact)[near].abs().max()) < 1e-6

    def test_slices_and_half_precision_are_read_as_they_are(self) -> None:
        rows = normal(2, 6, 2, 9).bfloat16()
        low, weight, bias = rows[..., 3:6], normal(2, 5, 3), normal(2, 5)
        whole = low.float().contiguous()
        assert torch.equal(compute_steps(low, weight, bias), compute_steps(whole, weight, bias))
        g = normal(2, 6, 2, 5)
        found, truth = (compute_step_gradients(x, weight, bias, g) for x in (low, whole))
        assert found[0].dtype == torch.bfloat16
        assert all(torch.equal(one, other.to(one.dtype)) for one, other in zip(found, truth, strict=True))

    @pytest.mark.parametrize("steps", [1, 7, 8, 100, 12_345])
    @pytest.mark.parametrize("rank", [1, 4, 16, 64])
    @pytest.mark.parametrize("d", [1, 33, 128, 1000])
    def test_every_row_and_channel_has_one_program(self, d: int, rank: int, steps: int) -> None:
        shape = scan_steps.choose_step_shape(torch.empty(5, d), rank)
        tiles, parts = scan_steps.count_tiles(shape, steps, 2112)
        assert tiles * parts * shape.ROWS >= steps > tiles * (parts - 1) * shape.ROWS
        assert shape.COLUMNS * shape.CHANNELS >= d > (shape.COLUMNS - 1) * shape.CHANNELS


def problem(length: int, m: int, d: int, n: int, r: int) -> list[Tensor]:
    """u, low, weight, bias, A, B, C, skip, mix."""
    steps = [normal(2, length, m, r), normal(m, d, r) * 0.3, normal(m, d) - 2]
    scan = [-normal(m, d, n).abs(), normal(2, length, m, n), normal(2, length, m, n) + 0.5]
    return [normal(2, length, m, d), *steps, *scan, normal(m, d), normal(2, length, m)]


@pytest.mark.parametrize(("m", "n", "count"), [(2, 3, 9), (1, 35, 8), (2, 5, 7)])
def test_the_scan_equals_its_parts(m: int, n: int, count: int) -> None:
    values = problem(11, m, 5, n, 3)[:count]
    found, truth = (
        gradients(low_rank_scan, values),
        gradients(scan_low_rank_by_parts, [x.double() for x in values]),
    )
    again = gradients(low_rank_scan, values)
    for one, other, second in zip(
        (found[0], *found[1]), (truth[0], *truth[1]), (again[0], *again[1]), strict=True
    ):
        assert_close(one, other, 5e-6)
        assert torch.equal(one, second)


def test_slow_decays_over_several_spans() -> None:
    values = problem(27, 1, 3, 4, 2)
    values[4] *= 1e-3
    truth = gradients(scan_low_rank_by_parts, [x.double() for x in values])
    found = gradients(low_rank_scan, values)
    for one, other in zip((found[0], *found[1]), (truth[0], *truth[1]), strict=True):
        assert_close(one, other, 5e-6)


def test_streams_are_decomposed_before_it() -> None:
    _, *scan = problem(9, 4, 5, 3, 2)
    values = [normal(2, 9, 5), normal(2, 2, 3, 5) * 0.5, normal(2, 2, 5), *scan]
    found = gradients(multi_scale_scan, values)
    truth = gradients(run_by_parts, [x.double() for x in values])
    for one, other in zip((found[0], *found[1]), (truth[0], *truth[1]), strict=True):
        assert_close(one, other, 5e-6)


def test_no_step_size_is_kept() -> None:
    values = [x.requires_grad_() for x in problem(20, 2, 5, 3, 2)]
    kept: list[Any] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        low_rank_scan(*values)
    own = {x.data_ptr() for x in values}
    assert [x.shape for x in kept if x.data_ptr() not in own] == [(2, 3, 2, 3, 5)]  # one state in 8


def test_half_precision_is_scanned_in_float32() -> None:
    values = problem(9, 2, 5, 3, 2)
    half = [x.bfloat16() if i in (0, 1, 5, 6, 8) else x for i, x in enumerate(values)]
    found, full = gradients(low_rank_scan, half), gradients(low_rank_scan, [x.float() for x in half])
    assert [x.dtype for x in found[1]] == [x.dtype for x in half]
    assert torch.equal(found[0], full[0].bfloat16())
    # The output's own gradient is rounded too.
    for one, other in zip(found[1], full[1], strict=True):
        assert_close(one.float(), other, 0.02)


def test_float64_and_the_rank_0_are_not_its_business() -> None:
    values = problem(5, 1, 3, 2, 2)
    assert fused.is_made_in_triton(values[2], values)
    assert not fused.is_made_in_triton(values[2], [*values[:-1], values[-1].double()])
    assert not fused.is_made_in_triton(values[2][..., :0], values)
    double = [x.double() for x in values]
    assert low_rank_scan(*double).dtype == torch.float64


def test_its_check_finds_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fused.check_low_rank_scan("cpu") == ""
    monkeypatch.setattr(fused, "run_low_rank", lambda *x, **_how: scan_low_rank_by_parts(*x) * 1.001)
    assert "its output is off" in fused.check_low_rank_scan("cpu")


def test_wrong_shapes_are_reported() -> None:
    values = problem(5, 2, 3, 2, 2)
    with pytest.raises(ValueError, match="low must be"):
        low_rank_scan(values[0], values[1][..., :1], *values[2:7])
