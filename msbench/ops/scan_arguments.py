"""The arguments of a scan: their shapes and their precision."""

from collections.abc import Callable, Iterable
from typing import Literal

import torch
from torch import Tensor

Discretisation = Literal["euler", "raw"]

Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""u, dt, A, B, C, skip, mix, as `msbench.ops.scan.selective_scan` takes them."""


def check_shapes(arguments: Arguments) -> None:
    """Raise ValueError, naming the argument, if shapes do not match or a size is 0."""
    u, dt, A, B, C, skip, mix = arguments
    if u.ndim != 4 or A.ndim != 3 or 0 in u.shape or 0 in A.shape:
        raise ValueError(
            f"u must be (b, l, m, d) and A (m, d, n), none empty; got {tuple(u.shape)} and {tuple(A.shape)}"
        )
    (b, length, m, d), n = u.shape, A.shape[2]
    expected = {
        "dt": (dt, (b, length, m, d)),
        "A": (A, (m, d, n)),
        "B": (B, (b, length, m, n)),
        "C": (C, (b, length, m, n)),
        "skip": (skip, (m, d)),
        "mix": (mix, (b, length, m)),
    }
    for name, (value, shape) in expected.items():
        if value is not None and value.shape != shape:
            raise ValueError(f"{name} must be {shape} beside u {tuple(u.shape)}; got {tuple(value.shape)}")


def promote(arguments: Arguments) -> Arguments:
    """Return all arguments in float64 if one is, else in float32: states in half precision drift."""
    dtype = working_dtype(arguments)
    return _each(arguments, lambda x: x.to(dtype))


def working_dtype(tensors: Iterable[Tensor | None]) -> torch.dtype:
    """Return float64 if one of the tensors is, else float32."""
    double = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if double else torch.float32


def contiguous(arguments: Arguments) -> Arguments:
    """Return all arguments contiguous, which slices (of vmap or a user) are not."""
    return _each(arguments, lambda x: x.contiguous())


def empty_like(arguments: Arguments) -> Arguments:
    """Return uninitialised tensors of the same shapes, for example to write gradients into."""
    return _each(arguments, lambda x: torch.empty_like(x))


def _each(arguments: Arguments, change: Callable[[Tensor], Tensor]) -> Arguments:
    u, dt, A, B, C, skip, mix = arguments
    return (
        *(change(u), change(dt), change(A), change(B), change(C)),
        None if skip is None else change(skip),
        None if mix is None else change(mix),
    )
