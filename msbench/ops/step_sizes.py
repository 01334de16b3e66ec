"""Low-rank step sizes: softplus(W low + b), one W and b per stream."""

import torch
from torch import Tensor
from torch.nn import functional


def step_sizes(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map low (b, l, m, r), weight (m, d, r), bias (m, d) to positive (b, l, m, d); all of one dtype."""
    check_shapes(low, weight, bias)
    b, length, streams, _ = low.shape
    by_stream = low.flatten(0, 1).transpose(0, 1)
    dt = torch.baddbmm(bias.unsqueeze(1), by_stream, weight.mT)
    return functional.softplus(dt).view(streams, b, length, bias.shape[1]).permute(1, 2, 0, 3)


def check_shapes(low: Tensor, weight: Tensor, bias: Tensor) -> None:
    """Raise ValueError if shapes do not match."""
    right = low.ndim == 4 and bias.ndim == 2 and bias.shape[0] == low.shape[2]
    if not right or weight.shape != (*bias.shape, low.shape[3]):
        raise ValueError(
            "low must be (b, l, m, r), weight (m, d, r) and bias (m, d); got"
            f" {tuple(low.shape)}, {tuple(weight.shape)} and {tuple(bias.shape)}"
        )
