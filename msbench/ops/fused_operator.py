"""The fused C++ scan as a PyTorch operator."""

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
    """Return output and kept states; with taps, u is the signal (b, l, d) and a mixer is required."""
    tensors = arranged(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    return scan_native.forward(tensors, scaled=scaled, keep=keep)


def fake_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `fused_scan`."""
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
    """Return the gradients of the eleven tensors; that of a missing tensor is empty."""
    tensors = arranged(u, taps, taps_bias, low, weight, bias, A, B, C, skip, mix)
    gradients = [None if x is None else x.new_empty(x.shape) for x in tensors]
    if taps is not None:  # the kernel writes it even without a bias
        gradients[11] = taps.new_empty(*taps.shape[:2], taps.shape[3])
    scan_native.backward(tensors, gradients, kept, gy, scaled=scaled)
    g_u, _, g_A, g_B, g_C, g_skip, g_mix, g_low, g_weight, g_bias, g_taps, g_taps_bias = gradients
    assert g_weight is not None
    back = (g_low, g_weight.mT.contiguous(), g_bias, g_A, g_B, g_C, g_skip, g_mix)
    own = (g_u, g_taps, None if taps_bias is None else g_taps_bias)
    return tuple(gy.new_empty(0) if x is None else x for x in (*own, *back))  # type: ignore[return-value]


def fake_backward(*args: Any) -> tuple[Tensor, ...]:
    """Return empty tensors with the shapes of `fused_scan_backward`."""
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
    """Return the tensors in the kernel's order and memory layout; slices of a projection are not copied."""
    signal = u if taps is not None and u.stride(2) == 1 else u.contiguous()
    scan = [None if x is None else x.contiguous() for x in rest]
    bank = [None if x is None else x.contiguous() for x in (taps, taps_bias)]
    return [signal, None, *scan, even(low), weight.mT.contiguous(), bias.contiguous(), *bank]


def even(low: Tensor) -> Tensor:
    """Return low (b, l, m, r) with one stride between rows, like a slice of the last dimension."""
    _, length, m, _ = low.shape
    step = low.stride(2)
    if low.stride() == (length * m * step, m * step, step, 1):
        return low
    # Not contiguous(): it does not change the stride of an axis of size 1.
    return low.clone(memory_format=torch.contiguous_format)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the arguments and the kept states."""
    *tensors, ctx.scaled, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def backward(ctx: Any, gy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
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
