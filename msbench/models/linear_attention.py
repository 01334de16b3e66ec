"""Linear attention: the Linear Transformer (Katharopoulos et al. 2020).

==============  ==============  ================================================================
code            paper           meaning
==============  ==============  ================================================================
``h``, ``w``    H, D            heads, and the width of one, d / h
``f``           C               features of a query or key
``phi_q``       phi(Q)          features of the queries; ``phi_k`` those of the keys
``values``      V               the values, and a last column of ones, which gives the denominator
``sums``        S and Z         (h, f, w + 1): sums over keys of feature times value, and of features
==============  ==============  ================================================================

::

    sums = sum_j phi(k_j) [v_j, 1]^T        [n_i, z_i] = phi(q_i)^T sums        y_i = n_i / (z_i + 1e-6)

with phi(x) = elu(x) + 1 and no scale of the products. The sum is over all real keys or, with `causal`, over
those up to i: then it is the state of a recurrence, as wide as f (w + 1) per head, and the layer can run step
by step. Time and memory grow with the length, not with its square.

Layers, projections and initial values are the Transformer's. Padding is masked after phi, as phi(0) is 1;
Long Range Arena's code, whose number the paper's table prints, lets padded keys take part.

A causal sequence is cut into chunks: within one the weights are computed as a matrix, and the sums of all
chunks before it are added.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad

from msbench.config.attention import LinearAttentionConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import HeadAttention, build_transformer, find_real
from msbench.models.classifier import Classifier, Layer
from msbench.models.family import Family

EPSILON = 1e-6
CHUNK = 64
"""Positions per chunk of a causal sequence: a matrix of weights within one is as small as the sums."""


class EluFeatures(nn.Module):
    """The positive features elu(x) + 1 of the Linear Transformer."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., w) to (..., w)."""
        return elu(x) + 1


class LinearAttention(HeadAttention):
    """Attention with weights phi(q)^T phi(k), to all positions; in float32 or better under autocast."""

    def __init__(self, config: LinearAttentionConfig) -> None:
        super().__init__(config)
        self.features = EluFeatures()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`."""
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.to(self.dtype) for x in (q, k, v))
            values = append_ones(v) * find_real(lengths, v.shape[2])
            return divide(self.sum_values(self.features(q), self.features(k), values))

    @property
    def dtype(self) -> torch.dtype:
        """The precision of features and sums, that of the weights."""
        return self.qkv.weight.dtype

    def sum_values(self, phi_q: Tensor, phi_k: Tensor, values: Tensor) -> Tensor:
        """Return the sums over keys of weight times value, (b, h, l, w + 1)."""
        return phi_q @ (phi_k.mT @ values)


class CausalLinearAttention(LinearAttention):
    """The same attention to a position itself and earlier ones."""

    def sum_values(self, phi_q: Tensor, phi_k: Tensor, values: Tensor) -> Tensor:
        """See `LinearAttention`."""
        return sum_earlier_values(phi_q, phi_k, values)

    def start(self, x: Tensor) -> Tensor:
        """See `msbench.models.layers.Recurrent`: sums over no key, (b, h, f, w + 1)."""
        width = self.qkv.in_features // self.heads
        return x.new_zeros(len(x), self.heads, width, width + 1, dtype=self.dtype)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.models.layers.Recurrent`."""
        q, k, v = self.split_heads(x.unsqueeze(1))
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (each.to(self.dtype) for each in (q, k, v))
            sums = state + self.features(k).mT @ append_ones(v)
            y = divide(self.features(q) @ sums)
        return self.merge_heads(y).squeeze(1), sums


def append_ones(v: Tensor) -> Tensor:
    """Return v (..., w) with a last column of ones, whose weighted sum is the denominator."""
    return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


def divide(sums: Tensor) -> Tensor:
    """Map numerators and denominators (..., w + 1) to their quotients (..., w)."""
    return sums[..., :-1] / (sums[..., -1:] + EPSILON)


def sum_earlier_values(phi_q: Tensor, phi_k: Tensor, values: Tensor, chunk: int = CHUNK) -> Tensor:
    """Return sum_{j <= i} phi_q_i^T phi_k_j values_j for every i, (b, h, l, w + 1).

    Parameters
    ----------
    phi_q, phi_k : (b, h, l, f)
    values : (b, h, l, w + 1)
    chunk : positions whose weights among each other are computed as a matrix
    """
    b, heads, length = phi_q.shape[:3]
    phi_q, phi_k, values = (
        pad(x, (0, 0, 0, -length % chunk)).view(b, heads, -1, chunk, x.shape[3])
        for x in (phi_q, phi_k, values)
    )
    sums = phi_k.mT @ values
    # A product with a triangle of ones, because cumsum has no fixed order of additions on a GPU.
    chunks = torch.ones(sums.shape[2], sums.shape[2], dtype=sums.dtype, device=sums.device).tril(-1)
    before = (chunks @ sums.flatten(3)).view_as(sums)
    within = (phi_q @ phi_k.mT).tril() @ values
    return (within + phi_q @ before).flatten(2, 3)[:, :, :length]


def build(config: LinearAttentionConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: linear attention and a feed-forward network per layer."""

    def build_attention() -> Layer:
        return CausalLinearAttention(config) if config.causal else LinearAttention(config)

    return build_transformer(config, info, build_attention)


def count_states(config: LinearAttentionConfig) -> int:
    """See `Family`: the sums of a causal layer, spread over its channels."""
    width = config.d_model // config.heads
    return width + 1 if config.causal else 0


def count_activations(config: LinearAttentionConfig, device: str) -> float:
    """See `Family`."""
    del device
    return (9 + 2 * config.mlp_expand) * config.d_model


FAMILY = Family(build, count_states, count_activations, is_causal=lambda config: config.causal)
