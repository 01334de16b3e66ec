"""Blocks go to the next call when nothing refers to them, and not before."""

import gc
from collections.abc import Iterator

import pytest
import torch

from msbench.analysis.benchmarks import memory
from msbench.ops import recycled, scan_native
from msbench.ops.scan import selective_scan

FLOATS = recycled.LARGE // 4
LIKE = torch.empty(0)


@pytest.fixture(autouse=True)
def _nothing_waits() -> Iterator[None]:
    gc.collect()
    recycled.release()
    yield
    recycled.release()


def waiting() -> int:
    return sum(len(blocks) for blocks in recycled._idle.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 100, FLOATS, FLOATS + 3])
def test_a_vector_of_the_type_and_size_starts_on_a_border(dtype: torch.dtype, size: int) -> None:
    vector = recycled.empty(torch.empty(3, dtype=dtype), size)
    assert (vector.dtype, vector.shape, vector.device.type) == (dtype, (size,), "cpu")
    assert vector.data_ptr() % recycled.LINE == 0
    assert vector.fill_(2).eq(2).all()


def test_a_block_is_used_again() -> None:
    vector = recycled.empty(LIKE, FLOATS)
    address = vector.data_ptr()
    del vector
    assert waiting() == 1
    again = recycled.empty(LIKE, FLOATS)
    assert again.data_ptr() == address
    assert waiting() == 0


def test_a_block_is_not_used_again_while_a_tensor_shares_its_storage() -> None:
    vector = recycled.empty(LIKE, FLOATS).fill_(1)
    part = vector.detach()[7:9]
    del vector
    other = recycled.empty(LIKE, FLOATS).fill_(5)
    assert other.data_ptr() != part.data_ptr() - 28
    assert part.tolist() == [1, 1]
    del part
    assert waiting() == 1


def test_what_waits_in_vain_goes_back() -> None:
    blocks = [recycled.empty(LIKE, FLOATS) for _ in range(2)]
    del blocks
    assert waiting() == 2
    larger = recycled.empty(LIKE, FLOATS + 1)
    assert waiting() == 0
    del larger
    assert waiting() == 1


def test_two_sizes_in_turn_are_both_kept() -> None:
    def step() -> list[int]:
        pair = [recycled.empty(LIKE, FLOATS), recycled.empty(LIKE, FLOATS + 1)]
        assert waiting() == 0
        return [x.data_ptr() for x in pair]

    first = step()
    assert waiting() == 2
    assert step() == first
    assert waiting() == 2


def test_small_ones_are_left_to_malloc() -> None:
    recycled.empty(LIKE, FLOATS - 1)
    assert waiting() == 0


def arguments() -> tuple[torch.Tensor, ...]:
    source = torch.Generator().manual_seed(1)
    b, length, m, d, n = 2, 160, 2, 64, 16
    u, dt, B, C = (torch.rand(b, length, m, last, generator=source).requires_grad_() for last in (d, d, n, n))
    return u, dt, -torch.arange(1.0, n + 1).expand(m, d, n).contiguous().requires_grad_(), B, C


def gradients(given: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(selective_scan(*given).square().sum(), given))


@pytest.mark.skipif(scan_native.library() is None, reason="the C++ kernels were not built")
def test_graphs_that_live_side_by_side_do_not_share_what_they_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSBENCH_SCAN", raising=False)
    monkeypatch.setattr(recycled, "LARGE", 1024)
    first, second = arguments(), tuple((2 * x).detach().requires_grad_() for x in arguments())
    expected = [gradients(given) for given in (first, second)]
    assert waiting() == 1
    outputs = [selective_scan(*given) for given in (first, second)]
    assert waiting() == 0
    for given, output, found in zip((first, second), outputs, expected, strict=True):
        for x, y in zip(torch.autograd.grad(output.square().sum(), given), found, strict=True):
            assert torch.equal(x, y)
    del outputs, output
    assert waiting() == 2


@pytest.mark.skipif(bool(memory.unavailable()), reason="no peak on this system")
def test_a_peak_counts_what_waited() -> None:
    size = 16 * FLOATS
    del_me = recycled.empty(LIKE, size).fill_(1)
    del del_me
    peak, _ = memory.peak(lambda: recycled.empty(LIKE, size).fill_(1).sum(), "cpu")
    assert peak.bytes is not None
    assert peak.bytes > 0.9 * 4 * size
