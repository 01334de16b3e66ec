"""The arguments of the benchmarked scan, and its results: output and gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from msbench.ops.scan.reference import Arguments

Scan = Callable[[Arguments], Tensor]
"""A scan to be measured: from the seven arguments to z (b, l, d)."""

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
"""Names of what `results` returns, in its order."""


@dataclass(frozen=True)
class Size:
    """The sizes of one problem: examples, steps, streams, channels, states of a stream."""

    b: int = 8
    l: int = 1024  # noqa: E741 (the field's letter)
    m: int = 5
    d: int = 128
    n: int = 26

    def __str__(self) -> str:
        return f"b {self.b}, l {self.l}, m {self.m}, d {self.d}, n {self.n}"

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


def problem(size: Size, device: str) -> BenchmarkProblem:
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


def first(whole: BenchmarkProblem, size: Size) -> BenchmarkProblem:
    """Return the first examples and steps of the same problem."""
    if size == whole.size:
        return whole
    u, dt, A, B, C, skip, mix = whole.arguments
    cut = [x[: size.b, : size.l] for x in (u, dt, B, C, mix)]
    weight = whole.weight[: size.b, : size.l].contiguous()
    return BenchmarkProblem(_leaves((*cut[:2], A, *cut[2:4], skip, cut[4]), weight.device.type), weight)


def double(whole: BenchmarkProblem) -> BenchmarkProblem:
    """Return the same problem in float64."""
    leaves = tuple(x.detach().double().requires_grad_() for x in whole.arguments)
    return BenchmarkProblem(leaves, whole.weight.double())


def forward(scan: Scan, given: BenchmarkProblem) -> Tensor:
    """Compute z alone, as in evaluation."""
    with torch.no_grad():
        return scan(given.arguments)  # type: ignore[arg-type]


def results(scan: Scan, given: BenchmarkProblem) -> list[Tensor]:
    """Compute z and the gradients of all arguments, as in training."""
    output = scan(given.arguments)  # type: ignore[arg-type]
    return [output.detach(), *torch.autograd.grad(output, given.arguments, given.weight)]


def _leaves(tensors: tuple[Tensor, ...], device: str) -> tuple[Tensor, ...]:
    return tuple(x.detach().to(device).contiguous().requires_grad_() for x in tensors)
