"""The selective scan fused with its inputs: low-rank step sizes, and the decomposition.

As separate tensors step sizes and streams are each as large as all streams together, and so are their
gradients. The C++ scan computes both a few cache lines at a time, recomputes them in the backward, and stores
neither. The Triton scan has a kernel for step sizes, and keeps the streams but no step sizes.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from msbench.ops.filters import apply_bank, check_bank, decompose
from msbench.ops.operators import mark_constant, needs_gradient, register_differentiable
from msbench.ops.scan import native_engine
from msbench.ops.scan.dispatch import find_difference, selective_scan, uses_native, uses_triton
from msbench.ops.scan.reference import (
    Discretisation,
    check_scan_shapes,
    check_step_shapes,
    make_contiguous,
    promote,
    selective_scan_reference,
    space_rows,
    step_sizes,
    working_dtype,
)
from msbench.ops.scan.triton_low_rank import run_low_rank

Gradients = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]  # a list could not be batched
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
    `msbench.ops.scan.dispatch.selective_scan`. Second derivatives need both steps in PyTorch.
    """
    check_low_rank(u, low, weight, bias, A, B, C, skip, mix)
    tensors = u, low, weight, bias, A, B, C, skip, mix
    with torch.autocast(u.device.type, enabled=False):
        if is_made_in_triton(weight, tensors):
            return run_low_rank(*tensors, discretisation=discretisation).to(u.dtype)
        u_, low, weight, bias, *rest = promote(tensors)
        if is_fused(u, weight):
            fused = (u_, None, None, low, weight, bias, *rest)
            return run_fused(*fused, discretisation=discretisation).to(u.dtype)
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

    filters (S, 2, k, d) and filter_bias (S, 2, d) are as in `msbench.ops.filters.decompose`; m is S + 2.
    """
    check_bank(x, filters, filter_bias)
    if mix is None:
        raise ValueError("mix is missing: without it, decompose and low_rank_scan give every stream")
    like_streams = x.unsqueeze(2).expand(-1, -1, filters.shape[0] + 2, -1)
    check_low_rank(like_streams, low, weight, bias, A, B, C, skip, mix)
    tensors = x, filters, filter_bias, low, weight, bias, A, B, C, skip, mix
    with torch.autocast(x.device.type, enabled=False):
        if not is_made_in_triton(weight, tensors):  # its kernels read half precision as it is
            tensors = promote(tensors)
        if is_fused(x, weight):
            return run_fused(*tensors, discretisation=discretisation).to(x.dtype)
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
    check_step_shapes(low, weight, bias)
    like_dt = bias.expand(*low.shape[:3], -1)
    check_scan_shapes((u, like_dt, A, B, C, skip, mix))


def is_made_in_triton(weight: Tensor, tensors: Sequence[Tensor | None]) -> bool:
    """Return True if step sizes are computed in Triton: of rank 1 at least, and without float64."""
    single = working_dtype(tensors) == torch.float32
    return weight.numel() > 0 and single and is_low_rank_triton(weight.device.type)


@mark_constant
def is_low_rank_triton(device: str) -> bool:
    """Return True if step sizes are computed in Triton on a device type: with the Triton scan."""
    return uses_triton(device, "scan with low-rank step sizes", check_low_rank_scan)


def check_low_rank_scan(device: str) -> str:
    """Return the first wrong output or gradient of the Triton kernels, or an empty string."""
    b, length, m, d, n, r = 2, 70, 2, 19, 5, 3
    source = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    steps = normal(b, length, m, r), normal(m, d, r) * 0.3, normal(m, d) - 3
    rest = -normal(m, d, n).abs(), normal(b, length, m, n), normal(b, length, m, n)
    arguments = normal(b, length, m, d), *steps, *rest, normal(m, d), normal(b, length, m)
    return find_difference(
        partial(run_low_rank, discretisation="euler"),
        scan_low_rank_by_parts,
        [x.to(device) for x in arguments],
        (NAMES[0], "u", *NAMES[4:]),
    )


def scan_low_rank_by_parts(u: Tensor, low: Tensor, weight: Tensor, bias: Tensor, *rest: Tensor) -> Tensor:
    """Compute `low_rank_scan` in separate PyTorch operations."""
    return selective_scan_reference(u, step_sizes(low, weight, bias), *rest)


def is_fused(u: Tensor, weight: Tensor) -> bool:
    """Return True if the C++ kernel computes its inputs itself."""
    return weight.numel() > 0 and u.device.type == "cpu" and is_fused_native()


@mark_constant
def is_fused_native() -> bool:
    """Return True if the C++ kernel is used: with the C++ scan, if it passes its check."""
    return uses_native("fused scan", check_fused_scan)


def check_fused_scan() -> str:
    """Return the first wrong output or gradient of the kernel on a small problem, or an empty string.

    The problem has several spans of steps, slow decays, an odd number of channels, filters longer than a
    span; it is discretised in both ways.
    """
    b, length, d, n, r, levels, k = 2, 50, 19, 5, 5, 3, 6
    m, source = levels + 2, torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    signal = normal(b, length, d), normal(levels, 2, k, d) * 0.3, normal(levels, 2, d)
    steps = normal(b, length, m, r), normal(m, d, r) * 0.3, normal(m, d) - 3
    rest = -normal(m, d, n).abs(), normal(b, length, m, n), normal(b, length, m, n)
    arguments = (*signal, *steps, *rest, normal(m, d), normal(b, length, m))
    faults = (
        find_difference(
            partial(run_fused, discretisation=each),
            partial(run_by_parts, discretisation=each),
            arguments,
            NAMES,
        )
        for each in get_args(Discretisation)
    )
    return next(filter(None, faults), "")


def run_by_parts(
    x: Tensor,
    filters: Tensor,
    filter_bias: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    *rest: Tensor,
    discretisation: Discretisation = "euler",
) -> Tensor:
    """Compute `multi_scale_scan` in separate PyTorch operations."""
    streams = apply_bank(x, filters, filter_bias, 1, engine="torch")
    dt = step_sizes(low, weight, bias)
    return selective_scan_reference(streams, dt, *rest, discretisation=discretisation)


def run_fused(*tensors: Tensor | None, discretisation: Discretisation) -> Tensor:
    """Call the operator, differentiably."""
    y: Tensor = _fused_scan(*tensors, discretisation == "euler", needs_gradient(tensors))[0]
    return y


def fused_scan(
    u: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    scaled: bool,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return output and kept states; with taps, u is the signal (b, l, d) and a mixer is required."""
    tensors = arrange_tensors(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    return native_engine.run_forward(tensors, scaled=scaled, keep=keep)


def fake_fused_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `fused_scan`."""
    mix, _, keep = rest[-3:]
    out = u.new_empty(u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[-1]))
    return out, u.new_empty(native_engine.ENGINE.kept_shape(u, rest[5]) if keep else 0)


def fused_scan_backward(
    gy: Tensor,
    u: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    scaled: bool,
) -> Gradients:
    """Return the gradients of the eleven tensors; that of a missing tensor is empty."""
    tensors = arrange_tensors(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    gradients = [None if x is None else x.new_empty(x.shape) for x in tensors]
    if taps is not None:  # the kernel writes it even without a bias
        gradients[11] = taps.new_empty(*taps.shape[:2], taps.shape[3])
    native_engine.run_backward(tensors, gradients, kept, gy, scaled=scaled)
    g_u, _, g_A, g_B, g_C, g_skip, g_mix, g_low, g_weight, g_bias, g_taps, g_taps_bias = gradients
    assert g_weight is not None
    back = (g_low, g_weight.mT.contiguous(), g_bias, g_A, g_B, g_C, g_skip, g_mix)
    own = (g_u, g_taps, None if taps_bias is None else g_taps_bias)
    return tuple(gy.new_empty(0) if x is None else x for x in (*own, *back))  # type: ignore[return-value]


def arrange_tensors(
    u: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    *rest: Tensor | None,
) -> list[Tensor | None]:
    """Return the tensors in the kernel's order and memory layout; slices of a projection are not copied."""
    signal = u if taps is not None and u.stride(2) == 1 else u.contiguous()
    scan, bank = make_contiguous(rest), make_contiguous((taps, taps_bias))
    return [signal, None, *scan, space_rows(low), weight.mT.contiguous(), bias.contiguous(), *bank]


_fused_scan = register_differentiable(
    fused_scan,
    fake_fused_scan,
    fused_scan_backward,
    outputs=("y", "kept"),
    instead="decompose, step_sizes and selective_scan_reference in PyTorch",
)
