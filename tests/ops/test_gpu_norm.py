"""The Triton batch norm against PyTorch operations in float64: interpreted on the CPU."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from interpreted_kernels import prepare_interpreter
from torch import Tensor, nn

from msbench.models.layers import MaskedBatchNorm
from msbench.ops.batch_norm import (
    EPSILON,
    Moments,
    check_norm_on_gpu,
    frozen_batch_norm,
    masked_batch_norm,
    masked_batch_norm_reference,
    spread_batch_norm,
    track_moments,
)
from msbench.ops.gpu import norm, tiles
from msbench.ops.gpu.launch import find_missing
from msbench.ops.gpu.tiles import PROGRAMS, cut_into_tiles
from msbench.ops.scan import dispatch

pytestmark = pytest.mark.skipif(bool(find_missing("cpu")), reason=find_missing("cpu") or "interpreted")

NAMES = ("output", "mean", "var", "count", "x", "weight", "bias")


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton in place of the C++ kernels."""
    prepare_interpreter(monkeypatch, ["msbench.ops.gpu.norm_kernels", "msbench.ops.gpu.tile_kernels"])
    monkeypatch.setenv("MSBENCH_SCAN", "triton")
    dispatch._choose.cache_clear()
    yield
    dispatch._choose.cache_clear()


def arguments(
    b: int, length: int, d: int, far: float = 0.0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """x, mask, weight, bias and the gradient of the output; the last example has no real position."""
    source = torch.Generator().manual_seed(length + d)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    mask = (torch.rand(b, length, 1, generator=source) < 0.7).float()
    if b > 1:
        mask[-1] = 0
    return [(normal(b, length, d) + far).to(dtype), mask, normal(d), normal(d), normal(b, length, d)]


def computed(values: list[Tensor], zero: bool) -> list[Tensor]:
    """What `NAMES` say, by the kernels."""
    x, mask, *affine, weights = values
    leaves = [value.clone().requires_grad_() for value in (x, *affine)]
    y, moments = masked_batch_norm(leaves[0], mask, *leaves[1:], zero=zero)
    assert "norm_on_gpu" in str(y.grad_fn)
    return [y.detach(), *moments, *torch.autograd.grad((y * weights).sum(), leaves)]


def expected(values: list[Tensor], zero: bool) -> list[Tensor]:
    """The same in float64."""
    x, mask, *affine, weights = (value.double() for value in values)
    leaves = [value.requires_grad_() for value in (x, *affine)]
    y, mean, var = masked_batch_norm_reference(leaves[0], mask, *leaves[1:], zero=zero)
    count = mask.sum().clamp(min=1)
    return [y.detach(), mean, var, count, *torch.autograd.grad((y * weights).sum(), leaves)]


def assert_same(values: list[Tensor], zero: bool, tolerance: float = 1e-6) -> list[Tensor]:
    """Compare with `expected`, and return what was computed."""
    found = computed(values, zero)
    for name, one, truth in zip(NAMES, found, expected(values, zero), strict=True):
        assert one.shape == truth.shape
        assert one.is_contiguous()
        error = float((one - truth).abs().max() / truth.abs().max().clamp_min(1e-30))
        assert error < tolerance, f"{name} is off by {error:.1e}"
    return found


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(
    ("b", "length", "d"), [(1, 1, 1), (1, 33, 3), (2, 150, 19), (3, 70, 64), (2, 45, 130)]
)
def test_sizes(b: int, length: int, d: int, zero: bool) -> None:
    assert_same(arguments(b, length, d), zero)


def test_chunks_of_several_tiles_are_merged_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "PROGRAMS", 40)
    monkeypatch.setattr(tiles, "TILE", 128)
    monkeypatch.setitem(norm.MERGE, "ROWS", 8)
    cut = cut_into_tiles(3 * 211, 70)
    assert (cut.each, cut.chunks, cut.blocks) == (16, 20, 2)
    assert_same(arguments(3, 211, 70), zero=True)


@pytest.mark.parametrize("far", [3.0, 1e3])
def test_means_far_from_zero(far: float) -> None:
    # The rounding of a mean of a thousand standard deviations is 3e-5 of one.
    assert_same(arguments(4, 200, 20, far), True, tolerance=1e-4 if far > 100 else 1e-6)


