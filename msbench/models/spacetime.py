"""SpaceTime (Zhang et al. 2023): state spaces whose matrix is a companion matrix, which is autoregression.

==================  ==================  ==================================================================
code                paper               meaning
==================  ==================  ==================================================================
``n``               d                   states of a channel (`state`)
``a``               a                   last column of the companion matrix, divided by its sum of |a|
``b``, ``c``        B, C                input and output of the states
``kernel``          K                   response to an impulse, by lag
``filters``                             fixed kernels before the first layer (`preprocess`)
==================  ==================  ==================================================================

::

    h_t = A h_{t-1} + b z_t      A = shift + a e_n^T     (A h)_i = h_{i-1} + a_i h_n
    y_t = c^T h_t + D z_t        kernel_j = c^T A^j b
    output = z + y + linear(dropout(gelu(y)))

z is the input, but in the first layer what `filters` make of it, by channel: the values themselves and their
first three differences, then four residuals of moving averages, values minus the mean of the last 4 to 63.
These windows are drawn at the start and never trained. The one norm, before the pooling, is ours: kernels
start as sums of n products of normal numbers, so that two layers take inputs near 1 to the hundreds.

As |a| sums to 1, no eigenvalue is outside of the unit circle, and no kernel grows. With polynomials in z for
vectors, b(z) = sum_i b_i z^i, and c * b the correlation sum_{i >= j} c_i b_j z^{i-j},

    sum_j kernel_j z^j = c * b + z (c * a) z^{n-1} b(1/z) / (1 - z^n a(1/z))

which is the paper's formula for the companion matrix (Woodbury's), so that no matrix is needed. The paper
evaluates it on the unit circle, with c^T (1 - A^l) for c, so that the kernel does not wrap around. Here the
circle is smaller, and the transform four times as long as the sequence: what wraps around is 1e-16 of it.

A network of the paper is such an encoder and, for forecasts, a decoder, which a classifier does not need; its
code has settings for forecasts only. There 16 kernels are shared in the first layer, by 8 channels each; here
each channel has its own. The code divides by |a| only if its mean over all channels is above 1e-4.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import SpaceTimeConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family
from msbench.models.layers import ChannelDropout, ShortcutLayer, require_full_precision, start_layer
from msbench.models.long_conv import LongConv, State
from msbench.models.lti import ConvolvedSystem
from msbench.ops.convolution import find_fast_size

DIFFERENCES = 4
"""Orders of differences, from 0 on."""
SMALLEST_WINDOW, LARGEST_WINDOW = 4, 63
WRAPPED = 1e-16
"""Share of a kernel's end that wraps around to its start."""


