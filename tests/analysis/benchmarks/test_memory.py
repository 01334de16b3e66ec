"""The memory probe sees what is known to have been allocated."""

from pathlib import Path

import pytest
import torch

from msbench.analysis.benchmarks import memory

MIB = 2**20

needs_peak = pytest.mark.skipif(bool(memory.unavailable()), reason=memory.unavailable() or "available")


@needs_peak
def test_a_known_allocation_is_seen() -> None:
    found, kept = memory.peak(lambda: torch.ones(16 * MIB), "cpu")
    assert memory.size_of([kept]) == 64 * MIB
    assert found.bytes is not None
    assert 62 * MIB < found.bytes < 70 * MIB


@needs_peak
def test_what_was_freed_on_the_way_counts_and_earlier_peaks_do_not() -> None:
    torch.ones(64 * MIB)  # 256 MiB, gone before the call

    def call() -> torch.Tensor:
        torch.ones(16 * MIB)
        return torch.ones(2 * MIB)

    found, _ = memory.peak(call, "cpu")
    assert found.bytes is not None
    assert 62 * MIB < found.bytes < 80 * MIB
    nothing, _ = memory.peak(lambda: None, "cpu")
    assert nothing.bytes is not None
    assert nothing.bytes < 4 * MIB


@needs_peak
def test_blocks_that_malloc_held_back_are_not_reused_unseen() -> None:
    held = [torch.ones(MIB // 32) for _ in range(512)]  # 64 MiB in blocks of 128 KiB
    del held
    found, _ = memory.peak(lambda: [torch.ones(MIB // 32) for _ in range(512)], "cpu")
    assert found.bytes is not None
    assert 60 * MIB < found.bytes < 72 * MIB


def test_elsewhere_there_is_a_reason_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "unavailable", lambda: "the peak of a call is read from /proc")
    found, returned = memory.peak(lambda: pytest.fail("called in vain"), "cpu")
    assert (found.bytes, returned) == (None, None)
    assert "/proc" in found.reason


def test_why_it_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memory.unavailable.__wrapped__
    monkeypatch.setattr("sys.platform", "darwin")
    assert "only Linux" in plain()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(memory, "CLEAR", Path("/proc/self/no-such-file"))
    assert "cannot be set back" in plain()
