"""Lower bounds on the time of a scan on a CPU, measured by C++ loops (``native/bounds.cpp``).

They run with the threads and the instruction set of the C++ kernel, and check their results.
"""

import ctypes
import math
from dataclasses import dataclass

import numpy as np
import torch

from msbench.errors import ConfigError
from msbench.ops import native_library

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
class Arithmetic:
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
        _call(FUNCTIONS[0], problem, ctypes.c_void_p(found.ctypes.data), ctypes.byref(made))
        if not np.allclose(found, self.expected(), rtol=TOLERANCE, atol=TOLERANCE):
            raise RuntimeError(f"the loop of the registers bound computed {found.tolist()}")
        return made.value

    def expected(self) -> tuple[float, float, float]:
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


class Traffic:
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
        _call(FUNCTIONS[1], problem, ctypes.byref(total))
        if total.value != sizes[0] or float(self.target[-1]) != FILLED:
            raise RuntimeError(f"the loop of the memory bound read {total.value:.0f} of {sizes[0]} numbers")
        return 4.0 * sum(sizes)


def missing() -> str:
    """Return why there are no bounds; ConfigError if the library is too old for them."""
    library = native_library.load_library()
    if library is None:
        return "the C++ kernels are not there"
    if not all(hasattr(library, name) for name in FUNCTIONS):
        raise ConfigError(f"{library._name} was built from an older msbench: install it again")
    return ""


def _call(name: str, problem: ctypes.Structure, *arguments: object) -> None:
    library = native_library.load_library()
    assert library is not None, "`missing` has said that it is there"
    if getattr(library, name)(ctypes.byref(problem), *arguments) != 0:
        raise MemoryError("not enough memory to measure the bounds")
