"""Measurements of a call: its time, in turns with the others, and its peak memory.

On Linux the kernel tracks the peak resident memory of a process: the mark is reset, the call is made, the
mark is read. Reuse of pages that earlier calls left behind would go unseen, so recycled buffers are released,
and from the first measurement on, blocks of 64 KiB and more are mapped one by one. That slows allocations
down: measure times first.
"""

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from msbench.ops import native_library
from msbench.training.memory import is_out_of_memory

Report = Callable[[str], None]
"""Callback for progress, one line at a time."""

SLOW = 5.0
"""Seconds per call above which three repeats are enough."""
UNBEARABLE = 30.0
"""Seconds of a first call, with compilation, above which no second call is made to warm up."""
FEWEST = 3
"""Fewest repeats that have a spread."""
SHARE = 0.3
"""Minimum seconds of one turn, so that short calls are timed more often.

The first call after another's turn finds cold caches. With one call per turn, medians of five calls of the
CPU kernel's forward and backward were 33.0 to 38.5 ms in eight runs.
"""
MOST_CALLS = 10

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
M_MMAP_THRESHOLD = -3
MAPPED_FROM = 1 << 16
"""Bytes; smaller blocks come from malloc's arenas, which may keep a few MB of them."""


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
class TimedCall:
    """One call to be timed: `error` is set once it has failed; `expected` is its time, once known."""

    call: Callable[[], object]
    device: str = "cpu"
    repeats: int | None = None
    """Fewer turns than the other calls."""
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
            wall, cpu = time_call(self.call, self.device)
            self.wall.append(wall)
            self.cpu.append(cpu)


def time_call(call: Callable[[], object], device: str) -> tuple[float, float]:
    """Return wall and process CPU seconds of one call, its results freed before the clock stops."""
    synchronize(device)
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu


def estimate_seconds(call: Callable[[], object], first: float, device: str) -> float:
    """Return the seconds of a second, warm call; those of the `first` if that took too long to repeat."""
    return first if first > UNBEARABLE else time_call(call, device)[0]


def synchronize(device: str) -> None:
    """Wait until the device has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


@dataclass(frozen=True)
class MemoryPeak:
    """Bytes above those held before the call; None, with the reason, if unknown."""

    bytes: int | None
    reason: str = ""


UNKNOWN = MemoryPeak(None, "not measured")


@dataclass(kw_only=True)
class BenchmarkEntry:
    """A row of a benchmark while it is measured."""

    name: str
    status: str = "measured"
    """``measured``, ``invalid`` (wrong numbers), ``skipped`` (it could not start) or ``failed``."""
    reason: str = ""
    label: str = ""
    calls: dict[str, TimedCall] = field(default_factory=dict)
    first_call: float = 0.0
    peak: MemoryPeak = UNKNOWN

    @property
    def is_measured(self) -> bool:
        """Return False once it was skipped, has failed or was found invalid."""
        return self.status == "measured"

    def attempt(self, action: Callable[[], object]) -> None:
        """Call `action` unless this entry was stopped before; an exception affects this entry only."""
        if self.is_measured and (fault := catch_error(action)):
            self.stop("failed", fault)

    def stop(self, status: str, reason: str) -> None:
        """Stop measuring this entry, with status and reason."""
        self.status, self.reason, self.calls = status, reason, {}

    def describe(self) -> dict[str, Any]:
        """Return what the rows of all benchmarks have, as plain values."""
        reason = "note" if self.is_measured else "reason"
        return {"name": self.name, "status": self.status, "label": self.label, reason: self.reason}


def time_entries(
    entries: Sequence[BenchmarkEntry], repeats: int, report: Report, extra: Iterable[TimedCall] = ()
) -> None:
    """Time the calls of all measured entries in turns, with `extra` ones; an entry stops if a call failed."""
    calls = [call for entry in entries if entry.is_measured for call in entry.calls.values()]
    time_in_turns([*extra, *calls], repeats, report)
    for entry in entries:
        if fault := next((call.error for call in entry.calls.values() if call.error), ""):
            entry.stop("failed", fault)


def time_in_turns(calls: Sequence[TimedCall], repeats: int, report: Report = lambda _text: None) -> None:
    """Give every call its turns, one after another, so that a drift of the machine affects all alike.

    A call that raises keeps its message in `error` and is skipped from then on.
    """
    for number in range(repeats):
        report(f"timing, round {number + 1} of {repeats}")
        for call in calls:
            if not call.error and number < call.turns(repeats):
                call.error = catch_error(call.turn)


def catch_error(action: Callable[[], object]) -> str:
    """Return the exception that an action raised, in one line; empty if it raised none."""
    try:
        action()
    except Exception as error:  # a failure of one implementation must not cost the others their rows
        return describe_error(error)
    return ""


def describe_error(error: Exception) -> str:
    """Return an exception in one line."""
    if is_out_of_memory(error):
        return "out of memory"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def measure_peak(call: Callable[[], Any], device: str) -> tuple[MemoryPeak, Any]:
    """Return the peak of one call, and its result, whose memory is included."""
    gc.collect()
    if device == "cuda":
        return _measure_cuda_peak(call)
    fault = explain_no_peak()
    if fault:
        return MemoryPeak(None, fault), None
    _trim()
    CLEAR.write_text("5", encoding="ascii")
    before = _high_water()
    returned = call()
    return MemoryPeak(max(0, _high_water() - before)), returned


def count_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


@cache
def explain_no_peak() -> str:
    """Return why the peak is unavailable on this system; an empty string if it is available."""
    if not sys.platform.startswith("linux"):
        return "the peak of a call is read from /proc, which only Linux has"
    try:
        CLEAR.write_text("5", encoding="ascii")
        _high_water()
    except (OSError, ValueError) as error:
        return f"the high-water mark of memory cannot be reset here: {error}"
    return "" if _glibc() is not None else "the peak of a call is measured with glibc only"


def _measure_cuda_peak(call: Callable[[], Any]) -> tuple[MemoryPeak, Any]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = call()
    torch.cuda.synchronize()
    return MemoryPeak(torch.cuda.max_memory_allocated() - before), returned


def _high_water() -> int:
    lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _trim() -> None:
    libc = _glibc()
    assert libc is not None
    native_library.release_unused_blocks()
    libc.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
    libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library with the two functions that only glibc has, or None."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        libc.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return libc
