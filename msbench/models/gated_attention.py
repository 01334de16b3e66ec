"""Attention with one head whose outputs are gated: what FLASH and Mega share.

==================  ==============  ==============  ==========================================================
code                FLASH           Mega            meaning
==================  ==============  ==============  ==========================================================
``s``               s               z               width of queries and keys (`key_dim`)
``e``               e               v               width of values (`expand` times d)
``c``               C               c               positions per chunk (`chunk`)
``z``               Z               Z               the one map of the input that queries and keys are made of
``scale, offset``   gamma, beta     kappa, mu       of each channel, one row for queries and one for keys
``bias``            b               b_rel           added to a score, by its lag: key minus query position
``m``               n               n               real keys that a query can see
==================  ==============  ==============  ==========================================================

::

    (q, k) = z scale + offset
    relu2:     A = relu(q k^T / m + bias)^2
    laplace:   A = Phi((q k^T / m + bias - mu) / sigma)        mu = sqrt(1/2), sigma^2 = 1/(4 pi)
    softmax:   A = softmax(q k^T / sqrt(s) + bias)
    output = A v

Phi is the normal distribution. Rows of the first two do not sum to 1. Padding has weight 0, which under
laplace a score of 0 has not. In chunks, counted from a sequence's start, a query sees its own chunk alone,
and m is that of the chunk; the last one may be shorter.

No l x l matrix is kept: weights are computed for some queries at a time, and again in the backward.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

Activation = Literal["softmax", "laplace", "relu2"]

START_STD = 0.02
"""Standard deviation of weights at the start: of all of Mega's, and of FLASH's scales and biases."""
ELEMENTS = {"cpu": 2**22}
"""Scores at a time, by device."""
MANY_ELEMENTS = 2**26
"""Scores at a time on other devices."""
LAPLACE_MEAN, LAPLACE_STD = math.sqrt(1 / 2), math.sqrt(1 / (4 * math.pi))
"""Those with which laplace is near relu2, in value and slope, at sqrt(2)."""


def build_linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a linear map with weights from N(0, 0.02^2) and a bias of zeros."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=START_STD)
    nn.init.zeros_(layer.bias)
    return layer


class ScaledOffsets(nn.Module):
    """Several vectors from one, ``z scale + offset``, each with a scale and an offset of its own."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(count, width).normal_(std=START_STD))
        self.offset = nn.Parameter(torch.zeros(count, width))
        self.optimizer_groups = {"offset": "plain"}

    def forward(self, z: Tensor) -> tuple[Tensor, ...]:
        """Map z (..., s) to `count` tensors (..., s)."""
        return (z.unsqueeze(-2) * self.scale + self.offset).unbind(-2)


class LagBias(nn.Module):
    """A learned number for each lag below `longest`, in both directions; 0 for any beyond."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.empty(2 * longest - 1).normal_(std=START_STD))

    def forward(self, length: int) -> Tensor:
        """Return the biases (2 length - 1,) of the lags 1 - length .. length - 1."""
        # A negative pad cuts.
        beyond = length - (len(self.bias) + 1) // 2
        return functional.pad(self.bias, (beyond, beyond))


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Callable[[int], Tensor],
    lengths: Tensor,
    activation: Activation,
    *,
    chunk: int | None = None,
    divisor: float | None = None,
) -> Tensor:
    """Attend from each position of a sequence to all real ones of its chunk, or of the sequence.

    Parameters
    ----------
    q, k : (b, l, s)
    v : (b, l, e)
    bias : a function like `LagBias`
    lengths : (b,); padding is on the right
    chunk : positions per chunk; None means one chunk
    divisor : of products of queries and keys; None means the number of real keys

    Returns (b, l, e); outputs of padding are finite. Scores and weights are float32 or better.
    """
    length = q.shape[1]
    size = min(chunk or length, length)
    q, k, v = (fold(x, size) for x in (q, k, v))
    starts = torch.arange(0, length, size, device=lengths.device)
    counts = (lengths.unsqueeze(1) - starts).clamp(0, size).view(-1, 1, 1)
    # A chunk without real keys sees all of its own: an empty softmax is NaN. Nobody reads its output.
    real = torch.arange(size, device=lengths.device) < torch.where(counts > 0, counts, size)
    by_lag = bias(size)
    scale = counts.clamp(min=1) if divisor is None else torch.full_like(counts, divisor, dtype=by_lag.dtype)
    budget = ELEMENTS.get(q.device.type, MANY_ELEMENTS)
    rows = max(1, budget // (len(q) * size))
    outputs = []
    for start in range(0, size, rows):
        end = min(start + rows, size)
        lags = by_lag[size - end : 2 * size - 1 - start]
        arguments = (q[:, start:end], k, v, lags, real, scale, activation)
        if torch.is_grad_enabled():
            y = checkpoint(attend_some, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            y = attend_some(*arguments)
        outputs.append(y)
    y = torch.cat(outputs, dim=1)
    return y.view(len(lengths), -1, y.shape[2])[:, :length]


def fold(x: Tensor, size: int) -> Tensor:
    """Return chunks of x (b, l, w) as separate examples, the last filled with zeros: (b n, size, w)."""
    return functional.pad(x, (0, 0, 0, -x.shape[1] % size)).reshape(-1, size, x.shape[2])


def attend_some(
    q: Tensor, k: Tensor, v: Tensor, lags: Tensor, real: Tensor, scale: Tensor, activation: Activation
) -> Tensor:
    """Return the outputs (b, rows, e) of the queries q (b, rows, s); see `attend` for the rest."""
    # Row i of the matrix of biases is the lags from (rows - 1 - i) on.
    bias = lags.unfold(0, k.shape[1], 1).flip(0)
    dtype = torch.promote_types(q.dtype, lags.dtype)
    scores = (q @ k.mT).to(dtype) / scale + bias
    return compute_weights(scores, real, activation).to(v.dtype) @ v


def compute_weights(scores: Tensor, real: Tensor, activation: Activation) -> Tensor:
    """Return the weights of scores (b, rows, l); 0 where `real` (b, 1, l) is False."""
    if activation == "softmax":
        return torch.softmax(scores.masked_fill(~real, -torch.inf), dim=-1)
    if activation == "laplace":
        weights = (1 + torch.erf((scores - LAPLACE_MEAN) / (LAPLACE_STD * math.sqrt(2)))) / 2
    else:
        weights = functional.relu(scores).square()
    return weights * real
