"""Problems for scans, and what is compared: the output and every gradient."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

NAMES = ("u", "dt", "A", "B", "C", "skip", "mix")


def arguments(
    b: int = 2,
    length: int = 7,
    m: int = 3,
    d: int = 4,
    n: int = 5,
    dtype: torch.dtype = torch.float64,
    largest_dt: float = 0.5,
) -> list[Tensor]:
    """u, dt, A, B, C, skip, mix, always the same; rates are up to n."""
    generator = torch.Generator().manual_seed(b + length + m + d + n)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=dtype)

    dt = torch.rand((b, length, m, d), generator=generator, dtype=dtype) * largest_dt + 1e-3 * largest_dt
    decay = -torch.rand((m, d, n), generator=generator, dtype=dtype) * n - 1e-2
    shapes = [(b, length, m, n), (b, length, m, n), (m, d), (b, length, m)]
    return [normal(b, length, m, d), dt, decay, *(normal(*shape) for shape in shapes)]


def gradients(
    function: Any, values: Sequence[Tensor], weight: Tensor | None = None, **options: Any
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The output, and the gradients of its weighed sum."""
    leaves = [value.detach().clone().requires_grad_() for value in values]
    out = function(*leaves, **options)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out) if weight is None else weight
    return out.detach(), torch.autograd.grad((out * weight.to(out.dtype)).sum(), leaves)


def assert_close(
    found: tuple[Tensor, Sequence[Tensor]], truth: tuple[Tensor, Sequence[Tensor]], tolerance: float
) -> None:
    """All finite, and within `tolerance` of the largest value of an output or gradient."""
    pairs = zip(("output", *NAMES), (found[0], *found[1]), (truth[0], *truth[1]), strict=False)
    for name, one, other in pairs:
        error = float((one.double() - other).abs().max()) / (float(other.abs().max()) + 1e-300)
        assert error <= tolerance, f"{name} is off by {error:.1e}"
