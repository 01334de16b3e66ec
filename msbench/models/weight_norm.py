"""Linear maps with weight normalisation (Salimans and Kingma 2016): outputs have a gain and a direction."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.models.layers import require_full_precision


class WeightNormLinear(nn.Module):
    """A linear map whose weight is gain * direction / |direction|, in rows of one output each.

    Directions start as the weights of ``torch.nn.Linear`` and gains as their norms, so that the weight is at
    first the direction; biases start at 0.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.direction = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.gain = nn.Parameter(torch.empty(outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.set_gains()

    @torch.no_grad()
    def set_gains(self) -> None:
        """Set the gains so that the weight is the direction: after the directions were set."""
        self.gain.copy_(torch.linalg.vector_norm(self.direction, dim=1))

    def compute_weight(self) -> Tensor:
        """Return the weight (outputs, inputs), in float32 or better."""
        direction = require_full_precision(self.direction)
        scale: Tensor = self.gain / torch.linalg.vector_norm(direction, dim=1)
        return scale.unsqueeze(1) * direction

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return functional.linear(x, self.compute_weight(), self.bias)
