"""Step sizes of low rank: softplus(W low + b), one W and b per stream."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops import layer_kernels
from msbench.ops.vmap import looped


def step_sizes(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """low (b, l, m, r), weight (m, d, r), bias (m, d) -> (b, l, m, d), positive; all of one dtype."""
    if low.ndim != 4 or weight.shape != (low.shape[2], bias.shape[-1], low.shape[3]):
        raise ValueError(
            "low must be (b, l, m, r), weight (m, d, r) and bias (m, d); got"
            f" {tuple(low.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    if layer_kernels.native_for(low) is None or weight.numel() == 0:
        return step_sizes_reference(low, weight, bias)
    dt: Tensor = StepSizes.apply(low, weight, bias)
    return dt


def step_sizes_reference(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`step_sizes` in PyTorch operations."""
    b, length, streams, _ = low.shape
    by_stream = low.flatten(0, 1).transpose(0, 1)
    dt = torch.baddbmm(bias.unsqueeze(1), by_stream, weight.mT)
    return functional.softplus(dt).view(streams, b, length, bias.shape[1]).permute(1, 2, 0, 3)


class StepSizes(torch.autograd.Function):
    """`step_sizes` in C++. Nothing of the output's size is kept: the backward computes it again."""

    vmap = staticmethod(looped(lambda: StepSizes))

    @staticmethod
    def forward(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return layer_kernels.native().steps_forward(low, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
        gradients: tuple[Tensor, ...] = StepSizesBackward.apply(g, *ctx.saved_tensors)
        return gradients


class StepSizesBackward(torch.autograd.Function):
    """Gradients of `StepSizes`; a function of its own so that they can be batched."""

    vmap = staticmethod(looped(lambda: StepSizesBackward))

    @staticmethod
    def forward(g: Tensor, low: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return layer_kernels.native().steps_backward(g, low, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError("second derivatives of step sizes: use step_sizes_reference")
