"""Bounds on the speed of a scan from the machine's peak rates, measured in turns with the scans.

CPU: two C++ loops (``native/bounds.cpp``) with the threads and the instruction set of the C++ kernel, which
check their results. ``registers`` makes as many state updates with the kernel's own instructions, all in
registers; ``memory`` reads and writes as many bytes as arguments, output and gradients have, once, and
computes nothing. GPU: one exponential per state forward and one backward on 16 lanes per SM and clock
(``exp``), 6 and 20 instructions on 128 lanes (``issue``), and the bytes of arguments, output and gradients at
the rate of a copy (``memory``).

Bounds hold for implementations that update every state and compute decays as the kernel does. A faster
implementation shows that its bound is wrong.
"""

import ctypes
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from msbench.analysis.benchmarks.measurement import TimedCall, time_call
from msbench.analysis.benchmarks.problem import Size
from msbench.errors import ConfigError
from msbench.ops import native_library

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

FUNCTIONS = ("msbench_bound_arithmetic", "msbench_bound_traffic")
PASSES = 1 << 17
"""Passes of the loop per thread and call: 1 to 3 ms, short enough for some calls to be undisturbed."""
SETTLED = 64
"""Passes after which the loop's values change by no more than float32 rounding."""
MOST_READ = 1 << 26
"""Numbers: 256 MiB. Of a larger problem only a part is read and written, since no cache holds it anyway."""
RESULTS = 3
TOLERANCE = 1e-5
FILLED = np.frombuffer(b"\1\1\1\1", np.float32)[0]
"""The value of an array element that was written."""

# The members of ``Arithmetic`` in bound_kernels.inl.
DT, RATE, LAST = 0.5, -1.5, 0.75
TERMS = (-0.25, 0.125, -0.0625, 0.03125)
FROM_ONE = 16


@dataclass(frozen=True)
class PeakRates:
    """Measured rates: state updates per second, by limiting resource, and bytes per second.

    Without rates there is no bound. `facts` are for the document, with units in the names.
    """

    updates: Mapping[str, Passes]
    bytes: Passes | None
    facts: Mapping[str, Any]

    def bounds(self, size: Size, *, backward: bool) -> dict[str, float]:
        """Return lower bounds in seconds, by limiting resource; with `backward` for both passes together."""
        work = (size.states,) * 2
        found = {name: compute_seconds(work, rates, backward) for name, rates in self.updates.items()}
        if self.bytes is not None:
            moved = tuple(4.0 * (read + written) for read, written in count_traffic(size))
            found["memory"] = compute_seconds((moved[0], moved[1]), self.bytes, backward)
        return found

    def bound(self, size: Size, *, backward: bool) -> tuple[str, float] | None:
        """Return the largest of the bounds; None if there is none."""
        bounds = self.bounds(size, backward=backward)
        return max(bounds.items(), key=lambda item: item[1]) if bounds else None


def compute_seconds(work: Passes, rates: Passes, backward: bool) -> float:
    """Return the time of the forward, or of both passes one after the other."""
    return work[0] / rates[0] + (work[1] / rates[1] if backward else 0.0)


def count_traffic(size: Size) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the number of elements that must be read and written, forward and backward.

    Forward: arguments in, output out. Backward: arguments and the gradient of the output in, gradients out.
    """
    return (size.arguments, size.outputs), (size.arguments + size.outputs, size.arguments)


class RateGauge:
    """Work that is timed in turns with the scans; `work` does some and returns its amount."""

    def __init__(self, work: Callable[[], float], device: str) -> None:
        self._work = work
        self.amount = 0.0
        self.call = TimedCall(self._run, device, most_calls=CALLS)
        self._run()  # to warm up
        self.call.expected = min(time_call(self._run, device)[0] for _ in range(WARM))

    @property
    def rate(self) -> float:
        """Return the work per second of the fastest call: interference can only lower a measured rate."""
        if self.call.error:
            raise RuntimeError(f"a bound cannot be measured: {self.call.error}")
        return self.amount / max(1e-9, min(self.call.wall))

    def _run(self) -> None:
        self.amount = self._work()


class RateMeter:
    """Peak rates of the machine at one size; its `calls` must be timed before calling `rates`."""

    def __init__(self, size: Size, device: str) -> None:
        self._device = device
        self._missing = ""
        self._gauges: dict[str, RateGauge] = {}
        if device == "cuda":
            self._gauges["copy"] = RateGauge(_make_copy(device), device)
            return
        self._missing = explain_no_bounds()
        if self._missing:
            return
        for name, moved in zip(("forward", "backward"), count_traffic(size), strict=True):
            self._gauges[f"{name} updates"] = RateGauge(ArithmeticLoop(size.n, name == "backward"), device)
            self._gauges[f"{name} bytes"] = RateGauge(TrafficLoop(*moved), device)

    @property
    def calls(self) -> list[TimedCall]:
        """Return the calls to be timed."""
        return [gauge.call for gauge in self._gauges.values()]

    def rates(self) -> PeakRates:
        """Return the best rates measured; RuntimeError if a call failed."""
        found = {name: gauge.rate for name, gauge in self._gauges.items()}
        if self._device == "cuda":
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            clocks = properties.multi_processor_count * properties.clock_rate * 1e3
            return make_gpu_rates(clocks, found["copy"])
        if self._missing:
            return PeakRates({}, None, {"source": f"no bounds: {self._missing}"})
        return make_cpu_rates(
            (found["forward updates"], found["backward updates"]),
            (found["forward bytes"], found["backward bytes"]),
        )


def make_cpu_rates(updates: Passes, moved: Passes) -> PeakRates:
    """Return rates measured on a CPU: state updates and bytes per second."""
    facts = {
        "forward_updates_per_second": updates[0],
        "backward_updates_per_second": updates[1],
        "forward_bytes_per_second": moved[0],
        "backward_bytes_per_second": moved[1],
        "source": "measured in turns with the scans: updates in registers, bytes read and written",
    }
    return PeakRates({"registers": updates}, moved, facts)


def make_gpu_rates(clocks: float, copied: float) -> PeakRates:
    """Return rates from the clocks per second of all SMs together, and the copied bytes per second."""
    exponentials, instructions = EXP_LANES * clocks, ISSUE_LANES * clocks
    facts = {
        "instructions_per_second": instructions,
        "exp_per_second": exponentials,
        "copy_bytes_per_second": copied,
        "source": "SMs and clock of the device; a measured copy",
    }
    issued = instructions / GPU_FORWARD, instructions / GPU_BACKWARD
    return PeakRates({"exp": (exponentials,) * 2, "issue": issued}, (copied,) * 2, facts)


def _make_copy(device: str) -> Callable[[], float]:
    source = torch.ones(COPIED, device=device)
    target = torch.empty_like(source)

    def work() -> float:
        target.copy_(source)
        return 8.0 * COPIED

    return work


class ArithmeticProblem(ctypes.Structure):
    """The struct ``ArithmeticProblem`` of ``native/bounds.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("n", "rounds")),
        *((name, ctypes.c_int32) for name in ("backward", "threads", "instructions")),
    )


