"""The arguments of the selective scan, and the scan as a loop over time: the reference of all kernels."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

Discretisation = Literal["euler", "raw"]

Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""u, dt, A, B, C, skip, mix, as `msbench.ops.scan.dispatch.selective_scan` takes them; or their gradients."""


def selective_scan_reference(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None = None,
    mix: Tensor | None = None,
    *,
    discretisation: Discretisation = "euler",
) -> Tensor:
    """Compute `selective_scan` as a loop over time: slow, simple, differentiable any number of times."""
    check_scan_shapes((u, dt, A, B, C, skip, mix))
    h = torch.zeros_like(A)
    outputs = []
    for u_t, dt_t, B_t, C_t in zip(u.unbind(1), dt.unbind(1), B.unbind(1), C.unbind(1), strict=True):
        v_t = dt_t * u_t if discretisation == "euler" else u_t
        h = torch.exp(dt_t.unsqueeze(-1) * A) * h + B_t.unsqueeze(-2) * v_t.unsqueeze(-1)
        outputs.append((h * C_t.unsqueeze(-2)).sum(-1))
    y = torch.stack(outputs, dim=1)
    if skip is not None:
        y = y + skip * u
    return y if mix is None else (y * mix.unsqueeze(-1)).sum(2)


def step_sizes(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute low-rank step sizes: softplus(weight low + bias), with a weight and a bias per stream.

    Maps low (b, l, m, r), weight (m, d, r) and bias (m, d) to positive (b, l, m, d); all of one dtype.
    """
    check_step_shapes(low, weight, bias)
    b, length, streams, _ = low.shape
    by_stream = low.flatten(0, 1).transpose(0, 1)
    dt = torch.baddbmm(bias.unsqueeze(1), by_stream, weight.mT)
    return functional.softplus(dt).view(streams, b, length, bias.shape[1]).permute(1, 2, 0, 3)


def sum_streams(y: Tensor, mix: Tensor) -> Tensor:
    """Sum the streams of y (b, l, m, d), weighted by `mix` (b, l, m), or (m, d) for all steps."""
    equation = "blm,blmd->bld" if mix.ndim == 3 else "md,blmd->bld"
    return torch.einsum(equation, mix.to(y.dtype), y)


def check_scan_shapes(arguments: Arguments) -> None:
    """Raise ValueError, naming the argument, if shapes do not match or a size is 0."""
    u, dt, A, B, C, skip, mix = arguments
    if u.ndim != 4 or A.ndim != 3 or 0 in u.shape or 0 in A.shape:
        raise ValueError(
            f"u must be (b, l, m, d) and A (m, d, n), none empty; got {tuple(u.shape)} and {tuple(A.shape)}"
        )
    (b, length, m, d), n = u.shape, A.shape[2]
    sizes = {
        "dt": (dt, (b, length, m, d)),
        "A": (A, (m, d, n)),
        "B": (B, (b, length, m, n)),
        "C": (C, (b, length, m, n)),
        "skip": (skip, (m, d)),
        "mix": (mix, (b, length, m)),
    }
    check_sizes(u, sizes)


def check_sizes(u: Tensor, sizes: Mapping[str, tuple[Tensor | None, tuple[int, ...]]]) -> None:
    """Raise ValueError, naming the argument, if one has another shape than the expected one next to it."""
    for name, (value, shape) in sizes.items():
        if value is not None and value.shape != shape:
            raise ValueError(
                f"{name} must be {shape} for u of shape {tuple(u.shape)}; got {tuple(value.shape)}"
            )


def check_step_shapes(low: Tensor, weight: Tensor, bias: Tensor) -> None:
    """Raise ValueError if shapes do not match."""
    right = low.ndim == 4 and bias.ndim == 2 and bias.shape[0] == low.shape[2]
    if not right or weight.shape != (*bias.shape, low.shape[3]):
        raise ValueError(
            "low must be (b, l, m, r), weight (m, d, r) and bias (m, d); got"
            f" {tuple(low.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )


def working_dtype(tensors: Iterable[Tensor | None]) -> torch.dtype:
    """Return float64 if one of the tensors is, else float32."""
    double = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if double else torch.float32


def promote(tensors: Iterable[Tensor | None]) -> Any:
    """Return all tensors in float64 if one is, else in float32: states in half precision drift."""
    tensors = tuple(tensors)
    dtype = working_dtype(tensors)
    return apply_each(lambda x: x.to(dtype), tensors)


def make_contiguous(tensors: Iterable[Tensor | None]) -> Any:
    """Return all tensors contiguous, which slices (of vmap or a user) are not."""
    return apply_each(Tensor.contiguous, tensors)


def space_rows(x: Tensor) -> Tensor:
    """Return x (b, l, m, ..) with one stride between rows, like a slice of a projection's last dimension."""
    length, m = x.shape[1:3]
    step = x.stride(2)
    if x.stride() == (length * m * step, m * step, step, 1)[: x.ndim]:
        return x
    # Not contiguous(): it does not change the stride of an axis of size 1.
    return x.clone(memory_format=torch.contiguous_format)


def apply_each(change: Callable[[Tensor], Tensor], tensors: Iterable[Tensor | None]) -> Any:
    """Return a tuple of the changed tensors, None where one is missing."""
    return tuple(None if x is None else change(x) for x in tensors)