def test_a_batch_without_real_positions() -> None:
    values = arguments(2, 10, 5)
    values[1].zero_()
    found = assert_same(values, False, tolerance=1e-5)
    assert [float(moment.abs().max()) for moment in found[1:4]] == [0, 0, 1]
    assert not any(value.any() for value in (*computed(values, True)[:1], *computed(values, True)[4:]))


def test_padding_does_not_enter_the_statistics() -> None:
    values = arguments(2, 40, 5)
    before = computed(values, True)
    values[0] += 1e6 * (1 - values[1])
    after = computed(values, True)
    assert all(torch.equal(one, other) for one, other in zip(before[1:4], after[1:4], strict=True))
    torch.testing.assert_close(after[0], before[0])


def test_the_same_bits_twice() -> None:
    values = arguments(3, 211, 70)
    for one, other in zip(computed(values, True), computed(values, True), strict=True):
        assert torch.equal(one, other)


def test_strided_arguments() -> None:
    values = arguments(2, 9, 5)
    strided = [value.mT.contiguous().mT for value in values[:2]] + values[2:]
    for one, other in zip(computed(strided, True), computed(values, True), strict=True):
        assert torch.equal(one, other)


def test_half_precision_is_computed_in_float32() -> None:
    values = arguments(2, 50, 6, dtype=torch.bfloat16)
    found = computed(values, True)
    assert [value.dtype for value in found] == [torch.float32] * 4 + [torch.bfloat16] + [torch.float32] * 2
    whole = computed([values[0].float(), *values[1:]], True)
    for index in (0, 1, 2, 3, 5, 6):
        assert torch.equal(found[index], whole[index])
    # The interpreter cuts the last bits off; a GPU rounds.
    torch.testing.assert_close(found[4].float(), whole[4], rtol=2**-7, atol=0)
    x, mask, weight, bias, _ = values
    half = norm.apply_norm(x, mask, weight, bias, EPSILON, True, torch.bfloat16)[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole[0], rtol=2**-7, atol=0)


def test_float64_is_computed_in_float64() -> None:
    x, mask, weight, bias, _ = (value.double() for value in arguments(2, 9, 5))
    y, moments = masked_batch_norm(x, mask, weight, bias)
    assert torch.equal(y, masked_batch_norm_reference(x, mask, weight, bias)[0])
    assert moments.var.dtype == torch.float64


@pytest.mark.parametrize("zero", [False, True])
def test_frozen_moments(zero: bool) -> None:
    x, mask, weight, bias, _ = arguments(2, 70, 19)
    mean, var = x.mean((0, 1)), x.var((0, 1))
    with torch.no_grad():
        found = frozen_batch_norm(x, mask, weight, bias, mean, var, zero=zero)
    truth = (x - mean) * torch.rsqrt(var + EPSILON) * weight + bias
    torch.testing.assert_close(found, truth * mask if zero else truth)
    # With gradients it is made of differentiable operations.
    leaf = x.clone().requires_grad_()
    with_gradients = frozen_batch_norm(leaf, mask, weight, bias, mean, var, zero=zero)
    torch.testing.assert_close(found, with_gradients.detach())
    assert with_gradients.requires_grad


class Processes:
    """Threads that stand for processes, and sum vectors when all have theirs.

    They take turns: the interpreter is for one thread at a time.
    """

    def __init__(self, count: int) -> None:
        self.turn, self.barrier = threading.Lock(), threading.Barrier(count)
        self.vectors: dict[int, Tensor] = {}

    def total(self, x: Tensor) -> Tensor:
        """The sum of all threads' vectors, in the order of threads."""
        self.vectors[threading.get_ident()] = x
        self.turn.release()
        self.barrier.wait(60)
        found = torch.stack([self.vectors[key] for key in sorted(self.vectors)]).sum(0)
        self.barrier.wait(60)
        self.turn.acquire()
        return found


