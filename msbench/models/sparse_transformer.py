"""The Sparse Transformer with its fixed pattern (Child et al. 2019), which is causal.

=============  ===========  ========================================================================
code           paper        meaning
=============  ===========  ========================================================================
``i, j``       i, j         positions of a query and of a key, from 0
``block``      l (stride)   positions of a block, about the square root of the longest sequence
``summaries``  c            last positions of a block, whose keys all later blocks see
``tile``       -            positions of the blocks of queries that are computed together
=============  ===========  ========================================================================

::

    S(i) = {j <= i: floor(j / l) = floor(i / l)}  and  {j <= i: j mod l >= l - c}

in one softmax over both sets, which the paper calls merged heads. Everything around S is the Transformer's
(`msbench.models.attention`). The smaller start of residual branches is left out, and so is the strided
pattern, which is for images.

Long Range Arena's code counts j mod l = 0 to the second set too, and its class token, the first position,
sees and is seen by all, which lets every position see later ones from the second layer on.

A query reads the summaries of all blocks, and masks those that are not before it. Copying them for each block
would take memory that grows with the square of the length; a tile is half as long as all summaries together,
so that there are two copies of them per position. Step by step, the layer keeps keys and values of its block
and of the summaries.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from msbench.config.attention import SparseTransformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import HeadAttention, build_transformer
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.ops.block_attention import append_keys, attend_blocks, cut_blocks, join_blocks


class FixedSparseAttention(HeadAttention):
    """Causal attention within blocks, and to the last positions of earlier ones."""

    def __init__(self, config: SparseTransformerConfig, longest: int) -> None:
        super().__init__(config)
        self.block = config.block or math.ceil(math.sqrt(longest))
        self.summaries = min(config.summaries, self.block)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal)
        """See `HeadAttention`."""
        length, device = q.shape[2], q.device
        blocks = -(-length // self.block)
        tile = self.block * max(1, round(blocks * self.summaries / (2 * self.block)))
        sections, keys, values = (cut_blocks(x, tile) for x in (q, k, v))
        i = torch.arange(sections.shape[2] * tile, device=device).view(-1, tile, 1)
        j = i.view(-1, 1, tile)
        keep = (j <= i) & (j // self.block == i // self.block)
        if blocks > 1:
            summaries = self.find_summaries(blocks - 1, device)
            earlier = summaries // self.block < i // self.block
            keep = torch.cat([keep, earlier], dim=2)
            keys, values = (append_keys(x, y[:, :, summaries]) for x, y in ((keys, k), (values, v)))
        return join_blocks(attend_blocks(sections, keys, values, keep), length)

    def start(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return keys and values (b, h, 0, w) of earlier blocks' summaries, and of the block: empty."""
        empty = x.new_empty(len(x), self.heads, 0, x.shape[1] // self.heads)
        return empty, empty, empty, empty

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `msbench.models.layers.Recurrent`."""
        q, k, v = self.split_heads(x.unsqueeze(1))
        early_k, early_v, block_k, block_v = (past.to(k.dtype) for past in state)
        block_k, block_v = torch.cat([block_k, k], 2), torch.cat([block_v, v], 2)
        keys, values = torch.cat([early_k, block_k], 2), torch.cat([early_v, block_v], 2)
        y = self.merge_heads(scaled_dot_product_attention(q, keys, values)).squeeze(1)
        if block_k.shape[2] < self.block:
            return y, (early_k, early_v, block_k, block_v)
        ends = (x[:, :, -self.summaries :] for x in (block_k, block_v))
        early_k, early_v = (torch.cat(pair, 2) for pair in zip((early_k, early_v), ends, strict=True))
        return y, (early_k, early_v, block_k[:, :, :0], block_v[:, :, :0])

    def find_summaries(self, blocks: int, device: torch.device) -> Tensor:
        """Return the positions of the summaries of the first blocks, (e,)."""
        ends = self.block * torch.arange(1, blocks + 1, device=device).unsqueeze(1)
        return (ends - torch.arange(self.summaries, 0, -1, device=device)).flatten()


def build(config: SparseTransformerConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention and a feed-forward network per layer."""
    return build_transformer(config, info, lambda: FixedSparseAttention(config, info.longest))


FAMILY = Family(
    build,
    count_no_states,
    is_causal=lambda config: True,  # noqa: ARG005
    cost="l sqrt l",
)
