"""Heads from pooled sequences to logits, in float32 or better regardless of autocast."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.datasets.dataset import TaskInfo


class LinearHead(nn.Linear):
    """One linear map: pooled (b, d) -> logits (b, classes)."""

    def forward(self, pooled: Tensor) -> Tensor:
        """Map (b, d) to (b, classes)."""
        return super().forward(pooled.to(self.weight.dtype))


class PairHead(nn.Module):
    """A comparison of two pooled sequences p and q: [p, q, p - q, p q], then a two-layer MLP with GELU.

    The head of S4 and S5 for Long Range Arena's retrieval. It is not symmetric: on a symmetric task it has to
    learn that the order does not matter.
    """

    def __init__(self, d_model: int, classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4 * d_model, d_model)
        self.outer = nn.Linear(d_model, classes)

    def forward(self, pooled: Tensor) -> Tensor:
        """Map pooled (2 b, d), with the two rows of a pair next to each other, to (b, classes)."""
        p, q = pooled.to(self.inner.weight.dtype).view(-1, 2, pooled.shape[1]).unbind(1)
        features = torch.cat((p, q, p - q, p * q), dim=1)
        logits: Tensor = self.outer(functional.gelu(self.inner(features)))
        return logits


def build_head(d_model: int, info: TaskInfo) -> LinearHead | PairHead:
    """Return the head of a task, with one logit per label (for multi-label tasks too)."""
    if info.sequences == 2:
        return PairHead(d_model, info.classes)
    return LinearHead(d_model, info.classes)
