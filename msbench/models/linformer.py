"""Linformer (Wang et al. 2020): attention to a fixed number of learned sums of all positions.

================  =========  =============================================================
code              paper      meaning
================  =========  =============================================================
``h``, ``w``      h, d       heads, and the width of one, d / h
``rank``          k          sums of keys and values that a query sees
``longest``       n          the task's longest sequence
``key_sums``      E          weights of positions in the sums for keys, (longest, rank)
``value_sums``    F          those for values; with ``sharing: heads`` alone another than E
================  =========  =============================================================

::

    q = W_q x      k = W_k E^T x + b_k      v = W_v F^T x + b_v      y = W_o softmax(q k^T / sqrt(w)) v

The softmax is over the sums, and time and memory grow with the length times their number. E and F are those
of a layer's heads, E = F of keys and values too, or one matrix of all layers (`sharing`): the paper's three
ways.

As in the authors' code, positions are summed before the maps to keys and values, which is the same but for
their biases, and E and F start Xavier-uniform by 1 / sqrt 2, so that a sum is about as large as what it sums.
A sequence shorter than the longest uses their first rows. Padding adds nothing to the sums, as the layer's
input is zero there; in Long Range Arena's code, which sums keys and values with their biases, it does. A sum
has positions from everywhere: there is no causal one.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

from msbench.config.attention import LinformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import DataError
from msbench.models.attention import HeadAttention, build_transformer
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states


class PositionSums(nn.Module):
    """Learned sums over positions: one matrix of weights for keys, and another or the same for values."""

    def __init__(self, longest: int, rank: int, *, shared: bool) -> None:
        super().__init__()
        self.key_sums = nn.Parameter(torch.empty(longest, rank))
        self.value_sums = None if shared else nn.Parameter(torch.empty(longest, rank))
        for weights in self.parameters():
            nn.init.xavier_uniform_(weights, gain=math.sqrt(1 / 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map x (b, l, d), zero in padding, to the sums for keys and for values, (b, rank, d)."""
        length, longest = x.shape[1], len(self.key_sums)
        if length > longest:
            raise DataError(
                f"a sequence has {length} positions, but Linformer's sums end at {longest}, the length of the"
                " task's longest sequence; set the task up again"
            )
        keys = self.key_sums[:length].mT @ x
        return keys, keys if self.value_sums is None else self.value_sums[:length].mT @ x


class LinformerAttention(HeadAttention):
    """Attention of all positions to sums of them, which are a part of this layer if it is their `owner`."""

    sums: PositionSums

    def __init__(self, config: LinformerConfig, sums: PositionSums, *, owner: bool) -> None:
        super().__init__(config)
        if owner:
            self.sums = sums
        else:
            # Not as a submodule: checkpoints refuse a tensor that has two names.
            object.__setattr__(self, "sums", sums)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (padding is zero)
        """Map (b, l, d) to (b, l, d)."""
        maps = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        q, k, v = (
            linear(x, weight, bias).view(len(x), -1, self.heads, len(bias) // self.heads).transpose(1, 2)
            for x, (weight, bias) in zip((inputs, *self.sums(inputs)), maps, strict=True)
        )
        return self.merge_heads(scaled_dot_product_attention(q, k, v))


def build(config: LinformerConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention to sums and a feed-forward network per layer."""

    common: PositionSums | None = None

    def build_attention() -> LinformerAttention:
        nonlocal common
        if common is not None:
            return LinformerAttention(config, common, owner=False)
        sums = PositionSums(info.longest, config.rank, shared=config.sharing != "heads")
        if config.sharing == "layers":
            common = sums
        return LinformerAttention(config, sums, owner=True)

    return build_transformer(config, info, build_attention)


FAMILY = Family(build, count_no_states, is_causal=lambda _: False)
