"""Sinkhorn Transformer (Tay et al. 2020): attention within blocks, and to a learned reordering of them.

===============  ==================  ===================================================================
code             paper               meaning
===============  ==================  ===================================================================
``c``, ``n``     b, N_B              positions of a block, blocks
``sums``         psi(X)              sums of the layer's inputs over the positions of each block
``sort_net``     P                   the sorting network: a linear map to a number for each block and head
``mixing``       R                   the sorting matrix (n, n): sorted block i is sum_j R_ij block_j
``share``        -                   part of R's weight that is on real positions; 1 without padding
===============  ==================  ===================================================================

::

    R = sinkhorn(sort_net(sums) / temperature)          k' = R k          v' = R v
    y_i = softmax(q_i [k', k]^T / sqrt(w)) [v', v]      output = out_proj(y)

where a block of queries sees the sorted and the own block of the same number. sinkhorn divides exp of its
input by the sums of its rows and then of its columns, a few times, in logarithms. Memory grows as l c + n^2,
and time as l c + l n, since a sorted position is a sum over all n = l / c blocks.

Blocks behind the end of a sequence are left out of every sum. A position of a sorted block mixes one of each
block. Where some of these are padding, it is the mean of the real ones, and its weight in the softmax is
multiplied by their share, so that nobody sees what is sorted to padding.

The paper adds Gumbel noise to the network's numbers in training; here there is none. No sequence may be
longer than the task's longest, as the sorting network has an output for each block. Everything else is the
Transformer's (`msbench.models.transformer`).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from msbench.config.attention import SinkhornConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import DataError
from msbench.models.attention import HeadAttention, build_transformer, find_real
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.ops.block_attention import attend_blocks, cut_blocks, join_blocks

NOTHING = -1e30
"""Logarithm of no weight: finite, so that differences are no NaN."""


class SinkhornAttention(HeadAttention):
    """Attention to the own block and to a mixture of all blocks that stands for another one."""

    def __init__(self, config: SinkhornConfig, longest: int) -> None:
        super().__init__(config)
        self.block, self.iterations, self.temperature = config.block, config.iterations, config.temperature
        self.blocks = -(-longest // config.block)
        self.sort_net = nn.Linear(config.d_model, config.heads * self.blocks, bias=False)
        nn.init.xavier_uniform_(self.sort_net.weight)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d), in float32 or better under autocast but for the projections."""
        q, k, v = self.split_heads(inputs)
        with torch.autocast(inputs.device.type, enabled=False):
            dtype = self.qkv.weight.dtype
            mixing = self.sort_blocks(inputs.to(dtype), lengths)
            y = attend_to_sorted(q.to(dtype), k.to(dtype), v.to(dtype), mixing, lengths, self.block)
        return self.merge_heads(y)

    def sort_blocks(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Return the sorting matrices (b, h, n, n) of inputs (b, l, d), zero in padding."""
        real = find_real(lengths, inputs.shape[1])
        sums = cut_blocks(inputs.unsqueeze(1) * real, self.block).sum(3).squeeze(1)
        n = sums.shape[1]
        if n > self.blocks:
            raise DataError(
                f"a sequence has {inputs.shape[1]} positions, but the sorting network ends at"
                f" {self.blocks} blocks of {self.block}; set the task up again, or raise model.block"
            )
        scores = torch.unflatten(self.sort_net(sums), 2, (-1, self.blocks))[..., :n].transpose(1, 2)
        begun = cut_blocks(real.to(inputs.dtype), self.block)[..., 0, 0]
        return compute_sinkhorn(scores / self.temperature, begun > 0, self.iterations)


def compute_sinkhorn(scores: Tensor, real: Tensor, iterations: int) -> Tensor:
    """Return matrices with sums of rows and columns near 1 among the real blocks, 0 elsewhere.

    Parameters
    ----------
    scores : (b, h, n, n), logarithms of a positive matrix
    real : (b, 1, n), False for blocks of padding alone
    iterations : divisions by the sums of rows, then of columns
    """
    hidden = ~(real.unsqueeze(3) & real.unsqueeze(2))
    logs = scores.masked_fill(hidden, NOTHING)
    for _ in range(iterations):
        for axis in (3, 2):
            logs = (logs - logs.logsumexp(axis, keepdim=True)).masked_fill(hidden, NOTHING)
    return logs.exp()


def attend_to_sorted(q: Tensor, k: Tensor, v: Tensor, mixing: Tensor, lengths: Tensor, size: int) -> Tensor:
    """Attend from each block to itself and to the sorted block of its number, (b, h, l, w).

    Parameters
    ----------
    q, k, v : (b, h, l, w)
    mixing : the sorting matrices (b, h, n, n)
    lengths : (b,)
    size : c
    """
    length, width = q.shape[2:]
    real = cut_blocks(find_real(lengths, length).to(q.dtype), size)
    sections, keys, values = (cut_blocks(x, size) for x in (q, k, v))
    weight = mixing @ real.squeeze(4)
    # Of a smaller share the square, which is in the gradients of quotients, would be 0.
    least = torch.finfo(q.dtype).tiny ** 0.5
    share = weight / mixing.sum(3, keepdim=True).clamp(min=least)
    seen = share > least
    share = share.masked_fill(~seen, 1).unsqueeze(4)
    sorted_keys, sorted_values = (
        torch.unflatten(mixing @ (x * real).flatten(3), 3, (size, width)) / share for x in (keys, values)
    )
    # A key's further channel, next to one of the queries, adds the logarithm of its share to the score.
    sections = pad(sections * ((width + 1) / width) ** 0.5, (0, 1), value=(width + 1) ** 0.5)
    keys = torch.cat([torch.cat([sorted_keys, share.log()], dim=4), pad(keys, (0, 1))], dim=3)
    values = pad(torch.cat([sorted_values, values], dim=3), (0, 1))
    keep = torch.cat([seen, (real.squeeze(4) > 0).expand_as(seen)], dim=3).unsqueeze(3)
    return join_blocks(attend_blocks(sections, keys, values, keep)[..., :-1], length)


def build(config: SinkhornConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: attention to sorted blocks and a feed-forward network per layer."""
    return build_transformer(config, info, lambda: SinkhornAttention(config, info.longest))


FAMILY = Family(build, count_no_states, is_causal=lambda _config: False, cost="l^2")