class TrafficProblem(ctypes.Structure):
    """The struct ``TrafficProblem`` of ``native/bounds.h``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("source", "target")),
        *((name, ctypes.c_int64) for name in ("read", "written")),
        *((name, ctypes.c_int32) for name in ("threads", "instructions")),
    )


@dataclass(frozen=True)
class ArithmeticLoop:
    """State updates in registers, with the instructions of the kernel's forward or backward.

    `n`, the states of a channel, determines how many of the decays need an exponential.
    """

    n: int
    backward: bool

    def __call__(self) -> float:
        """Run the loop and return the number of updates; RuntimeError if the result is wrong."""
        threads = torch.get_num_threads()
        found = np.zeros((threads, RESULTS), np.float32)
        made = ctypes.c_int64()
        rounds = math.ceil(max(SETTLED, PASSES) / self.n)
        problem = ArithmeticProblem(self.n, rounds, self.backward, threads, native_library.instructions)
        _call_native(FUNCTIONS[0], problem, ctypes.c_void_p(found.ctypes.data), ctypes.byref(made))
        if not np.allclose(found, self.expected_results(), rtol=TOLERANCE, atol=TOLERANCE):
            raise RuntimeError(f"the loop of the registers bound computed {found.tolist()}")
        return made.value

    def expected_results(self) -> tuple[float, float, float]:
        """Return the output, and the gradients of input and rate, after the last update."""
        near = LAST * (1 + sum(term * DT**power for power, term in enumerate(TERMS, start=1)))
        h = carry = output = for_input = for_rate = 0.0
        for i in range(-(-SETTLED // self.n) * self.n):
            decay = near if i % self.n % FROM_ONE else 2 ** (DT * RATE)
            before, h = h, decay * h + 1
            output, for_input = 1 + h, 2 + carry
            carry = (1 + carry) * decay
            for_rate = 1 + carry * before * RATE
        return (0.0, for_input, for_rate) if self.backward else (output, 0.0, 0.0)


class TrafficLoop:
    """Arrays that are read and written once, with no computation but a sum."""

    def __init__(self, read: int, written: int) -> None:
        """Allocate arrays of these sizes in float32 numbers."""
        part = min(1.0, MOST_READ / read)
        self.source = torch.ones(math.ceil(read * part))
        self.target = torch.zeros(math.ceil(written * part))

    def __call__(self) -> float:
        """Read and write, and return the number of bytes; RuntimeError if not all of them were processed."""
        total = ctypes.c_double()
        addresses = self.source.data_ptr(), self.target.data_ptr()
        sizes = self.source.numel(), self.target.numel()
        problem = TrafficProblem(*addresses, *sizes, torch.get_num_threads(), native_library.instructions)
        _call_native(FUNCTIONS[1], problem, ctypes.byref(total))
        if total.value != sizes[0] or float(self.target[-1]) != FILLED:
            raise RuntimeError(f"the loop of the memory bound read {total.value:.0f} of {sizes[0]} numbers")
        return 4.0 * sum(sizes)


def explain_no_bounds() -> str:
    """Return why there are no bounds; ConfigError if the library is too old for them."""
    library = native_library.load_library()
    if library is None:
        return "the C++ kernels are not installed"
    if not all(hasattr(library, name) for name in FUNCTIONS):
        raise ConfigError(f"{library._name} was built from an older msbench: install it again")
    return ""


def _call_native(name: str, problem: ctypes.Structure, *arguments: object) -> None:
    library = native_library.load_library()
    assert library is not None, "`explain_no_bounds` has found it"
    if getattr(library, name)(ctypes.byref(problem), *arguments) != 0:
        raise MemoryError("not enough memory to measure the bounds")
