"""Batch norm whose statistics are those of real positions only."""

from typing import Any

import torch
from torch import Tensor

from msbench.ops import layer_kernels
from msbench.ops.vmap import looped

EPSILON = 1e-5


def masked_batch_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise x (b, l, d) by the statistics of the positions where mask (b, l, 1) is 1; it is 0 elsewhere.

    With `zero` the other positions become 0. Returns y (b, l, d), mean (d,) and biased variance (d,); the two
    are for tracking, gradients of y go through them and not out of them. All of one dtype.
    """
    if layer_kernels.native_for(x) is None:
        return masked_batch_norm_reference(x, mask, weight, bias, zero=zero)
    y, mean, var = MaskedNorm.apply(x, mask, weight, bias, zero)
    return y, mean, var


def masked_batch_norm_reference(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """`masked_batch_norm` in PyTorch operations."""
    count = mask.sum().clamp(min=1)
    mean = (x * mask).sum((0, 1)) / count
    centred = x - mean
    var = ((centred * mask) * centred).sum((0, 1)) / count
    y = affine(centred, var, weight, bias)
    return y * mask if zero else y, mean.detach(), var.detach()


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
    native = layer_kernels.native_for(x)
    if native is None or torch.is_grad_enabled():
        y = affine(x - mean, var, weight, bias)
        return y * mask if zero else y
    return native.norm_forward(x, mask, (weight, bias), (mean, var), EPSILON, zero)


def affine(centred: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What is left of a norm once the mean is taken off."""
    return torch.addcmul(bias, centred, weight * torch.rsqrt(var + EPSILON))


class MaskedNorm(torch.autograd.Function):
    """`masked_batch_norm` in C++: of the size of x, nothing but x itself is kept."""

    vmap = staticmethod(looped(lambda: MaskedNorm))

    @staticmethod
    def forward(
        x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, zero: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        engine = layer_kernels.native()
        moments = engine.norm_statistics(x, mask)
        y = engine.norm_forward(x, mask, (weight.contiguous(), bias.contiguous()), moments, EPSILON, zero)
        return y, *moments

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs[:4], *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.zero = inputs[4]

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * 5
        gx, g_weight, g_bias = MaskedNormBackward.apply(g, *ctx.saved_tensors, ctx.zero)
        return gx, None, g_weight, g_bias, None


class MaskedNormBackward(torch.autograd.Function):
    """Gradients of `MaskedNorm`; a function of its own so that they can be batched."""

    vmap = staticmethod(looped(lambda: MaskedNormBackward))

    @staticmethod
    def forward(g: Tensor, *args: Any) -> tuple[Tensor, ...]:
        x, mask, weight, bias, mean, var, zero = args
        affine = weight.contiguous(), bias.contiguous()
        return layer_kernels.native().norm_backward(g, x, mask, affine, (mean, var), EPSILON, zero)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError("second derivatives of the norm: use masked_batch_norm_reference")