class CompanionSystem(nn.Module):
    """A companion system for every channel, see `msbench.models.lti.LtiSystem`."""

    def __init__(self, d_model: int, state: int) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(d_model, state)) for _ in range(3))
        # The code decays all three; a is divided by its size, so that a decay of it would change nothing.
        self.optimizer_groups = {"a": "plain"}

    def compute_column(self) -> Tensor:
        """Return the last column of A (d, n), whose absolute values sum to 1."""
        return functional.normalize(require_full_precision(self.a), p=1.0, dim=-1)

    def compute_kernel(self, length: int) -> Tensor:
        """See `LtiSystem`: (length, 1, d), computed in double precision."""
        a, b, c = (x.double() for x in (self.compute_column(), self.b, self.c))
        return compute_companion_kernel(a, b, c, length).T.unsqueeze(1).to(self.b.dtype)

    def start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """See `LtiSystem`: the states (b, d, n), and the last column of A."""
        return x.new_zeros(*x.shape, self.b.shape[1], dtype=self.b.dtype), self.compute_column()

    def step(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `LtiSystem`."""
        h, a = state
        h = functional.pad(h[..., :-1], (1, 0)) + a * h[..., -1:] + self.b * x.unsqueeze(-1)
        return (self.c * h).sum(-1), (h, a)


def compute_companion_kernel(a: Tensor, b: Tensor, c: Tensor, length: int) -> Tensor:
    """Return c^T A^j b for j below `length`, (d, length), of companion matrices with these last columns.

    All (d, n) in double precision; the absolute values of each row of `a` must not sum to more than 1.
    """
    n = a.shape[1]
    size = find_fast_size(max(4 * length, 2 * n))
    radius: float = WRAPPED ** (1 / size)
    powers = radius ** torch.arange(size, device=a.device, dtype=a.dtype)

    def evaluate(coefficients: Tensor) -> Tensor:
        values: Tensor = torch.fft.rfft(coefficients * powers[: coefficients.shape[1]], n=size)
        return values

    ones = torch.ones_like(a[:, :1])
    later = functional.pad(correlate(c, a), (1, 0))
    denominator = functional.pad(-a.flip(1), (1, 0)) + functional.pad(ones, (0, n))
    spectrum = evaluate(correlate(c, b)) + evaluate(later) * evaluate(b.flip(1)) / evaluate(denominator)
    scaled: Tensor = torch.fft.irfft(spectrum, n=size)
    kernel: Tensor = scaled[:, :length] / powers[:length]
    return kernel


def correlate(u: Tensor, v: Tensor) -> Tensor:
    """Return sum_i u_{i+k} v_i for k from 0 on, (d, n), of u and v (d, n)."""
    size = 2 * u.shape[1]
    product = torch.fft.rfft(u, n=size) * torch.fft.rfft(v, n=size).conj()
    correlated: Tensor = torch.fft.irfft(product, n=size)
    return correlated[:, : u.shape[1]]


class FixedFilters(LongConv):
    """Differences and residuals of moving averages, one of them a channel: (b, l, d) -> (b, l, d)."""

    filters: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__(LARGEST_WINDOW)
        windows = torch.randint(SMALLEST_WINDOW, LARGEST_WINDOW + 1, (d_model,))
        self.register_buffer("filters", build_filters(windows))

    def compute_kernel(self, length: int) -> Tensor:  # noqa: ARG002 (all taps are few)
        """See `LongConv`."""
        return self.filters


def build_filters(windows: Tensor) -> Tensor:
    """Return the filters (taps, d), by lag; half of the windows (d,) are used.

    Of each eight channels the first four are differences of orders 0 to 3, the others residuals.
    """
    channels = torch.arange(len(windows), device=windows.device)
    lags = torch.arange(LARGEST_WINDOW, device=windows.device).unsqueeze(1)
    binomials = torch.tensor(
        [[1, 0, 0, 0], [1, -1, 0, 0], [1, -2, 1, 0], [1, -3, 3, -1]], device=windows.device
    )
    differences = functional.pad(binomials[channels % DIFFERENCES].T, (0, 0, 0, LARGEST_WINDOW - DIFFERENCES))
    residuals = (lags == 0).float() - (lags < windows) / windows
    return torch.where(channels % (2 * DIFFERENCES) < DIFFERENCES, differences, residuals)


class SpaceTimeBlock(ShortcutLayer):
    """Filters in the first layer, a companion system, and a map of the channels: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: SpaceTimeConfig, *, preprocess: bool) -> None:
        super().__init__()
        d = config.d_model
        self.filters = FixedFilters(d) if preprocess else None
        self.core = ConvolvedSystem(CompanionSystem(d, config.state), d)
        self.channels = nn.Linear(d, d)
        self.dropout = ChannelDropout(config.dropout)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        z = self._filter(inputs)
        return z + self._transform(self.core(z))

    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """See `ShortcutLayer`; the shortcut is one of the filtered inputs."""
        return self._transform(self.core(self._filter(inputs)))

    def start(self, x: Tensor) -> tuple[State | None, Any]:
        """See `msbench.models.layers.Recurrent`: states of the filters and of the system."""
        return None if self.filters is None else self.filters.start(x), start_layer(self.core, x)

    def step(self, x: Tensor, state: tuple[State | None, Any]) -> tuple[Tensor, tuple[State | None, Any]]:
        """See `msbench.models.layers.Recurrent`."""
        seen, h = state
        z = x
        if self.filters is not None:
            assert seen is not None
            z, seen = self.filters.step(x, seen)
        y, h = self.core.step(z, h)
        return z + self._transform(y), (seen, h)

    def _filter(self, x: Tensor) -> Tensor:
        return x if self.filters is None else self.filters(x)

    def _transform(self, y: Tensor) -> Tensor:
        out: Tensor = y + self.channels(self.dropout(functional.gelu(y)))
        return out


def build(config: SpaceTimeConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, the first with filters."""
    layers = [
        [SpaceTimeBlock(config, preprocess=config.preprocess and not index)] for index in range(config.layers)
    ]
    # Dropout is inside of the blocks: behind them it would be one of the residual stream.
    return Classifier(config.model_copy(update={"dropout": 0.0}), info, layers, residuals=False)


def count_states(config: SpaceTimeConfig) -> int:
    """See `Family`."""
    return config.state


FAMILY = Family(build, count_states, cost="l log l")
