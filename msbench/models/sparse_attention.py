"""Transformers in which a query sees a few keys, chosen by position: Local Attention, Longformer, BigBird.

============  ================  ======================================================================
code          papers            meaning
============  ================  ======================================================================
``i, j``      i, j              positions of a query and of a key, from 0
``lengths``   n                 a sequence's own length; keys from there on are padding
``size``      b                 c: positions of a block; ``block`` in the configs
``reach``     w / 2             reach of a window to either side
``tokens``    -                 g: first positions, which see all and are seen by all (global attention)
``last``      -                 a sequence's own last block, floor((n - 1) / c)
``ranks``     -                 order in which blocks are drawn at random, for each head and block of queries
============  ================  ======================================================================

::

    output_i = out_proj(sum_j a_ij v_j)      a_i = softmax over S(i) of q_i k_j / sqrt(w)

    Local Attention   S(i) = {j: floor(j / c) = floor(i / c)}
    Longformer        S(i) = {j: |i - j| <= floor(w / 2) or j < g}, and all positions for i < g
    BigBird           S(i) = the blocks 0, B - 1, B, B + 1, last and r random ones for i in block B,
                      and all positions for i in block 0 or last

Keys behind the end of a sequence are never in S(i). Everything around S is the Transformer's
(`msbench.models.attention`).

Local Attention (Tay et al. 2020, Long Range Arena): the code of that benchmark reshapes the sequence so that
a block has every (l / c)-th position; here a block is contiguous, as its paper describes it.

Longformer (Beltagy et al. 2020): the first g positions have their own projections for their global attention,
which start equal to the others; with g = 0 there are none. Dilated windows, which need a kernel of their own,
are left out.

BigBird (Zaheer et al. 2020), the form by blocks. The published code takes the last block of the padded batch,
and random blocks for a few padded lengths; here both are those of a sequence's own length, so that padding
changes nothing. A head draws an order of all blocks for each block of queries, once, when the model is built;
the random blocks of a sequence are the first r of that order that it has and does not see anyway. So each has
r of them, if it is long enough, and no key counts twice.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from msbench.config.attention import AttentionConfig, BigBirdConfig, LocalAttentionConfig, LongformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import DataError
from msbench.models.attention import HeadAttention, build_transformer
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.models.transformer import build_key_mask
from msbench.ops.block_attention import (
    append_keys,
    attend_blocks,
    block_attention,
    cut_blocks,
    find_real_keys,
    gather_blocks,
    join_blocks,
    list_near_blocks,
    locate_keys,
    locate_queries,
)


class BlockLocalAttention(HeadAttention):
    """Attention within contiguous blocks."""

    def __init__(self, config: LocalAttentionConfig) -> None:
        super().__init__(config)
        self.size = config.block

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`."""
        return block_attention(q, k, v, self.size, lengths)


