"""Timing: percentiles, turns, faults, no speed is asserted; the memory probe sees known allocations."""

from pathlib import Path

import pytest
import torch

from msbench.analysis.benchmarks import measurement
from msbench.analysis.benchmarks.measurement import (
    FEWEST,
    MOST_CALLS,
    SLOW,
    Spread,
    TimedCall,
    catch_error,
    count_bytes,
    describe_error,
    explain_no_peak,
    measure_peak,
    time_call,
    time_in_turns,
)

MIB = 2**20

needs_peak = pytest.mark.skipif(bool(explain_no_peak()), reason=explain_no_peak() or "available")


def test_a_spread_is_the_percentiles_of_wall_time() -> None:
    found = Spread.of([3.0, 1.0, 2.0, 5.0, 4.0, 6.0], [1.0, 2.0, 9.0])
    assert (found.median, found.p20, found.p80, found.cpu, found.calls) == (3.5, 2.0, 5.0, 2.0, 6)


def test_wall_and_cpu_time_are_of_the_call() -> None:
    calls: list[int] = []
    wall, cpu = time_call(lambda: calls.append(1), "cpu")
    assert calls == [1]
    assert wall > 0
    assert cpu >= 0


def test_turns_are_taken_one_after_another() -> None:
    seen: list[str] = []
    tasks = [TimedCall(lambda name=name: seen.append(name), expected=1.0) for name in "ab"]  # type: ignore[misc]
    time_in_turns(tasks, 3)
    assert seen == list("ababab")
    assert all(task.spread is not None and task.spread.calls == 3 for task in tasks)


def test_short_calls_are_timed_more_often_and_slow_ones_less() -> None:
    seen: list[str] = []
    short = TimedCall(lambda: seen.append("short"), expected=0.06)
    slow = TimedCall(lambda: seen.append("slow"), expected=SLOW + 1)
    few = TimedCall(lambda: seen.append("few"), repeats=2, expected=1.0)
    often = TimedCall(lambda: seen.append("often"), expected=0.01, most_calls=20)
    shortest = TimedCall(lambda: seen.append("shortest"), expected=1e-6)
    time_in_turns([short, slow, few, often, shortest], 5)
    assert seen.count("short") == 5 * 5
    assert seen.count("often") == 5 * 20
    assert seen.count("shortest") == 5 * MOST_CALLS
    assert seen.count("slow") == FEWEST
    assert seen.count("few") == 2


def test_a_fault_ends_a_task_and_no_other() -> None:
    calls = {"bad": 0, "good": 0}

    def bad() -> None:
        calls["bad"] += 1
        raise ValueError("a wrong turn\nand more")

    def good() -> None:
        calls["good"] += 1

    tasks = [TimedCall(bad, expected=1.0), TimedCall(good, expected=1.0)]
    time_in_turns(tasks, 3)
    assert tasks[0].error == "ValueError: a wrong turn"
    assert tasks[0].spread is None
    assert tasks[1].spread is not None
    assert calls == {"bad": 1, "good": 3}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "out of memory"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
            "out of memory",
        ),
        (RuntimeError(""), "RuntimeError"),
        (OSError("no such file"), "OSError: no such file"),
    ],
)
def test_reasons_are_one_line(error: Exception, words: str) -> None:
    assert describe_error(error) == words


def test_a_lack_of_memory_is_recognised() -> None:
    assert catch_error(lambda: torch.empty(2**46)) == "out of memory"


def test_an_interruption_is_no_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catch_error(interrupt)


@needs_peak
def test_a_known_allocation_is_seen() -> None:
    found, kept = measure_peak(lambda: torch.ones(16 * MIB), "cpu")
    assert count_bytes([kept]) == 64 * MIB
    assert found.bytes is not None
    assert 62 * MIB < found.bytes < 70 * MIB


@needs_peak
def test_what_was_freed_on_the_way_counts_and_earlier_peaks_do_not() -> None:
    torch.ones(64 * MIB)  # 256 MiB, gone before the call

    def call() -> torch.Tensor:
        torch.ones(16 * MIB)
        return torch.ones(2 * MIB)

    found, _ = measure_peak(call, "cpu")
    assert found.bytes is not None
    assert 62 * MIB < found.bytes < 80 * MIB
    nothing, _ = measure_peak(lambda: None, "cpu")
    assert nothing.bytes is not None
    assert nothing.bytes < 4 * MIB


@needs_peak
def test_blocks_that_malloc_held_back_are_not_reused_unseen() -> None:
    peaks = []
    for _ in range(3):
        held = [torch.ones(MIB // 32) for _ in range(512)]  # 64 MiB in blocks of 128 KiB
        del held
        found, _ = measure_peak(lambda: [torch.ones(MIB // 32) for _ in range(512)], "cpu")
        assert found.bytes is not None
        peaks.append(found.bytes)
    # Where memory is short, other pages of the process may leave it meanwhile, which lowers a peak.
    assert 60 * MIB < max(peaks) < 72 * MIB


def test_elsewhere_there_is_a_reason_and_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurement, "explain_no_peak", lambda: "the peak of a call is read from /proc")
    found, returned = measure_peak(lambda: pytest.fail("called in vain"), "cpu")
    assert (found.bytes, returned) == (None, None)
    assert "/proc" in found.reason


def test_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = explain_no_peak.__wrapped__
    monkeypatch.setattr("sys.platform", "darwin")
    assert "only Linux" in plain()
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(measurement, "CLEAR", Path("/proc/self/no-such-file"))
    assert "cannot be reset" in plain()
