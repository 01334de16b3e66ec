"""The arguments of a scan that is measured, and what a scan makes of them: output and gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from msbench.ops.scan_arguments import Arguments

Scan = Callable[[Arguments], Tensor]
"""What is measured: from the seven arguments to z (b, l, d)."""

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
"""What `results` returns, in its order."""


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
        """Steps of all examples."""
        return self.b * self.l

    @property
    def states(self) -> int:
        """Updates of a state that one forward makes."""
        return self.tokens * self.m * self.d * self.n

    @property
    def arguments(self) -> int:
        """Numbers in the seven arguments."""
        per_token = self.m * (2 * self.d + 2 * self.n + 1)
        return self.tokens * per_token + self.m * self.d * (self.n + 1)

    @property
    def outputs(self) -> int:
        """Numbers in z."""
        return self.tokens * self.d

    def halved(self) -> Self:
        """Half the examples, or, where there is one, half the steps."""
        return replace(self, b=self.b // 2) if self.b > 1 else replace(self, l=max(1, self.l // 2))


class BenchmarkProblem(NamedTuple):
    """Leaves that want gradients, and `weight` (b, l, d), the gradient of the output."""

    arguments: tuple[Tensor, ...]
    weight: Tensor

    @property
    def size(self) -> Size:
        """Its sizes."""
        u, A = self.arguments[0], self.arguments[2]
        b, length, m, d = u.shape
        return Size(b, length, m, d, A.shape[2])


def problem(size: Size, device: str) -> BenchmarkProblem:
    """The same numbers every time, as MS-SSM starts: rates 1..m n, the coarsest stream slowest.

    Step sizes are log-uniform in [1e-3, 0.1], so decays run from nothing in a step to all of it; a mistake
    in what is carried over long spans shows in the slow ones. Drawn on the CPU: equal on every device.
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
    """The first examples and steps of the very same numbers."""
    if size == whole.size:
        return whole
    u, dt, A, B, C, skip, mix = whole.arguments
    cut = [x[: size.b, : size.l] for x in (u, dt, B, C, mix)]
    weight = whole.weight[: size.b, : size.l].contiguous()
    return BenchmarkProblem(_leaves((*cut[:2], A, *cut[2:4], skip, cut[4]), weight.device.type), weight)


def double(whole: BenchmarkProblem) -> BenchmarkProblem:
    """The same numbers in float64."""
    leaves = tuple(x.detach().double().requires_grad_() for x in whole.arguments)
    return BenchmarkProblem(leaves, whole.weight.double())


def forward(scan: Scan, given: BenchmarkProblem) -> Tensor:
    """z alone, as in evaluation."""
    with torch.no_grad():
        return scan(given.arguments)  # type: ignore[arg-type]


def results(scan: Scan, given: BenchmarkProblem) -> list[Tensor]:
    """z and the gradients of all arguments, as in training."""
    output = scan(given.arguments)  # type: ignore[arg-type]
    return [output.detach(), *torch.autograd.grad(output, given.arguments, given.weight)]


def _leaves(tensors: tuple[Tensor, ...], device: str) -> tuple[Tensor, ...]:
    return tuple(x.detach().to(device).contiguous().requires_grad_() for x in tensors)
