"""Reformer (Kitaev et al. 2020): attention within chunks of positions that a hash has sorted.

==============  ==================  ====================================================================
code            paper               meaning
==============  ==================  ====================================================================
``q``, ``k``    q_i, k_i            queries; keys are the same vectors, with length 1
``r``           n_rounds            rounds of hashing
``buckets``     b                   values of a hash: powers of two near 2 longest / c, or as set
``rotations``   R                   (h, w, r, buckets / 2), normal; drawn when the model is built
``c``, ``n``    m, -                positions of a chunk, chunks
``slots``       s_i                 places of a round's sorted order
==============  ==================  ====================================================================

::

    hash:    bucket = argmax([q R, -q R])
    sort:    by bucket, then by position; padding behind everything
    attend:  o = softmax(q k^T) v over the own chunk and the one before it, without the position itself
    rounds:  y = sum_r exp(z_r) o_r / sum_r exp(z_r)       z = log sum exp(q k^T)       output = out_proj(y)

So y is one softmax over all positions that a round brings into the same or the next chunk; a pair counts once
a round. A position sees itself if there is no other. The first chunk has before it the last real one of the
same sequence and round: the order is a ring, of which padding is no part. The number of buckets follows from
the task's longest sequence. Neither order nor buckets have a gradient. A hash is compared with half of the
buckets, so that time grows as l c + l^2 / c; published codes share out the buckets of sequences above some
thousand positions to two shorter hashes.

Rotations stay those of the start, where published codes draw them anew at each call, in evaluation too. With
several rounds those codes let a round's first chunk see the last of the round before. Reversible residuals,
feed-forward networks in pieces and axial positions save memory and are left out. Everything else is the
Transformer's (`msbench.models.transformer`), without biases in the projections.
"""

import torch
from torch import Tensor, nn

from msbench.config.attention import ReformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import build_transformer
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.ops.block_attention import (
    attend_blocks,
    cut_blocks,
    find_real_keys,
    gather_blocks,
    join_blocks,
    locate_keys,
    locate_queries,
)

EPSILON = 1e-6
NOTHING = -1e30
"""Largest score of no key: finite, so that differences are no NaN."""


