"""From pooled sequences to logits, in float32 or better whatever the autocast."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.datasets.dataset import TaskInfo


class LinearHead(nn.Linear):
    """One linear map: pooled (b, d) -> logits (b, classes)."""

    def forward(self, pooled: Tensor) -> Tensor:
        """(b, d) -> (b, classes)."""
        return super().forward(pooled.to(self.weight.dtype))


class PairHead(nn.Module):
    """Two pooled sequences p and q compared: [p, q, p - q, p q], then an MLP of two layers with GELU between.

    The head that S4 and S5 have for Long Range Arena's retrieval. Of a symmetric task it has to learn that
    the order does not matter.
    """

    def __init__(self, d_model: int, classes: int) -> None:
        super().__init__()
        self.inner = nn.Linear(4 * d_model, d_model)
        self.outer = nn.Linear(d_model, classes)

    def forward(self, pooled: Tensor) -> Tensor:
        """Pooled (2 b, d), the two of a pair side by side -> (b, classes)."""
        p, q = pooled.to(self.inner.weight.dtype).view(-1, 2, pooled.shape[1]).unbind(1)
        features = torch.cat((p, q, p - q, p * q), dim=1)
        logits: Tensor = self.outer(functional.gelu(self.inner(features)))
        return logits


def build_head(d_model: int, info: TaskInfo) -> LinearHead | PairHead:
    """The head of a task; a label (of several, too) is one logit."""
    if info.sequences == 2:
        return PairHead(d_model, info.classes)
    return LinearHead(d_model, info.classes)
