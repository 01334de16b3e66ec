"""What the machine could do at best, from rates that are measured in the same run.

CPU: one update of 16 states takes 11 vector instructions forward (8 of them for the exponential) and 19 more
backward, on the ports that also do fused multiply-adds. So ``ports`` is the FMA rate over 11 or 30. The FMA
rate is that of a matrix product; exp2 is PyTorch's and bounds nothing, since kernels bring their own.
GPU: one exponential a state forward and one backward on 16 lanes an SM and clock (``exp``), 6 and 20
instructions on 128 lanes (``issue``). Both: arguments, output and gradients pass through memory once
(``memory``), at the rate of a copy.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from msbench.bench.problem import Size
from msbench.bench.timing import timed

FORWARD_INSTRUCTIONS, BACKWARD_INSTRUCTIONS = 11, 19
GPU_FORWARD, GPU_BACKWARD = 6, 20
EXP_LANES, ISSUE_LANES = 16, 128
MATRIX = 512
COPIED = 1 << 24
"""Numbers: 64 MiB, more than a cache."""
EXPONENTIALS = 1 << 16
BEST_OF = 12


@dataclass(frozen=True)
class Rates:
    """What the machine did: numbers a second, bytes a second; ``lanes`` are fused multiply-adds on a CPU."""

    device: str
    lanes: float
    exponentials: float
    bytes: float

    def best(self, other: Self) -> Self:
        """The larger of each: a busy moment lowers what a machine shows, nothing raises it."""
        names = ("lanes", "exponentials", "bytes")
        return replace(self, **{name: max(getattr(self, name), getattr(other, name)) for name in names})

    def bounds(self, size: Size, *, backward: bool) -> dict[str, float]:
        """Seconds that no kernel can beat, by what binds."""
        passes = 2 if backward else 1
        if self.device == "cuda":
            issued = GPU_FORWARD + (GPU_BACKWARD if backward else 0)
            compute = {
                "exp": passes * size.states / self.exponentials,
                "issue": issued * size.states / self.lanes,
            }
        else:
            issued = FORWARD_INSTRUCTIONS + (BACKWARD_INSTRUCTIONS if backward else 0)
            compute = {"ports": issued * size.states / self.lanes}
        return {**compute, "memory": traffic(size, backward=backward) / self.bytes}

    def bound(self, size: Size, *, backward: bool) -> tuple[str, float]:
        """The largest of the bounds."""
        bounds = self.bounds(size, backward=backward)
        name = max(bounds, key=lambda key: bounds[key])
        return name, bounds[name]

    def as_dict(self) -> dict[str, Any]:
        """For the document, with units in the names."""
        lanes = "instructions_per_second" if self.device == "cuda" else "fma_per_second"
        return {
            lanes: self.lanes,
            "exp_per_second": self.exponentials,
            "copy_bytes_per_second": self.bytes,
            "source": "SMs and clock of the device; a measured copy" if self.device == "cuda" else "measured",
        }


def traffic(size: Size, *, backward: bool) -> int:
    """Bytes of float32 that have to pass: arguments in, output out; backward both again, gradients out."""
    once = size.arguments + size.outputs
    return 4 * (2 * once + size.arguments if backward else once)


def measured(device: str) -> Rates:
    """The rates of this machine, with as many threads as the benchmark has."""
    source = torch.ones(COPIED, device=device)
    target = torch.empty_like(source)
    copied = 8 * COPIED / fastest(lambda: target.copy_(source), device)
    if device == "cuda":
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        clocks = properties.multi_processor_count * properties.clock_rate * 1e3
        return Rates(device, ISSUE_LANES * clocks, EXP_LANES * clocks, copied)
    a, b = torch.ones(2, MATRIX, MATRIX).unbind(0)
    product = torch.empty(MATRIX, MATRIX)
    lanes = MATRIX**3 / fastest(lambda: torch.mm(a, b, out=product), device)
    x = torch.linspace(-10, 0, EXPONENTIALS)
    y = torch.empty_like(x)
    exponentials = EXPONENTIALS / fastest(lambda: torch.exp2(x, out=y), device)
    return Rates(device, lanes, exponentials, copied)


def fastest(call: Callable[[], object], device: str) -> float:
    """Seconds of the best of `BEST_OF` calls, after one to warm up: a bound is what can be reached."""
    call()
    return max(1e-9, min(timed(call, device)[0] for _ in range(BEST_OF)))
