"""Timing: percentiles, turns, faults. No speed is asserted."""

import pytest
import torch

from msbench.analysis.benchmarks.timing import (
    FEWEST,
    MOST_CALLS,
    SLOW,
    Spread,
    Task,
    failure,
    interleave,
    reason,
    timed,
)


def test_a_spread_is_the_percentiles_of_wall_time() -> None:
    found = Spread.of([3.0, 1.0, 2.0, 5.0, 4.0, 6.0], [1.0, 2.0, 9.0])
    assert (found.median, found.p20, found.p80, found.cpu, found.calls) == (3.5, 2.0, 5.0, 2.0, 6)


def test_wall_and_cpu_time_are_of_the_call() -> None:
    calls: list[int] = []
    wall, cpu = timed(lambda: calls.append(1), "cpu")
    assert calls == [1]
    assert wall > 0
    assert cpu >= 0


def test_turns_are_taken_one_after_another() -> None:
    seen: list[str] = []
    tasks = [Task(lambda name=name: seen.append(name), expected=1.0) for name in "ab"]  # type: ignore[misc]
    interleave(tasks, 3)
    assert seen == list("ababab")
    assert all(task.spread is not None and task.spread.calls == 3 for task in tasks)


def test_short_calls_are_timed_more_often_and_slow_ones_less() -> None:
    seen: list[str] = []
    short = Task(lambda: seen.append("short"), expected=0.06)
    slow = Task(lambda: seen.append("slow"), expected=SLOW + 1)
    few = Task(lambda: seen.append("few"), repeats=2, expected=1.0)
    often = Task(lambda: seen.append("often"), expected=0.01, most_calls=20)
    shortest = Task(lambda: seen.append("shortest"), expected=1e-6)
    interleave([short, slow, few, often, shortest], 5)
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

    tasks = [Task(bad, expected=1.0), Task(good, expected=1.0)]
    interleave(tasks, 3)
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
    assert reason(error) == words


def test_what_pytorch_says_without_memory_is_told_from_other_faults() -> None:
    assert failure(lambda: torch.empty(2**46)) == "out of memory"


def test_an_interruption_is_no_fault() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failure(interrupt)
