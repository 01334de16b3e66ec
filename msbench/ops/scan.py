"""The interface of the selective scan; `msbench.ops.scan_kernels` chooses its implementation."""

import torch
from torch import Tensor

from msbench.ops.operation import constant
from msbench.ops.scan_arguments import Discretisation, check_shapes, promote
from msbench.ops.scan_kernels import KERNELS, choose
from msbench.ops.scan_reference import selective_scan_reference

__all__ = ["kernel_name", "mixed", "selective_scan", "selective_scan_reference"]


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
        z_t = sum_m mix_t y_t                            (if mix is given)

    Parameters
    ----------
    u, dt : (b, l, m, d); dt positive
    A : (m, d, n); negative
    B, C : (b, l, m, n)
    skip : (m, d) or None
    mix : (b, l, m) or None

    Returns z (b, l, d) if `mix` is given, else y (b, l, m, d), in the dtype of `u`. Any length, any strides.
    All arithmetic is float32, or float64 if an input is, regardless of autocast. Every tensor gets a
    gradient; ``torch.func`` transforms work, second derivatives need `selective_scan_reference`.
    """
    arguments = (u, dt, A, B, C, skip, mix)
    check_shapes(arguments)
    with torch.autocast(u.device.type, enabled=False):
        kernel = KERNELS[engine(u.device.type)]
        return kernel.scan(promote(arguments), scaled=discretisation == "euler").to(u.dtype)


def kernel_name(device: torch.device | str) -> str:
    """Return the name of the scan that runs on `device`, for records and ``msbench doctor``."""
    return choose(torch.device(device).type).label


@constant
def engine(device: str) -> str:
    """Return the name of the scan kernel of a device type."""
    return choose(device).engine


def mixed(y: Tensor, mix: Tensor) -> Tensor:
    """Sum the streams of y (b, l, m, d), weighted by `mix` (b, l, m), or (m, d) for all steps."""
    equation = "blm,blmd->bld" if mix.ndim == 3 else "md,blmd->bld"
    return torch.einsum(equation, mix.to(y.dtype), y)
