"""Timings: several a call, interleaved with those of the others, reported as median and spread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

SLOW = 5.0
"""Seconds a call from which three repeats are enough."""
UNBEARABLE = 30.0
"""Seconds of a first call, with all that it compiles, from which no second one is made to warm up."""
FEWEST = 3
SHARE = 0.3
"""Seconds that one turn takes at least, so that short calls are timed more often.

The first call after another's turn finds cold caches. With one call a turn, medians of five calls of the
CPU kernel's forward and backward were 33.0 to 38.5 ms in eight runs.
"""
MOST_CALLS = 10


@dataclass(frozen=True)
class Spread:
    """Seconds a call: median, 20th and 80th percentile of wall time, median CPU time, number of calls."""

    median: float
    p20: float
    p80: float
    cpu: float
    calls: int

    @classmethod
    def of(cls, wall: Sequence[float], cpu: Sequence[float]) -> "Spread":
        """The spread of these calls; at least one."""
        p20, median, p80 = (float(x) for x in np.quantile(wall, (0.2, 0.5, 0.8)))
        return cls(median, p20, p80, float(np.median(cpu)), len(wall))


@dataclass
class Task:
    """One call to be timed. `error` is why it was given up; `expected` what a call takes, once known."""

    call: Callable[[], object]
    device: str = "cpu"
    repeats: int | None = None
    """Fewer turns than the others have."""
    expected: float = 0.0
    error: str = ""
    most_calls: int = MOST_CALLS
    """In one turn."""
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def spread(self) -> Spread | None:
        """None where nothing was timed."""
        return Spread.of(self.wall, self.cpu) if self.wall and not self.error else None

    def turns(self, repeats: int) -> int:
        """How often its turn comes."""
        wanted = repeats if self.repeats is None else min(repeats, self.repeats)
        return min(wanted, FEWEST) if self.expected > SLOW else wanted

    def turn(self) -> None:
        """Time one call, or several where it is short."""
        calls = 1 if self.expected <= 0 else int(min(self.most_calls, max(1, SHARE / self.expected)))
        for _ in range(calls):
            wall, cpu = timed(self.call, self.device)
            self.wall.append(wall)
            self.cpu.append(cpu)


def timed(call: Callable[[], object], device: str) -> tuple[float, float]:
    """Wall and process CPU seconds of one call, its results freed before the clock stops."""
    wait(device)
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def expected(call: Callable[[], object], first: float, device: str) -> float:
    """Seconds of a second call, warm; those of the `first` where that took too long to wait once more."""
    return first if first > UNBEARABLE else timed(call, device)[0]


def wait(device: str) -> None:
    """Until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()


def interleave(tasks: Sequence[Task], repeats: int, say: Callable[[str], None] = lambda _text: None) -> None:
    """Give every task its turns, one after another, so that a drift of the machine meets all alike.

    A task that raises keeps its message in `error` and is passed over from then on.
    """
    for number in range(repeats):
        say(f"timing, round {number + 1} of {repeats}")
        for task in tasks:
            if not task.error and number < task.turns(repeats):
                task.error = failure(task.turn)


def failure(action: Callable[[], object]) -> str:
    """What an action raised, in one line; empty where it did not."""
    try:
        action()
    except Exception as error:  # one implementation's fault must not cost the others their rows
        return reason(error)
    return ""


def reason(error: Exception) -> str:
    """An exception in one line."""
    if out_of_memory(error):
        return "out of memory"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def out_of_memory(error: Exception) -> bool:
    """True for what Python, CUDA and PyTorch's CPU allocator raise."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
