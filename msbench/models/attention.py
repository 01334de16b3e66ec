"""Self-attention around a function of queries, keys and values, for families that differ only in it.

Projections, heads and initial values are those of `msbench.models.transformer`.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from msbench.config.attention import AttentionConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import Mlp
from msbench.models.classifier import Classifier, Layer, build_classifier


class HeadAttention(nn.Module):
    """Multi-head attention of a sequence to itself; subclasses define `attend`."""

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)
        nn.init.xavier_uniform_(self.qkv.weight)
        for layer in (self.qkv, self.out_proj):
            nn.init.zeros_(layer.bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """Map queries, keys and values (b, h, l, w) to (b, h, l, w); padded keys are not zero."""
        raise NotImplementedError

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        return self.merge_heads(self.attend(*self.split_heads(inputs), lengths))

    def split_heads(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (b, h, l, w) of (b, l, d)."""
        q, k, v = self.qkv(inputs).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def merge_heads(self, y: Tensor) -> Tensor:
        """Map the heads' outputs (b, h, l, w) to (b, l, d)."""
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))
        return out


def find_real(lengths: Tensor, longest: int) -> Tensor:
    """Return True at real positions and False in padding, (b, 1, longest, 1)."""
    return (torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1))[:, None, :, None]


def build_transformer(config: AttentionConfig, info: TaskInfo, attention: Callable[[], Layer]) -> Classifier:
    """Build a classifier with this attention and a feed-forward network per layer."""
    return build_classifier(config, info, attention, partial(Mlp, config.d_model, config.mlp_expand))
