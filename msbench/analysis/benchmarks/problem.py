"""The arguments of the benchmarked scan, its output and gradients, and their errors against float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from msbench.environment import measure_free_memory
from msbench.ops.scan.reference import Arguments, selective_scan_reference

Scan = Callable[[Arguments], Tensor]
"""A scan to be measured: from the seven arguments to z (b, l, d)."""

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
"""Names of what `run_both` returns, in its order."""

LARGEST_ERROR = 1e-4
"""Largest valid error; a row with a larger or non-finite one gets no speed-up."""
NOTED_ERROR = 1e-5
LARGEST_CHECK = 200_000_000
"""Most state updates that the float64 check computes: 10 to 20 s on one core."""
CHECK_COPIES = 5
"""Arrays of (b, l, m, d, n) float64 that the check holds."""


@dataclass(frozen=True)
class Size:
    """The sizes of one problem: examples, steps, streams, channels, states of a stream."""

    b: int = 8
    l: int = 1024  # noqa: E741 (the field's letter)
    m: int = 5
    d: int = 128
    n: int = 26

    @property
    def tokens(self) -> int:
        """Return the steps of all examples."""
        return self.b * self.l

    @property
    def states(self) -> int:
        """Return the number of state updates of one forward pass."""
        return self.tokens * self.m * self.d * self.n

    @property
    def arguments(self) -> int:
        """Return the number of elements in the seven arguments."""
        per_token = self.m * (2 * self.d + 2 * self.n + 1)
        return self.tokens * per_token + self.m * self.d * (self.n + 1)

    @property
    def outputs(self) -> int:
        """Return the number of elements in z."""
        return self.tokens * self.d

    def halved(self) -> Self:
        """Return the size with half the examples, or half the steps if there is one example."""
        return replace(self, b=self.b // 2) if self.b > 1 else replace(self, l=max(1, self.l // 2))


class BenchmarkProblem(NamedTuple):
    """Leaf tensors that require gradients, and `weight` (b, l, d), the gradient of the output."""

    arguments: tuple[Tensor, ...]
    weight: Tensor

    @property
    def size(self) -> Size:
        """Return the sizes of the arguments."""
        u, A = self.arguments[0], self.arguments[2]
        b, length, m, d = u.shape
        return Size(b, length, m, d, A.shape[2])


def make_problem(size: Size, device: str) -> BenchmarkProblem:
    """Generate the same arguments every time, as MS-SSM starts: rates 1..m n, coarsest stream slowest.

    Step sizes are log-uniform in [1e-3, 0.1], so decays range from almost none to almost all in one step; an
    error in long-range state shows in the slow ones. Drawn on the CPU: equal on every device.
    """
    source = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=source)

    b, length, m, d, n = size.b, size.l, size.m, size.d, size.n
    dt = (math.log(1e-3) + math.log(100) * torch.rand(b, length, m, d, generator=source)).exp()
    rates = torch.arange(1, m * n + 1, dtype=torch.float32).view(m, 1, n).flip(0).expand(m, d, n)
    arguments = (
        normal(b, length, m, d),
        dt,
        -rates.contiguous(),
        *(normal(b, length, m, n) for _ in "BC"),
        normal(m, d),
        normal(b, length, m),
    )
    return BenchmarkProblem(_leaves(arguments, device), normal(b, length, d).to(device))


def crop_problem(whole: BenchmarkProblem, size: Size) -> BenchmarkProblem:
    """Return the first examples and steps of the same problem."""
    if size == whole.size:
        return whole
    u, dt, A, B, C, skip, mix = whole.arguments
    cut = [x[: size.b, : size.l] for x in (u, dt, B, C, mix)]
    weight = whole.weight[: size.b, : size.l].contiguous()
    return BenchmarkProblem(_leaves((*cut[:2], A, *cut[2:4], skip, cut[4]), weight.device.type), weight)


def convert_to_double(whole: BenchmarkProblem) -> BenchmarkProblem:
    """Return the same problem in float64."""
    leaves = tuple(x.detach().double().requires_grad_() for x in whole.arguments)
    return BenchmarkProblem(leaves, whole.weight.double())


def run_forward(scan: Scan, given: BenchmarkProblem) -> Tensor:
    """Compute z alone, as in evaluation."""
    with torch.no_grad():
        return scan(given.arguments)  # type: ignore[arg-type]


def run_both(scan: Scan, given: BenchmarkProblem) -> list[Tensor]:
    """Compute z and the gradients of all arguments, as in training."""
    output = scan(given.arguments)  # type: ignore[arg-type]
    return [output.detach(), *torch.autograd.grad(output, given.arguments, given.weight)]


def _leaves(tensors: tuple[Tensor, ...], device: str) -> tuple[Tensor, ...]:
    return tuple(x.detach().to(device).contiguous().requires_grad_() for x in tensors)


@dataclass
class ScanReference:
    """Outputs and gradients in float64 by a loop over time, computed once per size from one problem."""

    whole: BenchmarkProblem
    device: str
    known: dict[Size, list[Tensor]] = field(default_factory=dict)

    def checked_size(self, size: Size) -> Size:
        """Return the size that is checked: all of `size`, or fewer examples if that takes too long."""
        free = measure_free_memory(self.device)
        while size.states > LARGEST_CHECK or 8 * CHECK_COPIES * size.states > free / 2:
            size = size.halved()
        return size

    def at(self, size: Size) -> list[Tensor]:
        """Return outputs and gradients for the first examples and steps."""
        if size not in self.known:
            problem = convert_to_double(crop_problem(self.whole, size))
            self.known[size] = run_both(lambda arguments: selective_scan_reference(*arguments), problem)
        return self.known[size]

    def errors(self, scan: Scan, size: Size, found: list[Tensor]) -> dict[str, float]:
        """Return errors by name, where `found` are the results at `size`."""
        checked = self.checked_size(size)
        if checked != size:
            found = run_both(scan, crop_problem(self.whole, checked))
        pairs = zip(NAMES, found, self.at(checked), strict=True)
        return {name: compute_error(one, truth) for name, one, truth in pairs}


def compute_error(found: Tensor, truth: Tensor) -> float:
    """Return the largest error relative to the largest true value; infinite if it is not finite."""
    if found.shape != truth.shape:
        return math.inf
    # Where all true values are zero (the gradient of A after one step), the error is absolute.
    distance = float((found.double() - truth).abs().max()) / (float(truth.abs().max()) or 1.0)
    return distance if math.isfinite(distance) else math.inf


def explain_errors(errors: dict[str, float]) -> str:
    """Return why a row is invalid; an empty string if it is valid."""
    name = max(errors, key=lambda key: errors[key])
    if errors[name] <= LARGEST_ERROR:
        return ""
    what = name if name == "output" else f"gradient of {name}"
    return f"its {what} is off by {errors[name]:.1e} (more than {LARGEST_ERROR:.0e})"
