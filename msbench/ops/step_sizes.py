"""Step sizes of low rank: softplus(W low + b), one W and b per stream."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops import layer_kernels, layers_native
from msbench.ops.operation import differentiable, once_differentiable, operation


def step_sizes(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """low (b, l, m, r), weight (m, d, r), bias (m, d) -> (b, l, m, d), positive; all of one dtype."""
    if low.ndim != 4 or weight.shape != (low.shape[2], bias.shape[-1], low.shape[3]):
        raise ValueError(
            "low must be (b, l, m, r), weight (m, d, r) and bias (m, d); got"
            f" {tuple(low.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
    if not layer_kernels.native_for(low) or weight.numel() == 0:
        return step_sizes_reference(low, weight, bias)
    dt: Tensor = steps(low, weight, bias)
    return dt


def step_sizes_reference(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`step_sizes` in PyTorch operations."""
    b, length, streams, _ = low.shape
    by_stream = low.flatten(0, 1).transpose(0, 1)
    dt = torch.baddbmm(bias.unsqueeze(1), by_stream, weight.mT)
    return functional.softplus(dt).view(streams, b, length, bias.shape[1]).permute(1, 2, 0, 3)


def low_rank_steps(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`step_sizes` in C++. Nothing of the output's size is kept: the backward computes it again."""
    return layers_native.ENGINE.steps_forward(low, weight, bias)


def fake_steps(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The shape of `low_rank_steps`."""
    del weight
    return low.new_empty(*low.shape[:3], bias.shape[1])


def low_rank_steps_backward(
    g: Tensor, low: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of low, weight and bias."""
    return layers_native.ENGINE.steps_backward(g, low, weight, bias)


def fake_backward(g: Tensor, low: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The shapes of `low_rank_steps_backward`."""
    del g
    return low.new_empty(low.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep the arguments."""
    del output
    ctx.save_for_backward(*inputs)


def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    """Gradients of all inputs of the operator."""
    gradients: tuple[Tensor, ...] = steps_backward(g, *ctx.saved_tensors)
    return gradients


steps_backward = once_differentiable(
    operation(low_rank_steps_backward, fake_backward), "step_sizes_reference"
)
steps = differentiable(operation(low_rank_steps, fake_steps), setup_context, backward)
