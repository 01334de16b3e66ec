"""Linear attention: Linear Transformer (Katharopoulos et al. 2020), cosFormer (Qin et al. 2022), Performer.

==============  ==============  ================================================================
code            papers          meaning
==============  ==============  ================================================================
``h``, ``w``    H, D            heads, and the width of one, d / h
``f``           C, r, m         features of a query or key
``phi_q``       phi(Q)          features of the queries; ``phi_k`` those of the keys
``values``      V               the values, and a last column of ones, which gives the denominator
``sums``        S and Z         (h, f, w + 1): sums over keys of feature times value, and of features
``longest``     M (cosFormer)   the task's longest sequence
``projection``  Omega, W        the random rows of the Performer (Choromanski et al. 2021), (f, w)
==============  ==============  ================================================================

::

    sums = sum_j phi(k_j) [v_j, 1]^T        [n_i, z_i] = phi(q_i)^T sums        y_i = n_i / z_i

    linear-transformer:  phi(x) = elu(x) + 1                                                     f = w
    cosformer:           phi(x_i) = [relu(x_i) cos a_i, relu(x_i) sin a_i], a_i = pi i / (2 M)   f = 2 w
    performer:           phi(x) = (exp(W x' - |x'|^2 / 2 - c) + 1e-6) / sqrt f, x' = x / w^1/4   f = w ln w

The sum is over all real keys or, with `causal`, over those up to i: then it is the state of a recurrence,
f (w + 1) numbers per head, and the layer can run step by step. Time and memory grow with the length, not with
its square. Layers, projections and initial values are the Transformer's.

* The denominator of the Linear Transformer is z + 1e-6, that of cosFormer at least 1e-6: a query without a
  positive entry has no weights, and the output 0.
* cosFormer's weights are relu(q_i) . relu(k_j) cos(pi (i - j) / (2 M)). In its code M is the length of the
  padded batch, so that padding changes them; here it is the longest of the task.
* Performer's weights estimate those of the softmax (FAVOR+). W has blocks of w orthogonal rows, each of them
  as long as a Gaussian vector. It is drawn once, one for the heads of a layer. c is the largest exponent, of
  the query or of all real keys; for the gradient a constant. Public code takes the orthogonal matrix as it is
  from LAPACK. Its rows are not uniform, and the estimate converges to something else; here its signs are
  corrected. A causal one is not offered, because c would look ahead.
* Padding is masked after phi, as phi(0) is not 0. In Long Range Arena's code, which the ListOps rows come
  from, and in that of cosFormer's rows padded keys take part.

A causal sequence is cut into chunks: within one the weights are computed as a matrix, and the sums of all
chunks before it are added.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, pad, relu

from msbench.config.attention import LinearAttentionConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.attention import HeadAttention, build_transformer, find_real
from msbench.models.classifier import Classifier, Layer
from msbench.models.family import Family

EPSILON = 1e-6
CHUNK = 64
"""Positions per chunk of a causal sequence: a matrix of weights within one is as small as the sums."""


class FeatureMap(nn.Module):
    """A map of queries and keys (b, h, l, w) at `positions` (l,) to features (b, h, l, f)."""

    def map_queries(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return the features of queries."""
        raise NotImplementedError

    def map_keys(self, k: Tensor, positions: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        """Return the features of keys, any at positions that are not `real` (b, 1, l, 1)."""
        return self.map_queries(k, positions)

    def divide(self, n: Tensor, z: Tensor) -> Tensor:
        """Return numerators n (..., w) by denominators z (..., 1)."""
        return n / z.clamp(min=EPSILON)


class EluFeatures(FeatureMap):
    """The features of the Linear Transformer: elu(x) + 1."""

    def map_queries(self, q: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """See `FeatureMap`."""
        return elu(q) + 1

    def divide(self, n: Tensor, z: Tensor) -> Tensor:
        """See `FeatureMap`."""
        return n / (z + EPSILON)


class CosineFeatures(FeatureMap):
    """The features of cosFormer, whose weights fall with the distance, to 0 at `longest`."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.longest = longest

    def map_queries(self, q: Tensor, positions: Tensor) -> Tensor:
        """See `FeatureMap`; positions after `longest` count as the last one, or weights would be negative."""
        angles = positions.clamp(max=self.longest - 1).to(q.dtype) * (math.pi / 2 / self.longest)
        q = relu(q)
        return torch.cat([q * angles.cos().unsqueeze(1), q * angles.sin().unsqueeze(1)], dim=-1)


class RandomFeatures(FeatureMap):
    """The Performer's positive orthogonal random features, whose products estimate exp(q . k / sqrt(w))."""

    projection: Tensor

    def __init__(self, width: int, count: int, epsilon: float = EPSILON) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.register_buffer("projection", draw_orthogonal_rows(count, width))

    def map_queries(self, q: Tensor, positions: Tensor) -> Tensor:  # noqa: ARG002
        """See `FeatureMap`."""
        exponents = self._compute_exponents(q)
        return self._exponentiate(exponents, exponents.detach().amax(3, keepdim=True))

    def map_keys(self, k: Tensor, positions: Tensor, real: Tensor) -> Tensor:  # noqa: ARG002
        """See `FeatureMap`."""
        exponents = self._compute_exponents(k).masked_fill(~real, -math.inf)
        largest = exponents.detach().amax((2, 3), keepdim=True)
        # Without any key the largest is minus infinity too, and the difference would be NaN.
        return self._exponentiate(exponents, largest.clamp(min=torch.finfo(k.dtype).min))

    def divide(self, n: Tensor, z: Tensor) -> Tensor:
        """See `FeatureMap`; only a sequence without positions has a denominator of 0."""
        return n / z.clamp(min=torch.finfo(z.dtype).tiny)

    def _compute_exponents(self, x: Tensor) -> Tensor:
        x = x * x.shape[3] ** -0.25
        return x @ self.projection.mT - x.square().sum(3, keepdim=True) / 2

    def _exponentiate(self, exponents: Tensor, largest: Tensor) -> Tensor:
        features: Tensor = (torch.exp(exponents - largest) + self.epsilon) / math.sqrt(len(self.projection))
        return features


def draw_orthogonal_rows(count: int, width: int) -> Tensor:
    """Draw rows (count, width), each uniform in direction and as long as a Gaussian vector.

    In blocks of `width` rows they are orthogonal to each other.
    """
    blocks = -(-count // width)
    q, r = torch.linalg.qr(torch.randn(blocks, width, width))
    # The signs that LAPACK chooses are not random; with a positive diagonal of r, q is uniform.
    signs = torch.where(r.diagonal(dim1=1, dim2=2) < 0, -1.0, 1.0)
    directions: Tensor = (q * signs.unsqueeze(1)).mT.flatten(0, 1)[:count]
    sizes: Tensor = torch.linalg.vector_norm(torch.randn(count, width), dim=1, keepdim=True)
    return directions * sizes


class LinearAttention(HeadAttention):
    """Attention with weights phi(q)^T phi(k), to all positions; in float32 or better under autocast."""

    def __init__(self, config: LinearAttentionConfig, features: FeatureMap) -> None:
        super().__init__(config)
        self.features = features

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        """See `HeadAttention`."""
        with torch.autocast(q.device.type, enabled=False):
            q, k, v = (x.to(self.dtype) for x in (q, k, v))
            positions, real = torch.arange(q.shape[2], device=q.device), find_real(lengths, q.shape[2])
            phi_q = self.features.map_queries(q, positions)
            phi_k = self.features.map_keys(k, positions, real)
            return self.divide(self.sum_values(phi_q, phi_k, append_ones(v) * real))

    @property
    def dtype(self) -> torch.dtype:
        """The precision of features and sums, that of the weights."""
        return self.qkv.weight.dtype

    def sum_values(self, phi_q: Tensor, phi_k: Tensor, values: Tensor) -> Tensor:
        """Return the sums over keys of weight times value, (b, h, l, w + 1)."""
        return phi_q @ (phi_k.mT @ values)

    def divide(self, sums: Tensor) -> Tensor:
        """Map numerators and denominators (..., w + 1) to their quotients (..., w)."""
        return self.features.divide(sums[..., :-1], sums[..., -1:])


class CausalLinearAttention(LinearAttention):
    """The same attention to a position itself and earlier ones."""

    def sum_values(self, phi_q: Tensor, phi_k: Tensor, values: Tensor) -> Tensor:
        """See `LinearAttention`."""
        return sum_earlier_values(phi_q, phi_k, values)

    def start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.models.layers.Recurrent`: sums over no key (b, h, f, w + 1), the first position."""
        q = x.new_zeros(len(x), self.heads, 1, self.qkv.in_features // self.heads, dtype=self.dtype)
        position = torch.zeros(1, dtype=torch.int64, device=x.device)
        return torch.zeros_like(self.features.map_queries(q, position).mT @ append_ones(q)), position

    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `msbench.models.layers.Recurrent`."""
        sums, position = state
        q, k, v = self.split_heads(x.unsqueeze(1))
        with torch.autocast(x.device.type, enabled=False):
            q, k, v = (each.to(self.dtype) for each in (q, k, v))
            real = torch.ones_like(k[..., :1], dtype=torch.bool)
            sums = sums + self.features.map_keys(k, position, real).mT @ append_ones(v)
            y = self.divide(self.features.map_queries(q, position) @ sums)
        return self.merge_heads(y).squeeze(1), (sums, position + 1)


def append_ones(v: Tensor) -> Tensor:
    """Return v (..., w) with a last column of ones, whose weighted sum is the denominator."""
    return torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)


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


def build_features(config: LinearAttentionConfig, info: TaskInfo) -> FeatureMap:
    """Return a layer's feature map."""
    if config.feature_map == "elu":
        return EluFeatures()
    if config.feature_map == "cosine":
        return CosineFeatures(info.longest)
    return RandomFeatures(config.head_width, config.feature_count)


def build(config: LinearAttentionConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: linear attention and a feed-forward network per layer."""

    def build_attention() -> Layer:
        attention = CausalLinearAttention if config.causal else LinearAttention
        return attention(config, build_features(config, info))

    return build_transformer(config, info, build_attention)


def count_states(config: LinearAttentionConfig) -> int:
    """See `Family`: the sums of a causal layer, spread over its channels."""
    return config.feature_count // config.head_width * (config.head_width + 1) if config.causal else 0


FAMILY = Family(build, count_states, is_causal=lambda config: config.causal)
