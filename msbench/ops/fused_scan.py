"""The selective scan fused with its inputs: low-rank step sizes, and the decomposition.

As separate tensors step sizes and streams are each as large as all streams together, and so are their
gradients. The C++ scan computes both a few cache lines at a time, recomputes them in the backward, and stores
neither.
"""

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from msbench.ops import fused_operator, scan_arguments
from msbench.ops.decompose import bank, check_bank, decompose
from msbench.ops.operation import constant, isolated, kept
from msbench.ops.scan import engine, selective_scan
from msbench.ops.scan_arguments import Discretisation, working_dtype
from msbench.ops.scan_kernels import compare
from msbench.ops.scan_reference import selective_scan_reference
from msbench.ops.step_sizes import check_shapes as check_steps
from msbench.ops.step_sizes import step_sizes

NAMES = ("output", "x", "filters", "filter bias", "low", "weight", "bias", "A", "B", "C", "skip", "mix")


def low_rank_scan(
    u: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None = None,
    mix: Tensor | None = None,
    *,
    discretisation: Discretisation = "euler",
) -> Tensor:
    """Compute `selective_scan` of u (b, l, m, d) with step sizes softplus(weight low + bias).

    low (b, l, m, r), weight (m, d, r), bias (m, d); the other arguments and the precision are as in
    `msbench.ops.scan.selective_scan`. Second derivatives need both steps in PyTorch.
    """
    check_low_rank(u, low, weight, bias, A, B, C, skip, mix)
    with torch.autocast(u.device.type, enabled=False):
        tensors = promoted(u, low, weight, bias, A, B, C, skip, mix)
        if fused(u, weight):
            return run(tensors[0], None, None, *tensors[1:], discretisation=discretisation).to(u.dtype)
        u_, low, weight, bias, *rest = tensors
        dt = step_sizes(low, weight, bias)
        return selective_scan(u_, dt, *rest, discretisation=discretisation).to(u.dtype)


def multi_scale_scan(
    x: Tensor,
    filters: Tensor,
    filter_bias: Tensor | None,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor,
    *,
    discretisation: Discretisation = "euler",
) -> Tensor:
    """Compute the mixed `low_rank_scan` of the streams that `decompose` returns for x (b, l, d): (b, l, d).

    filters (S, 2, k, d) and filter_bias (S, 2, d) are as in `msbench.ops.decompose.decompose`; m is S + 2.
    """
    check_bank(x, filters, filter_bias)
    if mix is None:
        raise ValueError("mix is missing: without it, decompose and low_rank_scan give every stream")
    like_streams = x.unsqueeze(2).expand(-1, -1, filters.shape[0] + 2, -1)
    check_low_rank(like_streams, low, weight, bias, A, B, C, skip, mix)
    with torch.autocast(x.device.type, enabled=False):
        tensors = promoted(x, filters, filter_bias, low, weight, bias, A, B, C, skip, mix)
        if fused(x, weight):
            return run(*tensors, discretisation=discretisation).to(x.dtype)
        streams = decompose(*tensors[:3])
        return low_rank_scan(streams, *tensors[3:], discretisation=discretisation).to(x.dtype)


def check_low_rank(
    u: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
) -> None:
    """Raise ValueError, naming the argument, if shapes do not match."""
    check_steps(low, weight, bias)
    like_dt = bias.expand(*low.shape[:3], -1)
    scan_arguments.check_shapes((u, like_dt, A, B, C, skip, mix))


def fused(u: Tensor, weight: Tensor) -> bool:
    """Return True if the kernel in use computes its inputs itself."""
    return weight.numel() > 0 and makes_inputs(u.device.type)


def makes_inputs(device: str) -> bool:
    """Return True if the kernel of a device type computes step sizes and streams itself."""
    return device == "cpu" and chosen()


@constant
def chosen() -> bool:
    """Return True if the C++ kernel is used: with the C++ scan, if the self-check passes."""
    return engine("cpu") == "cpp" and _right()


@cache
def _right() -> bool:
    fault = isolated(self_check)
    if fault:
        warnings.warn(f"the fused C++ scan is left out: {fault}", RuntimeWarning, stacklevel=5)
    return not fault


def self_check() -> str:
    """Return the first wrong output or gradient of the kernel on a small problem, or an empty string.

    The problem has several spans of steps, slow decays, an odd number of channels, filters longer than a
    span.
    """
    b, length, d, n, r, levels, k = 2, 50, 19, 5, 5, 3, 6
    m, source = levels + 2, torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    signal = normal(b, length, d), normal(levels, 2, k, d) * 0.3, normal(levels, 2, d)
    steps = normal(b, length, m, r), normal(m, d, r) * 0.3, normal(m, d) - 3
    rest = -normal(m, d, n).abs(), normal(b, length, m, n), normal(b, length, m, n)
    arguments = (*signal, *steps, *rest, normal(m, d), normal(b, length, m))
    return compare(lambda *x: run(*x, discretisation="euler"), by_parts, arguments, NAMES)


def by_parts(
    x: Tensor, filters: Tensor, filter_bias: Tensor, low: Tensor, weight: Tensor, bias: Tensor, *rest: Tensor
) -> Tensor:
    """Compute `multi_scale_scan` in separate PyTorch operations."""
    streams = bank(x, filters, filter_bias, 1, "torch")[0]
    return selective_scan_reference(streams, step_sizes(low, weight, bias), *rest)


def promoted(*tensors: Any) -> list[Any]:
    """Return all tensors in float64 if one is, else in float32."""
    dtype = working_dtype(tensors)
    return [None if x is None else x.to(dtype) for x in tensors]


def run(*tensors: Tensor | None, discretisation: Discretisation) -> Tensor:
    """Call the operator, differentiably."""
    y: Tensor = fused_operator.scan(*tensors, discretisation == "euler", kept(tensors))[0]
    return y
