"""Dense references of attention layers: all weights as a matrix, and the comparison with them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From queries, keys and values (b, h, l, w), and True at real positions (b, l), to (b, h, l, w)."""


def signal(*lengths: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sequences of these lengths in float64, zero in padding, and their lengths."""
    x = torch.randn(
        len(lengths),
        max(lengths),
        width,
        dtype=torch.float64,
        generator=torch.Generator().manual_seed(seed),
    )
    for row, length in zip(x, lengths, strict=True):
        row[length:] = 0
    return x, torch.tensor(lengths)


def real_positions(lengths: Tensor, longest: int) -> Tensor:
    return torch.arange(longest) < lengths[:, None]


def heads_of(layer: Any, x: Tensor) -> list[Tensor]:
    """Queries, keys and values (b, h, l, w), from one product per head."""
    weights, biases = layer.qkv.weight.chunk(3), layer.qkv.bias.chunk(3)
    return [
        torch.stack(
            [
                x @ part.T + bias
                for part, bias in zip(weight.chunk(layer.heads), every.chunk(layer.heads), strict=True)
            ],
            dim=1,
        )
        for weight, every in zip(weights, biases, strict=True)
    ]


def attended(layer: Any, x: Tensor, lengths: Tensor, attend: Attend) -> Tensor:
    """The layer's output with another function between its projections."""
    q, k, v = heads_of(layer, x)
    y = attend(q, k, v, real_positions(lengths, x.shape[1]))
    out: Tensor = y.transpose(1, 2).flatten(2) @ layer.out_proj.weight.T + layer.out_proj.bias
    return out


def assert_attends_as(layer: Any, x: Tensor, lengths: Tensor, attend: Attend, atol: float = 1e-11) -> None:
    """Outputs at real positions, and gradients of input and every parameter, equal those of the reference."""
    x = x.clone().requires_grad_()
    real = real_positions(lengths, x.shape[1]).unsqueeze(2)
    weight = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(9)) * real
    results = []
    for y in (layer(x, lengths), attended(layer, x, lengths, attend)):
        gradients = torch.autograd.grad((y * weight).sum(), [x, *layer.parameters()])
        results.append([y * real, *gradients])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=atol)


def divide_weights(weights: Tensor, v: Tensor, epsilon: float = 0.0, least: float = 0.0) -> Tensor:
    """Outputs of attention with these weights (b, h, l, l), which are made to add up to one."""
    return (weights / (weights.sum(3, keepdim=True) + epsilon).clamp(min=least)) @ v
