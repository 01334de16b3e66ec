"""The selective scan as a loop over time: the reference for tests of all fast kernels."""

import torch
from torch import Tensor

from msbench.ops.scan_arguments import Discretisation, check_shapes


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
