"""Bounds on the speed of a scan from the machine's peak rates, measured in turns with the scans.

CPU: two C++ loops with the threads and the instruction set of the C++ kernel (`native_bounds`). ``registers``
makes as many state updates with the kernel's own instructions, all in registers; ``memory`` reads and writes
as many bytes as arguments, output and gradients have, once, and computes nothing. GPU: one exponential per
state forward and one backward on 16 lanes per SM and clock (``exp``), 6 and 20 instructions on 128 lanes
(``issue``), and the bytes of arguments, output and gradients at the rate of a copy (``memory``).

Bounds hold for implementations that update every state and compute decays as the kernel does. A faster
implementation shows that its bound is wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from msbench.analysis.benchmarks import native_bounds
from msbench.analysis.benchmarks.problem import Size
from msbench.analysis.benchmarks.timing import Task, timed

GPU_FORWARD, GPU_BACKWARD = 6, 20
EXP_LANES, ISSUE_LANES = 16, 128
COPIED = 1 << 24
"""Numbers: 64 MiB, more than a GPU's cache."""

CALLS = 200
"""Most calls of a bound in one turn, so that at least one of them is undisturbed.

With ten calls, on two cores under other load, a bound was measured at a third of what the cores can do.
"""
WARM = 5

Passes = tuple[float, float]
"""Values for the forward and the backward pass."""


@dataclass(frozen=True)
class Rates:
    """Measured rates: state updates per second, by limiting resource, and bytes per second.

    Without rates there is no bound. `facts` are for the document, with units in the names.
    """

    updates: Mapping[str, Passes]
    bytes: Passes | None
    facts: Mapping[str, Any]

    def bounds(self, size: Size, *, backward: bool) -> dict[str, float]:
        """Return lower bounds in seconds, by limiting resource; with `backward` for both passes together."""
        found = {name: seconds((size.states,) * 2, rates, backward) for name, rates in self.updates.items()}
        if self.bytes is not None:
            moved = tuple(4.0 * (read + written) for read, written in traffic(size))
            found["memory"] = seconds((moved[0], moved[1]), self.bytes, backward)
        return found

    def bound(self, size: Size, *, backward: bool) -> tuple[str, float] | None:
        """Return the largest of the bounds; None if there is none."""
        bounds = self.bounds(size, backward=backward)
        return max(bounds.items(), key=lambda item: item[1]) if bounds else None


def seconds(work: Passes, rates: Passes, backward: bool) -> float:
    """Return the time of the forward, or of both passes one after the other."""
    return work[0] / rates[0] + (work[1] / rates[1] if backward else 0.0)


def traffic(size: Size) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the number of elements that must be read and written, forward and backward.

    Forward: arguments in, output out. Backward: arguments and the gradient of the output in, gradients out.
    """
    return (size.arguments, size.outputs), (size.arguments + size.outputs, size.arguments)


class Gauge:
    """Work that is timed in turns with the scans; `work` does some and returns its amount."""

    def __init__(self, work: Callable[[], float], device: str) -> None:
        self._work = work
        self.amount = 0.0
        self.task = Task(self._run, device, most_calls=CALLS)
        self._run()  # to warm up
        self.task.expected = min(timed(self._run, device)[0] for _ in range(WARM))

    @property
    def rate(self) -> float:
        """Return the work per second of the fastest call: interference can only lower a measured rate."""
        if self.task.error:
            raise RuntimeError(f"a bound cannot be measured: {self.task.error}")
        return self.amount / max(1e-9, min(self.task.wall))

    def _run(self) -> None:
        self.amount = self._work()


class Meter:
    """Peak rates of the machine at one size; its `tasks` must be timed before calling `rates`."""

    def __init__(self, size: Size, device: str) -> None:
        self._device = device
        self._missing = ""
        self._gauges: dict[str, Gauge] = {}
        if device == "cuda":
            self._gauges["copy"] = Gauge(_copy(device), device)
            return
        self._missing = native_bounds.missing()
        if self._missing:
            return
        for name, backward, moved in zip(("forward", "backward"), (False, True), traffic(size), strict=True):
            self._gauges[f"{name} updates"] = Gauge(native_bounds.Arithmetic(size.n, backward), device)
            self._gauges[f"{name} bytes"] = Gauge(native_bounds.Traffic(*moved), device)

    @property
    def tasks(self) -> list[Task]:
        """Return the calls to be timed."""
        return [gauge.task for gauge in self._gauges.values()]

    def rates(self) -> Rates:
        """Return the best rates measured; RuntimeError if a call failed."""
        if self._device == "cuda":
            return gpu_rates(self._gauges["copy"].rate)
        if self._missing:
            return Rates({}, None, {"source": f"no bounds: {self._missing}"})
        updates, moved = (
            (self._gauges[f"forward {unit}"].rate, self._gauges[f"backward {unit}"].rate)
            for unit in ("updates", "bytes")
        )
        return cpu_rates(updates, moved)


def cpu_rates(updates: Passes, moved: Passes) -> Rates:
    """Return rates measured on a CPU: state updates and bytes per second."""
    facts = {
        "forward_updates_per_second": updates[0],
        "backward_updates_per_second": updates[1],
        "forward_bytes_per_second": moved[0],
        "backward_bytes_per_second": moved[1],
        "source": "measured in turns with the scans: updates in registers, bytes read and written",
    }
    return Rates({"registers": updates}, moved, facts)


def gpu_rates(copied: float) -> Rates:
    """Return rates from the device's properties and the measured `copied` bytes per second."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    clocks = properties.multi_processor_count * properties.clock_rate * 1e3
    return clocked_rates(clocks, copied)


def clocked_rates(clocks: float, copied: float) -> Rates:
    """Return rates from the clocks per second of all SMs together."""
    exponentials, instructions = EXP_LANES * clocks, ISSUE_LANES * clocks
    facts = {
        "instructions_per_second": instructions,
        "exp_per_second": exponentials,
        "copy_bytes_per_second": copied,
        "source": "SMs and clock of the device; a measured copy",
    }
    issued = instructions / GPU_FORWARD, instructions / GPU_BACKWARD
    return Rates({"exp": (exponentials,) * 2, "issue": issued}, (copied,) * 2, facts)


def _copy(device: str) -> Callable[[], float]:
    source = torch.ones(COPIED, device=device)
    target = torch.empty_like(source)

    def work() -> float:
        target.copy_(source)
        return 8.0 * COPIED

    return work