class LshAttention(nn.Module):
    """Attention to positions of similar direction, found by locality-sensitive hashing."""

    rotations: Tensor

    def __init__(self, config: ReformerConfig, longest: int) -> None:
        super().__init__()
        d = config.d_model
        self.heads, self.chunk = config.heads, config.chunk
        self.qk, self.v = nn.Linear(d, d, bias=False), nn.Linear(d, d, bias=False)
        self.out_proj = nn.Linear(d, d, bias=False)
        for layer in (self.qk, self.v, self.out_proj):
            nn.init.xavier_uniform_(layer.weight)
        buckets = config.buckets or choose_buckets(longest, config.chunk)
        rotations = torch.randn(config.heads, d // config.heads, config.rounds, buckets // 2)
        self.register_buffer("rotations", rotations)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d); attention is in float32 or better under autocast."""
        v = self._split_heads(self.v(inputs))
        with torch.autocast(inputs.device.type, enabled=False):
            # The queries too, as their rounding would move positions to other buckets.
            q = self._split_heads(self.qk(inputs.to(self.qk.weight.dtype)))
            slots = sort_by_hash(q, self.rotations, lengths)
            y = attend_in_order(q, v.to(q.dtype), slots, lengths, self.chunk)
        out: Tensor = self.out_proj(y.transpose(1, 2).flatten(2))
        return out

    def _split_heads(self, x: Tensor) -> Tensor:
        return torch.unflatten(x, 2, (self.heads, -1)).transpose(1, 2)


def choose_buckets(longest: int, chunk: int) -> int:
    """Return the largest power of two that is at most twice the number of whole chunks, and at least 2."""
    return 1 << (2 * max(1, longest // chunk)).bit_length() - 1


@torch.no_grad()
def sort_by_hash(q: Tensor, rotations: Tensor, lengths: Tensor) -> Tensor:
    """Return the positions in the order of each round, (b, h, r, l), padding behind all real ones.

    Parameters
    ----------
    q : (b, h, l, w)
    rotations : (h, w, r, buckets / 2)
    lengths : (b,)
    """
    length, half = q.shape[2], rotations.shape[3]
    rotated = torch.einsum("bhlw,hwrf->bhrlf", q, rotations)
    buckets = torch.cat([rotated, -rotated], dim=4).argmax(4)
    positions = torch.arange(length, device=q.device)
    buckets = buckets.masked_fill(positions >= lengths.view(-1, 1, 1, 1), 2 * half)
    # No two are equal, so that the order depends on no algorithm.
    return (buckets * length + positions).argsort(3)


def attend_in_order(q: Tensor, v: Tensor, slots: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Attend within chunks of each order and to the chunk before, and join the orders: (b, h, l, w).

    Parameters
    ----------
    q, v : (b, h, l, w)
    slots : the orders, (b, h, r, l)
    lengths : (b,)
    size : c
    """
    _, heads, rounds, length = slots.shape
    k = q * (q.square().mean(3, keepdim=True) + EPSILON).rsqrt() * q.shape[3] ** -0.5
    sections, keys, values = (cut_blocks(sort_rows(x, slots), size) for x in (q, k, v))
    blocks = list_chunks(sections.shape[2], size, lengths)
    keep = find_seen(blocks, size, lengths)
    keys, values = gather_blocks(keys, blocks), gather_blocks(values, blocks)
    back = slots.argsort(3).flatten(1, 2)
    if rounds == 1:
        # The softmax of torch divides scores by the root of the width.
        y = attend_blocks(sections * q.shape[3] ** 0.5, keys, values, keep)
        return sort_rows(join_blocks(y, length), back.unsqueeze(2))
    y, z = attend_with_sums(sections, keys, values, keep)
    y, z = (sort_rows(join_blocks(x, length), back.unsqueeze(2)) for x in (y, z))
    shares = torch.unflatten(z, 1, (heads, rounds)).softmax(2)
    return (shares * torch.unflatten(y, 1, (heads, rounds))).sum(2)


def sort_rows(x: Tensor, order: Tensor) -> Tensor:
    """Copy the rows of x (b, h, l, w) in the orders (b, h, r, l): (b, h r, l, w)."""
    rows = x.unsqueeze(2).expand(-1, -1, order.shape[2], -1, -1)
    return rows.gather(3, order.unsqueeze(4).expand_as(rows)).flatten(1, 2)


def list_chunks(n: int, size: int, lengths: Tensor) -> Tensor:
    """List each chunk and the one before it in the ring of the sequence's own, (b, 1, n, 2 or 1).

    An only chunk is before itself: all its keys count twice, which changes no softmax.
    """
    chunks = torch.arange(n, device=lengths.device)
    if n == 1:
        return chunks.view(1, 1, 1, 1)
    last = (lengths.clamp(min=1) - 1).unsqueeze(1) // size
    before = torch.where(chunks == 0, last, chunks - 1)
    return torch.stack([before, chunks.expand_as(before)], dim=2).unsqueeze(1)


def find_seen(blocks: Tensor, size: int, lengths: Tensor) -> Tensor:
    """Return True where a slot sees another one of its chunks, (b, 1, n, c, 2 c)."""
    keys = locate_keys(blocks, size)
    other = keys != locate_queries(blocks.shape[2], size, blocks.device)
    return find_real_keys(keys, lengths) & (other | (lengths == 1).view(-1, 1, 1, 1, 1))


def attend_with_sums(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs (b, h, n, c, w) of blocks, and the logarithms of their sums of exponentials."""
    scores = (q @ k.mT).masked_fill(~keep, NOTHING)
    top = scores.detach().amax(4, keepdim=True)
    sums = (scores - top).exp() @ torch.cat([v, torch.ones_like(v[..., :1])], dim=4)
    return sums[..., :-1] / sums[..., -1:], sums[..., -1:].log() + top


def build(config: ReformerConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: hashed attention and a feed-forward network per layer."""
    return build_transformer(config, info, lambda: LshAttention(config, info.longest))


FAMILY = Family(build, count_no_states, is_causal=lambda _config: False, cost="l^2")
