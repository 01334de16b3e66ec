"""The fused scan of C++ as an operator of PyTorch."""

from typing import Any

import torch
from torch import Tensor

from msbench.ops import scan_native
from msbench.ops.operation import differentiable, once_differentiable, operation

Gradients = tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]  # a list could not be batched


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
    """Output and kept states; where there are taps, u is the signal (b, l, d) and there is a mixer."""
    tensors = arranged(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    return scan_native.forward(tensors, scaled=scaled, keep=keep)


def fake_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The shapes of `fused_scan`."""
    mix, _, keep = rest[-3:]
    out = u.new_empty(u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[-1]))
    return out, u.new_empty(scan_native.ENGINE.kept_shape(u, rest[5]) if keep else 0)


def fused_scan_backward(
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
    gy: Tensor,
    scaled: bool,
) -> Gradients:
    """Gradients of the eleven tensors; that of a missing one is empty."""
    tensors = arranged(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    gradients = [None if x is None else x.new_empty(x.shape) for x in tensors]
    if taps is not None:  # the kernel writes it whether there is a bias or not
        gradients[11] = taps.new_empty(*taps.shape[:2], taps.shape[3])
    scan_native.backward(tensors, gradients, kept, gy, scaled=scaled)
    g_u, _, g_A, g_B, g_C, g_skip, g_mix, g_low, g_weight, g_bias, g_taps, g_taps_bias = gradients
    assert g_weight is not None
    back = (g_low, g_weight.mT.contiguous(), g_bias, g_A, g_B, g_C, g_skip, g_mix)
    own = (g_u, g_taps, None if taps_bias is None else g_taps_bias)
    return tuple(gy.new_empty(0) if x is None else x for x in (*own, *back))  # type: ignore[return-value]


def fake_backward(*args: Any) -> tuple[Tensor, ...]:
    """The shapes of `fused_scan_backward`."""
    u: Tensor = args[0]
    return tuple(u.new_empty(0 if x is None else x.shape) for x in args[:11])


def arranged(
    u: Tensor,
    taps: Tensor | None,
    taps_bias: Tensor | None,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    *rest: Tensor | None,
) -> list[Tensor | None]:
    """In the order and the memory layout of the kernel; slices of a projection are taken as they are."""
    signal = u if taps is not None and u.stride(2) == 1 else u.contiguous()
    scan = [None if x is None else x.contiguous() for x in rest]
    bank = [None if x is None else x.contiguous() for x in (taps, taps_bias)]
    return [signal, None, *scan, even(low), weight.mT.contiguous(), bias.contiguous(), *bank]


def even(low: Tensor) -> Tensor:
    """low (b, l, m, r) with one stride from row to row, as a slice of the last dimension has."""
    _, length, m, _ = low.shape
    step = low.stride(2)
    if low.stride() == (length * m * step, m * step, step, 1):
        return low
    # Not contiguous(): that leaves the stride of an axis of one stream as it is, whatever it is.
    return low.clone(memory_format=torch.contiguous_format)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the arguments and the kept states."""
    *tensors, ctx.scaled, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def backward(ctx: Any, gy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Gradients of all inputs of the operator."""
    if gy is None:
        return (None,) * 13
    *tensors, kept = ctx.saved_tensors
    gradients = scan_backward(*tensors, kept, gy, ctx.scaled)
    pairs = zip(tensors, gradients, strict=True)
    return (*(None if x is None else gradient for x, gradient in pairs), None, None)


scan_backward = once_differentiable(
    operation(fused_scan_backward, fake_backward),
    "decompose, step_sizes and selective_scan_reference in PyTorch",
)
scan = differentiable(operation(fused_scan, fake_scan), setup_context, backward)
