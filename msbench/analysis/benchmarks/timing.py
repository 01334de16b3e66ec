"""Timings: several per call, interleaved with those of the others, reported as median and spread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from msbench.training.memory import is_out_of_memory

SLOW = 5.0
"""Seconds per call above which three repeats are enough."""
UNBEARABLE = 30.0
"""Seconds of a first call, with compilation, above which no second call is made to warm up."""
FEWEST = 3
SHARE = 0.3
"""Minimum seconds of one turn, so that short calls are timed more often.

The first call after another's turn finds cold caches. With one call per turn, medians of five calls of the
CPU kernel's forward and backward were 33.0 to 38.5 ms in eight runs.
"""
MOST_CALLS = 10


@dataclass(frozen=True)
class Spread:
    """Seconds per call: median, 20th and 80th percentile of wall time, median CPU time, number of calls."""

    median: float
    p20: float
    p80: float
    cpu: float
    calls: int

    @classmethod
    def of(cls, wall: Sequence[float], cpu: Sequence[float]) -> "Spread":
        """Return the spread of these calls; at least one is needed."""
        p20, median, p80 = (float(x) for x in np.quantile(wall, (0.2, 0.5, 0.8)))
        return cls(median, p20, p80, float(np.median(cpu)), len(wall))


@dataclass
class Task:
    """One call to be timed: `error` is set once it has failed; `expected` is its time, once known."""

    call: Callable[[], object]
    device: str = "cpu"
    repeats: int | None = None
    """Fewer turns than the other tasks."""
    expected: float = 0.0
    error: str = ""
    most_calls: int = MOST_CALLS
    """Most calls in one turn."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def spread(self) -> Spread | None:
        """Return the spread; None if nothing was timed."""
        return Spread.of(self.wall, self.cpu) if self.wall and not self.error else None

    def turns(self, repeats: int) -> int:
        """Return the number of its turns."""
        wanted = repeats if self.repeats is None else min(repeats, self.repeats)
        return min(wanted, FEWEST) if self.expected > SLOW else wanted

    def turn(self) -> None:
        """Time one call, or several if it is short."""
        calls = 1 if self.expected <= 0 else int(min(self.most_calls, max(1, SHARE / self.expected)))
        for _ in range(calls):
            wall, cpu = timed(self.call, self.device)
            self.wall.append(wall)
            self.cpu.append(cpu)


def timed(call: Callable[[], object], device: str) -> tuple[float, float]:
    """Return wall and process CPU seconds of one call, its results freed before the clock stops."""
    wait(device)
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def expected(call: Callable[[], object], first: float, device: str) -> float:
    """Return the seconds of a second, warm call; those of the `first` if that took too long to repeat."""
    return first if first > UNBEARABLE else timed(call, device)[0]


def wait(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def interleave(tasks: Sequence[Task], repeats: int, say: Callable[[str], None] = lambda _text: None) -> None:
    """Give every task its turns, one after another, so that a drift of the machine affects all alike.

    A task that raises keeps its message in `error` and is skipped from then on.
    """
    for number in range(repeats):
        say(f"timing, round {number + 1} of {repeats}")
        for task in tasks:
            if not task.error and number < task.turns(repeats):
                task.error = failure(task.turn)


def failure(action: Callable[[], object]) -> str:
    """Return the exception that an action raised, in one line; empty if it raised none."""
    try:
        action()
    except Exception as error:  # a failure of one implementation must not cost the others their rows
        return reason(error)
    return ""


def reason(error: Exception) -> str:
    """Return an exception in one line."""
    if is_out_of_memory(error):
        return "out of memory"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
