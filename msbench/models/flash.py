"""FLASH (Hua et al. 2022): gated attention units, over all positions or over chunks and all of them linearly.

==================  ==================  ==================================================================
code                paper               meaning
==================  ==================  ==================================================================
``s``, ``e``        s, e                widths of queries and keys, of values and gates
``c``               C                   positions per chunk (`chunk`)
``u``, ``v``        U, V                gates and values
``z``               Z                   what queries and keys are made of
``q``, ``k``        Q^quad, K^quad      those of the attention within a chunk
``lin_q, lin_k``    Q^lin, K^lin        those of the linear attention
``bias``            b                   of each lag, learned or by rotations
``n``               T                   length of a sequence
==================  ==================  ==================================================================

::

    (u, v, z) = silu(in_proj(x))                 (q, k, lin_q, lin_k) = rotate(z scale + offset)
    y_i = sum_j relu(q_i^T k_j / c + bias_{j-i})^2 v_j + lin_q_i^T (sum_l lin_k_l v_l^T) / n
    output = out_proj(u y)

j runs over the chunk of i, and l over the whole sequence. Without chunks (``chunk: null``) the layer is the
gated attention unit (GAU) alone: j runs over the whole sequence, n stands for c, and there is no second sum.
A layer is one such unit with norm and residual; it has no feed-forward network. As in the paper queries and
keys are rotated by their positions (RoPE), and the bias is a number for each lag up to a size of 512, and
above that the product of two rotated vectors; those in the encoder are learned, where it has scaled sines.

n is a sequence's own length, and padding has no weight, so that it changes nothing. Nothing says which of the
two the printed row is, with chunks or without. In the nearest code, OpenNLPLab's, both sums are divided by c,
and there is another norm inside of the layer; linear maps start as torch's, as they do there.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.attention import FlashConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family, count_no_states
from msbench.models.gated_attention import START_STD, LagBias, ScaledOffsets, attend

LARGEST_TABLE = 512
"""Positions up to which each lag has a bias of its own."""
LONGEST_WAVE = 10_000.0
"""Longest wavelength of the rotations, in positions, divided by 2 pi."""


class RotaryBias(nn.Module):
    """A bias of each lag: the product of two vectors, rotated by the positions of the query and the key."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(width).normal_(std=START_STD))
        self.key = nn.Parameter(torch.empty(width).normal_(std=START_STD))

    def forward(self, length: int) -> Tensor:
        """Return the biases (2 length - 1,) of the lags 1 - length .. length - 1; in float32 or better."""
        (a, b), (c, d) = self.query.chunk(2), self.key.chunk(2)
        lags = torch.arange(1 - length, length, device=a.device)
        cos, sin = compute_rotations(lags, len(self.query), a.dtype)
        with torch.autocast(a.device.type, enabled=False):
            return cos @ (a * c + b * d) + sin @ (b * c - a * d)


class FlashUnit(nn.Module):
    """A gated attention unit, with chunks and a linear attention to all of them, or neither."""

    def __init__(self, config: FlashConfig, longest: int) -> None:
        super().__init__()
        d, s, e = config.d_model, config.key_dim, round(config.expand * config.d_model)
        self.chunk = config.chunk
        self.sizes = [e, e, s]
        self.in_proj = nn.Linear(d, sum(self.sizes))
        self.out_proj = nn.Linear(e, d)
        self.queries_keys = ScaledOffsets(s, 2 if config.chunk is None else 4)
        largest = min(config.chunk or longest, longest)
        self.bias = LagBias(largest) if largest <= LARGEST_TABLE else RotaryBias(s)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        u, v, z = torch.split(functional.silu(self.in_proj(inputs)), self.sizes, dim=-1)
        q, k, *linear = (rotate_by_position(x) for x in self.queries_keys(z))
        y = attend(q, k, v, self.bias, lengths, "relu2", chunk=self.chunk, divisor=self.chunk)
        if linear:
            lin_q, lin_k = linear
            y = y + attend_linearly(lin_q, lin_k, v, lengths)
        out: Tensor = self.out_proj(u * y)
        return out


def attend_linearly(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Return q (sum of k v^T over a sequence) / its length, (b, l, e); see `attend` for the shapes."""
    counts = lengths.clamp(min=1).view(-1, 1, 1)
    real = torch.arange(k.shape[1], device=k.device).unsqueeze(1) < lengths.view(-1, 1, 1)
    return q @ ((k * real / counts).mT @ v)


def rotate_by_position(x: Tensor) -> Tensor:
    """Rotate the pairs of x (b, l, s) by their positions (RoPE); the halves of s are the pairs' two parts.

    Angles are float32 or better: bfloat16 cannot distinguish positions beyond 256.
    """
    positions = torch.arange(x.shape[1], device=x.device)
    cos, sin = compute_rotations(positions, x.shape[2], torch.promote_types(x.dtype, torch.float32))
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def compute_rotations(positions: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines (n, width / 2) of the angles of positions (n,)."""
    exponents = torch.arange(width // 2, device=positions.device, dtype=dtype) / (width // 2)
    angles = positions.unsqueeze(1) * LONGEST_WAVE**-exponents
    return angles.cos(), angles.sin()


def build(config: FlashConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one unit per layer."""
    return build_classifier(config, info, lambda: FlashUnit(config, info.longest))


FAMILY = Family(build, count_no_states, is_causal=lambda _config: False)