class WindowAttention(HeadAttention):
    """Attention within a window around each position, and from and to the first `tokens` positions."""

    def __init__(self, config: LongformerConfig) -> None:
        super().__init__(config)
        self.reach, self.tokens = config.window // 2, config.global_tokens
        self.global_q: nn.Linear | None = None
        self.global_kv: nn.Linear | None = None
        if self.tokens:
            d = config.d_model
            self.global_q, self.global_kv = nn.Linear(d, d), nn.Linear(d, 2 * d)
            for layer, rows in ((self.global_q, slice(0, d)), (self.global_kv, slice(d, 3 * d))):
                layer.weight.data.copy_(self.qkv.weight.data[rows])
                nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        y = self.attend(*self.split_heads(inputs), lengths)
        if self.tokens:
            y = torch.cat([self.attend_globally(inputs, lengths), y[:, :, self.tokens :]], dim=2)
        return self.merge_heads(y)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`."""
        length = q.shape[2]
        # Half a window, so that a block and its two neighbours hold every window; or all in one block.
        size = max(1, min(self.reach, length))
        sections, keys, values = (cut_blocks(x, size) for x in (q, k, v))
        n = sections.shape[2]
        side = 0 if n == 1 else 1
        near = list_near_blocks(n, side, side, q.device).view(1, 1, n, -1)
        found = locate_keys(near, size)
        keep = (locate_queries(n, size, q.device) - found).abs() <= self.reach
        keep = keep & find_real_keys(found, lengths)
        keys, values = gather_blocks(keys, near), gather_blocks(values, near)
        if self.tokens:  # taken out of the windows, so that a key counts once
            first = torch.arange(min(self.tokens, length), device=q.device)
            seen = find_real_keys(first.view(1, 1, 1, 1, -1), lengths)
            keep = torch.cat([keep & (found >= self.tokens), seen.expand(-1, -1, n, size, -1)], dim=4)
            keys, values = (append_keys(x, y[:, :, : self.tokens]) for x, y in ((keys, k), (values, v)))
        return join_blocks(attend_blocks(sections, keys, values, keep), length)

    def attend_globally(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Return the outputs (b, h, g, w) of the first positions, which see all."""
        assert self.global_q is not None
        assert self.global_kv is not None
        q = self.global_q(inputs[:, : self.tokens]).unflatten(2, (self.heads, -1)).transpose(1, 2)
        kv = self.global_kv(inputs).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        k, v = kv.unbind(0)
        return scaled_dot_product_attention(q, k, v, attn_mask=build_key_mask(lengths, k.shape[2]))


class RandomBlockAttention(HeadAttention):
    """Attention to near blocks, the first and the last one, and to random ones."""

    ranks: Tensor

    def __init__(self, config: BigBirdConfig, longest: int) -> None:
        super().__init__(config)
        self.size, self.random = config.block, config.random_blocks
        most = -(-longest // self.size)
        orders = torch.rand(config.heads, most, most).argsort(dim=-1)
        self.register_buffer("ranks", orders.to(torch.int32))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`; raise DataError beyond the length that random blocks are drawn for."""
        length = q.shape[2]
        last = (lengths - 1).clamp(min=0) // self.size
        sections, seen = cut_blocks(q, self.size), build_key_mask(lengths, length)
        n = sections.shape[2]
        if n > self.ranks.shape[1]:
            raise DataError(
                f"a sequence has {n} blocks, but random blocks are drawn for {self.ranks.shape[1]}, those of"
                " the task's longest sequence; set the task up again"
            )
        if n <= 4 + self.random:  # no block of these is left out
            return scaled_dot_product_attention(q, k, v, attn_mask=seen)
        y = cut_blocks(block_attention(q, k, v, self.size, lengths, self.list_blocks(last, n)), self.size)
        ends = gather_blocks(sections, torch.stack([torch.zeros_like(last), last], 1).view(-1, 1, 1, 2))
        first, final = scaled_dot_product_attention(ends[:, :, 0], k, v, attn_mask=seen).chunk(2, dim=2)
        is_last = torch.arange(n, device=q.device) == last.unsqueeze(1)
        y = torch.where(is_last.view(-1, 1, n, 1, 1), final.unsqueeze(2), y)
        return join_blocks(torch.cat([first.unsqueeze(2), y[:, :, 1:]], dim=2), length)

    def list_blocks(self, last: Tensor, n: int) -> Tensor:
        """List the blocks of keys of each of n blocks of queries, (b, h, n, m), each once, -1 for none.

        `last` (b,) is each sequence's last block.
        """
        blocks = torch.arange(n, device=last.device)
        near = list_near_blocks(n, 1, 1, last.device).expand(len(last), -1, -1)
        ends = torch.stack([torch.zeros_like(last), last], 1).unsqueeze(1).expand(-1, n, -1)
        fixed = torch.cat([ends, near], dim=2)
        twice = (fixed.unsqueeze(3) == fixed.unsqueeze(2)).tril(-1).any(3)
        fixed = torch.where(twice | (fixed > last.view(-1, 1, 1)), -1, fixed).unsqueeze(1)
        taken = (fixed.unsqueeze(4) == blocks).any(3) | (blocks > last.view(-1, 1, 1, 1))
        most = self.ranks.shape[2]
        ranks = torch.where(taken, most, self.ranks[:, :n, :n])
        found, drawn = ranks.topk(min(self.random, n), largest=False)
        drawn = torch.where(found < most, drawn, -1)
        return torch.cat([fixed.expand(-1, self.heads, -1, -1), drawn], dim=3)


def build(config: AttentionConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention and a feed-forward network per layer."""

    def build_attention() -> HeadAttention:
        if isinstance(config, LocalAttentionConfig):
            return BlockLocalAttention(config)
        if isinstance(config, LongformerConfig):
            return WindowAttention(config)
        assert isinstance(config, BigBirdConfig)
        return RandomBlockAttention(config, info.longest)

    return build_transformer(config, info, build_attention)


FAMILY = Family(build, count_no_states, is_causal=lambda config: False)  # noqa: ARG005
