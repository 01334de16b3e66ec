"""H-Transformer-1D (Zhu and Soricut 2021): attention that is coarser the further away it looks.

===========  ==================  ====================================================================
code         paper               meaning
===========  ==================  ====================================================================
``c``        N_r                 block: the numerical rank of the blocks of the matrix off its diagonal
``level``    l                   one position stands for 2^level of them
``q, k``     ~Q^(l), ~K^(l)      means of the queries and keys of these positions
``v``        ~V^(l)              sums of their values
``real``     ~1^(l)              number of real positions among them
``n``        2^(m - l)           blocks of c positions of a level
===========  ==================  ====================================================================

::

    level 0:   block i reads the blocks i - 1, i, i + 1
    level > 0: block i reads i - 1 and i + 1, without the corner next to it, which the level below reads
    y = sum_l up(exp(q k^T / sqrt(w)) v) / sum_l up(exp(q k^T / sqrt(w)) real)        output = out_proj(y)

where up repeats a row for the 2^l positions that it stands for. Each pair of positions is read at one level,
so y is a dense attention in which the score of a pair is that of the means at its level. Up to 2 c positions
it is the softmax itself. Time and memory grow as l c.

Means and numbers are those of real positions, so that padding adds nothing at any level, and any length is
allowed: the last block of each level is filled up. Exponentials have a maximum subtracted, which cancels. The
authors' code adds a learned bias for each distance and level, which the paper does not have.

Layers, projections and initial values are the Transformer's (`msbench.models.transformer`).
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from msbench.config.attention import HTransformerConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import HeadAttention, build_transformer, find_real
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.ops.block_attention import cut_blocks, join_blocks

NOTHING = -1e30
"""Maximum of no score: finite, so that differences are no NaN, and far below any score."""


class Tokens(NamedTuple):
    """The positions of a level: sums over the real ones that each stands for, and their number.

    All are (b, h, t, w), but `real` is (b, 1, t, 1).
    """

    q: Tensor
    k: Tensor
    v: Tensor
    real: Tensor


class WeightedSums(NamedTuple):
    """Sums of exp(score - `top`) times value and number, (b, h, t, w + 1), with the largest score `top`."""

    sums: Tensor
    top: Tensor


class HierarchicalAttention(HeadAttention):
    """Attention of a level of blocks to near ones, and of coarser levels to those further away."""

    def __init__(self, config: HTransformerConfig) -> None:
        super().__init__(config)
        self.block = config.block

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`; in float32 or better under autocast."""
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.to(self.qkv.weight.dtype) for x in (q, k, v))
            return attend_by_levels(q, k, v, find_real(lengths, q.shape[2]).to(q.dtype), self.block)


def attend_by_levels(q: Tensor, k: Tensor, v: Tensor, real: Tensor, size: int) -> Tensor:
    """Attend from every position to all real ones, (b, h, l, w); zeros if there is none.

    Parameters
    ----------
    q, k, v : (b, h, l, w)
    real : (b, 1, l, 1), 1 at real positions and 0 in padding
    size : c, even
    """
    levels = [Tokens(q * (real / q.shape[3] ** 0.5), k * real, v * real, real)]
    # With more than two blocks some are not next to each other, and a coarser level has to read them.
    while levels[-1].q.shape[2] > 2 * size:
        levels.append(Tokens(*(add_pairs(x) for x in levels[-1])))
    total: WeightedSums | None = None
    for index, tokens in reversed(list(enumerate(levels))):
        own = read_neighbours(tokens, size, coarse=index > 0)
        total = own if total is None else add_sums(own, total)
    assert total is not None
    weight = total.sums[..., -1:]
    return total.sums[..., :-1] / weight.masked_fill(weight == 0, 1)


def add_pairs(x: Tensor) -> Tensor:
    """Add each two positions of x (b, h, t, w): (b, h, ceil(t / 2), w)."""
    return torch.unflatten(pad(x, (0, 0, 0, x.shape[2] % 2)), 2, (-1, 2)).sum(3)


def read_neighbours(tokens: Tokens, size: int, *, coarse: bool) -> WeightedSums:
    """Read the keys near each block: itself and its neighbours, or those of a coarse level."""
    length = tokens.q.shape[2]
    parts = tokens.real.clamp(min=1)
    q, k = tokens.q / parts, tokens.k / parts
    values = torch.cat([tokens.v, tokens.real.expand_as(tokens.v[..., :1])], dim=3)
    keys, values, real = (
        join_neighbours(cut_blocks(x, size), coarse=coarse) for x in (k, values, tokens.real)
    )
    hidden = real.mT == 0
    if coarse:
        hidden = hidden | find_read_before(size, q.device)
    scores = (cut_blocks(q, size) @ keys.mT).masked_fill(hidden, -torch.inf)
    top = scores.detach().amax(4, keepdim=True).clamp(min=NOTHING)
    sums = (scores - top).exp() @ values
    return WeightedSums(join_blocks(sums, length), join_blocks(top, length))


def join_neighbours(blocks: Tensor, *, coarse: bool) -> Tensor:
    """Join what is before and after each block of (b, h, n, c, w), and the block itself unless `coarse`."""
    around = pad(blocks, (0, 0, 0, 0, 1, 1))
    near = [around[:, :, :-2], around[:, :, 2:]] if coarse else [around[:, :, :-2], blocks, around[:, :, 2:]]
    return torch.cat(near, dim=3)


def find_read_before(size: int, device: torch.device) -> Tensor:
    """Return True where halves of a block and of its neighbours are next to each other, (c, 2 c)."""
    half = torch.arange(size, device=device) >= size // 2
    first, second = ~half.unsqueeze(1), half.unsqueeze(1)
    return torch.cat([first & half, second & ~half], dim=1)


def add_sums(fine: WeightedSums, coarse: WeightedSums) -> WeightedSums:
    """Add the sums of the next coarser level, repeated for each two positions, to those of a level."""
    length = fine.sums.shape[2]
    sums, top = (x.repeat_interleave(2, dim=2)[:, :, :length] for x in coarse)
    both = torch.maximum(fine.top, top)
    return WeightedSums((fine.top - both).exp() * fine.sums + (top - both).exp() * sums, both)


def build(config: HTransformerConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: hierarchical attention and a feed-forward network per layer."""
    return build_transformer(config, info, lambda: HierarchicalAttention(config))


FAMILY = Family(build, count_no_states, is_causal=lambda _config: False)