@pytest.mark.parametrize("zero", [False, True])
def test_a_batch_that_processes_share_equals_one(zero: bool) -> None:
    x, mask, *affine, weights = arguments(5, 40, 6, far=3.0)  # the last has an example without positions
    whole = expected([x, mask, *affine, weights], zero)
    processes = Processes(3)

    def run(part: slice) -> list[Tensor]:
        leaf, weight, bias = (value.clone().requires_grad_() for value in (x[part], *affine))
        leaves = leaf, weight, bias
        with processes.turn:
            y, moments = spread_batch_norm(leaf, mask[part], weight, bias, processes.total, zero=zero)
            assert "SpreadNorm" in str(y.grad_fn)
            return [y.detach(), *moments, *torch.autograd.grad((y * weights[part]).sum(), leaves)]

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(run, [slice(0, 2), slice(2, 4), slice(4, 5)]))
    joined = [torch.cat(parts) for parts in zip(*((each[0], each[4]) for each in found), strict=True)]
    summed = [sum(parts) for parts in zip(*(each[5:] for each in found), strict=True)]
    for one, truth in zip([joined[0], *found[0][1:4], joined[1], *summed], whole, strict=True):
        torch.testing.assert_close(one, truth.float(), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(one, other) for one, other in zip(found[0][1:4], found[2][1:4], strict=True))


@pytest.mark.parametrize("count", [1.0, 12.0])
def test_running_moments(count: float) -> None:
    source = torch.Generator().manual_seed(0)
    mean, var, *running = torch.rand(4, 300, generator=source)
    wanted = [
        running[0].lerp(mean, 0.1),
        running[1].lerp(var * count / max(1.0, count - 1), 0.1),
    ]
    track_moments(running[0], running[1], Moments(mean, var, torch.tensor(count)), 0.1)
    torch.testing.assert_close(running, wanted)


def test_a_layer_equals_that_of_torch_on_real_positions() -> None:
    x, mask, *_ = arguments(3, 40, 6)
    real = mask[:, :, 0].bool()
    ours, theirs = MaskedBatchNorm(6), nn.BatchNorm1d(6)
    for _ in range(3):
        torch.testing.assert_close(ours(x, mask)[real], theirs(x[real]))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x, mask)[real], theirs.eval()(x[real]))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_operators_are_registered_rightly() -> None:
    x, mask, weight, bias, _ = arguments(2, 9, 5)
    leaves = [value.requires_grad_() for value in (x, weight, bias)]
    ops = torch.ops.msbench
    options = EPSILON, True, torch.float32
    torch.library.opcheck(ops.norm_on_gpu.default, (leaves[0], mask, *leaves[1:], *options))
    plain = [value.detach() for value in (x, mask, weight, bias)]
    mean, var = torch.zeros(5), torch.ones(5)
    torch.library.opcheck(ops.frozen_norm_on_gpu.default, (*plain, mean, var, *options))


@pytest.mark.parametrize("position", range(4))
def test_the_check_sees_what_is_wrong(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_norm_on_gpu("cpu") == ""
    right = norm.apply_norm

    def spoil(part: Tensor) -> Tensor:
        """Return a tensor whose gradient is wrong."""
        return part + 0.001 * (part - part.detach())

    def apply(*values: Tensor) -> tuple[Tensor, ...]:
        changed = list(values)
        if position > 0:
            index = (0, 0, 2, 3)[position]
            changed[index] = spoil(values[index])
        y, *rest = right(*changed)
        return (y * 1.001 if position == 0 else y), *rest

    monkeypatch.setattr(norm, "apply_norm", apply)
    part = ("output", "x", "weight", "bias")[position]
    assert check_norm_on_gpu("cpu").startswith(f"its {part} is off by")


@pytest.mark.parametrize("d", [1, 19, 64, 65, 96, 1024])
@pytest.mark.parametrize("rows", [1, 31, 100_000, 600_000])
def test_every_row_is_in_one_chunk(rows: int, d: int) -> None:
    cut = cut_into_tiles(rows, d)
    assert cut.blocks * cut.columns >= d > (cut.blocks - 1) * cut.columns
    assert cut.tiles * cut.rows >= rows > (cut.tiles - 1) * cut.rows
    assert cut.chunks * cut.each >= cut.tiles > (cut.chunks - 1) * cut.each
    assert cut.chunks * cut.blocks <= PROGRAMS + cut.blocks
    if cut.tiles * cut.blocks >= PROGRAMS:
        assert cut.chunks * cut.blocks > PROGRAMS // 2
