"""The selective scan: its signature, its slow reference, and the choice of what runs."""

from typing import Literal

import torch
from torch import Tensor

from msbench.ops import scan_torch

Discretisation = Literal["euler", "raw"]


def selective_scan(
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
    """Scan m streams of d channels with n states each (Gu and Dao 2023, algorithm 2).

    ::

        h_t = exp(dt_t A) h_{t-1} + dt_t B_t u_t         ("raw": B_t u_t, without the step size)
        y_t = <C_t, h_t> + skip u_t
        z_t = sum_m mix_t y_t                            (where mix is given)

    Parameters
    ----------
    u, dt : (b, l, m, d); dt positive
    A : (m, d, n); negative
    B, C : (b, l, m, n)
    skip : (m, d) or None
    mix : (b, l, m) or None

    Returns z (b, l, d) where `mix` is given, else y (b, l, m, d), in the dtype of `u`. Any length, any
    strides. All arithmetic is float32, or float64 where an input is, whatever the autocast. Gradients reach
    every tensor; ``torch.func`` transforms work, second derivatives need `selective_scan_reference`.
    """
    arguments = (u, dt, A, B, C, skip, mix)
    check_shapes(arguments)
    with torch.autocast(u.device.type, enabled=False):
        return _scan(promote(arguments), discretisation).to(u.dtype)


def kernel_name(device: torch.device | str) -> str:  # noqa: ARG001 (one kernel serves every device so far)
    """The name of the scan that runs on `device`, for records."""
    return "torch-chunked"


Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]


def check_shapes(arguments: Arguments) -> None:
    """ValueError, naming the argument, where shapes do not belong together or a size is 0."""
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
    """All of them in float64 where one is, else in float32: states in half precision drift."""
    double = any(x is not None and x.dtype == torch.float64 for x in arguments)
    dtype = torch.float64 if double else torch.float32
    u, dt, A, B, C, skip, mix = (None if x is None else x.to(dtype) for x in arguments)
    assert u is not None
    assert dt is not None
    assert A is not None
    assert B is not None
    assert C is not None
    return u, dt, A, B, C, skip, mix


def _scan(arguments: Arguments, discretisation: Discretisation) -> Tensor:
    u, dt, A, B, C, skip, mix = arguments
    read = C if mix is None else (C * mix.unsqueeze(3)).flatten(2).unsqueeze(2)
    tensors = (u, dt, A.transpose(1, 2).contiguous(), B, read, skip, None if skip is None else mix)
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    y: Tensor = scan_torch.Scan.apply(*tensors, discretisation == "euler", keep)[0]
    return y if mix is None else y.squeeze(2)


def mixed(y: Tensor, mix: Tensor) -> Tensor:
    """Sum of the streams of y (b, l, m, d), weighed by `mix`: (b, l, m), or (m, d) for all steps alike."""
    equation = "blm,blmd->bld" if mix.ndim == 3 else "md,blmd->bld"
    return torch.einsum(equation, mix.to(y.dtype), y)


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
    """`selective_scan` as a loop over time: slow, obvious, differentiable any number of times."""
    check_shapes((u, dt, A, B, C, skip, mix))
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
