"""Batch norm whose statistics are those of real positions only."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from msbench.ops import layer_kernels, layers_native
from msbench.ops.operation import differentiable, once_differentiable, operation

EPSILON = 1e-5


def masked_batch_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise x (b, l, d) by the statistics of the positions where mask (b, l, 1) is 1; it is 0 elsewhere.

    With `zero` the other positions become 0. Returns y (b, l, d), mean (d,) and biased variance (d,). The
    moments are for tracking: y's gradient includes their dependence on x, but they have no gradient as
    outputs. All tensors have one dtype.
    """
    if not layer_kernels.native_for(x):
        return masked_batch_norm_reference(x, mask, weight, bias, zero=zero)
    y, mean, var = norm(x, mask, weight, bias, zero)
    return y, mean, var


def masked_batch_norm_reference(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `masked_batch_norm` in PyTorch operations."""
    count = mask.sum().clamp(min=1)
    mean = (x * mask).sum((0, 1)) / count
    centred = x - mean
    var = ((centred * mask) * centred).sum((0, 1)) / count
    y = affine(centred, var, weight, bias)
    return y * mask if zero else y, mean.detach(), var.detach()


def spread_batch_norm(
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    total: Callable[[Tensor], Tensor],
    *,
    zero: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `masked_batch_norm` of a batch that several processes share, each with its own x.

    `total` is the differentiable sum over processes. Also returns the number of real positions of all of
    them.
    """
    sums = total(torch.cat([(x * mask).sum((0, 1)), mask.sum().view(1)]))
    count = sums[-1].detach().clamp(min=1)
    mean = sums[:-1] / count
    centred = x - mean
    # From centred numbers: mean of squares minus square of the mean would cancel.
    var = total(((centred * mask) * centred).sum((0, 1))) / count
    y = affine(centred, var, weight, bias)
    return y * mask if zero else y, mean.detach(), var.detach(), count


def frozen_batch_norm(
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    zero: bool = False,
) -> Tensor:
    """Normalise x (b, l, d) by the given mean (d,) and variance (d,)."""
    if not layer_kernels.native_for(x) or torch.is_grad_enabled():
        y = affine(x - mean, var, weight, bias)
        return y * mask if zero else y
    normalised: Tensor = frozen(x, mask, weight, bias, mean, var, zero)
    return normalised


def affine(centred: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply variance, weight and bias to centred numbers: the rest of a norm."""
    return torch.addcmul(bias, centred, weight * torch.rsqrt(var + EPSILON))


def frozen_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, zero: bool
) -> Tensor:
    """Compute `frozen_batch_norm` in C++."""
    return layers_native.ENGINE.norm_forward(x, mask, (weight, bias), (mean, var), EPSILON, zero)


def fake_frozen(x: Tensor, *_: Any) -> Tensor:
    """Return an empty tensor with the shape of `frozen_norm`."""
    return x.new_empty(x.shape)


frozen = operation(frozen_norm, fake_frozen)


def masked_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `masked_batch_norm` in C++; for the backward, only x itself is kept at the size of x."""
    engine = layers_native.ENGINE
    mean, var = engine.norm_statistics(x, mask)
    parameters = weight.contiguous(), bias.contiguous()
    return engine.norm_forward(x, mask, parameters, (mean, var), EPSILON, zero), mean, var


def fake_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `masked_norm`."""
    del mask, weight, bias, zero
    return x.new_empty(x.shape), x.new_empty(x.shape[2]), x.new_empty(x.shape[2])


def masked_norm_backward(
    g: Tensor, x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    parameters = weight.contiguous(), bias.contiguous()
    return layers_native.ENGINE.norm_backward(g, x, mask, parameters, (mean, var), EPSILON, zero)


def fake_backward(g: Tensor, x: Tensor, mask: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    """Return empty tensors with the shapes of `masked_norm_backward`."""
    del g, mask
    return x.new_empty(x.shape), x.new_empty(weight.shape), x.new_empty(weight.shape)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """Keep the arguments and the moments."""
    ctx.save_for_backward(*inputs[:4], *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.zero = inputs[4]


def backward(ctx: Any, g: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
    if g is None:
        return (None,) * 5
    gx, g_weight, g_bias = norm_backward(g, *ctx.saved_tensors, ctx.zero)
    return gx, None, g_weight, g_bias, None


norm_backward = once_differentiable(
    operation(masked_norm_backward, fake_backward), "masked_batch_norm_reference"
)
norm = differentiable(operation(masked_norm, fake_norm), setup_context, backward)
