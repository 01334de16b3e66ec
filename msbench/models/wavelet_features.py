"""Wavelet features (Strodthoff et al. 2020): numbers that describe a signal's bands, and a small network.

==============  ==========================  ==================================================================
code            source                      meaning
==============  ==========================  ==================================================================
``bands``       ``pywt.wavedec``            coefficients of the Daubechies wavelet db6: one approximation and
                                            the details of 5 levels, the coarsest first
``features``    ``get_features``            12 numbers a band, 72 a channel, 864 of an electrocardiogram
``scaler``      ``StandardScaler``          mean 0 and deviation 1 of each feature
``d``           ``n_dense_dim`` = 128       width of the hidden layers, of which the source has one
==============  ==========================  ==================================================================

::

    band:     entropy of its values' frequencies, crossings of zero, crossings of its mean,
              percentiles 5, 25, 75, 95 and 50, mean, deviation, variance, mean of |v|
    network:  head(dropout(relu(linear(scaler(features(signal))))))

This is no sequence model: no layer maps positions to positions, and features are those of whole signals.
Signals must have one length, as padding would change them. Features are computed in float64, without
gradients.

Features and their order are those of the benchmark's code (``models/wavelet.py``), where the mean of |v| is
called a root mean square. Where no value repeats, the entropy is the logarithm of the band's length and says
nothing. The source fits its scaler to the training folds before it trains. Here mean and deviation are those
of all training examples so far: from the end of the first epoch on, those of the training folds. A feature
that is the same in all examples becomes 0. Weights start as in Keras: Glorot-uniform, biases 0.
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import WaveletFeaturesConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.classifier import Classifier, ClassifierState
from msbench.models.family import Family, count_no_states
from msbench.models.layers import MaskedBatchNorm

LEVELS = 5
LOW_PASS = (
    -0.0010773010853084796,
    0.004777257510945511,
    0.0005538422011614961,
    -0.03158203931748603,
    0.027522865530305727,
    0.09750160558732304,
    -0.12976686756726194,
    -0.22626469396543983,
    0.31525035170919763,
    0.7511339080210954,
    0.49462389039845306,
    0.11154074335010947,
)
"""Filter of the approximation, as in PyWavelets (Daubechies 1992, table 6.1)."""
HIGH_PASS = tuple(-tap if index % 2 == 0 else tap for index, tap in enumerate(reversed(LOW_PASS)))
"""Filter of the details: its quadrature mirror."""
PERCENTILES = (5, 25, 75, 95, 50)
FEATURES = (LEVELS + 1) * (7 + len(PERCENTILES))
"""Features of a channel."""
CONSTANT = 1e-9
"""Deviation, in multiples of the mean, up to which a feature counts as constant: rounding."""


def compute_features(signals: Tensor) -> Tensor:
    """Return the features (b, 72 c) of signals (b, l, c), channel by channel, in float64."""
    rows = signals.mT.flatten(0, 1).double()
    features = torch.cat([describe_band(band) for band in decompose(rows)], dim=1)
    return features.view(len(signals), -1)


def decompose(x: Tensor) -> list[Tensor]:
    """Return the bands of x (r, l): ``pywt.wavedec(x, "db6", level=5)`` with its symmetric boundaries."""
    details = []
    for _ in range(LEVELS):
        x, detail = split_band(x)
        details.append(detail)
    return [x, *reversed(details)]


def split_band(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return approximation and details of x (r, l), both (r, (l + 11) // 2).

    Tap by tap, so that equal windows give equal bits, wherever they are: the entropy counts equal values.
    """
    length, taps = x.shape[1], len(LOW_PASS)
    places = torch.arange(2 - taps, length + taps - 1, device=x.device) % (2 * length)
    mirrored = x[:, torch.where(places < length, places, 2 * length - 1 - places)]
    size = (length + taps - 1) // 2
    filters = torch.tensor((LOW_PASS, HIGH_PASS), dtype=x.dtype, device=x.device)[..., None, None]
    both = x.new_zeros(2, len(x), size)
    for index in range(taps):
        both = both + filters[:, index] * mirrored[:, taps - 1 - index :: 2][:, :size]
    approximation, details = both.unbind(0)
    return approximation, details


def describe_band(v: Tensor) -> Tensor:
    """Return the features (r, 12) of coefficients (r, n)."""
    ordered, mean = v.sort(dim=1).values, v.mean(dim=1, keepdim=True)
    variance = v.var(dim=1, correction=0)
    numbers = [
        compute_entropy(ordered),
        count_crossings(v > 0),
        count_crossings(v > mean),
        *(interpolate_percentile(ordered, percent) for percent in PERCENTILES),
        mean.squeeze(1),
        variance.sqrt(),
        variance,
        v.abs().mean(dim=1),
    ]
    return torch.stack([number.to(v.dtype) for number in numbers], dim=1)


def compute_entropy(ordered: Tensor) -> Tensor:
    """Return the entropy (r,) of the frequencies of the distinct values of rows (r, n) in ascending order.

    With m_i values equal to the i-th of n it is log n - mean_i log m_i.
    """
    ordered = ordered.contiguous()
    equal = torch.searchsorted(ordered, ordered, right=True) - torch.searchsorted(ordered, ordered)
    return math.log(ordered.shape[1]) - equal.to(ordered).log().mean(dim=1)


def count_crossings(above: Tensor) -> Tensor:
    """Return the number (r,) of neighbours in rows (r, n) of which one is True."""
    return (above[:, 1:] != above[:, :-1]).sum(dim=1)


def interpolate_percentile(ordered: Tensor, percent: int) -> Tensor:
    """Return a percentile (r,) of rows (r, n) in ascending order, linear between two values as in numpy."""
    whole, hundredths = divmod(percent * (ordered.shape[1] - 1), 100)
    after = min(whole + 1, ordered.shape[1] - 1)
    return torch.lerp(ordered[:, whole], ordered[:, after], hundredths / 100)


class FeatureScaler(MaskedBatchNorm):
    """Standardisation by the mean and variance of all training examples so far, without trained parameters.

    Its statistics are float64: a deviation may be a millionth of the mean.
    """

    examples: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        del self.weight, self.bias
        self.register_buffer("weight", torch.ones(width), persistent=False)  # read for its size and type
        self.register_buffer("running_mean", torch.zeros(width, dtype=torch.float64))
        self.register_buffer("running_var", torch.ones(width, dtype=torch.float64))
        self.register_buffer("examples", torch.zeros((), dtype=torch.float64))

    def forward(self, x: Tensor, mask: Tensor, *, zero: bool = False) -> Tensor:
        """Map features x (b, 1, f) and mask (b, 1, 1) to the same shape; with `zero` padding becomes 0."""
        x, mask = x.double(), mask.double()
        if self.training and self.tracks:
            self._add_examples(x, mask)
        deviation = self.running_var.double().sqrt()
        varies = deviation > CONSTANT * self.running_mean.double().abs()
        y = torch.where(varies, (x - self.running_mean) / torch.where(varies, deviation, 1), 0)
        y = y.to(self.weight.dtype)
        return y * mask.to(y.dtype) if zero else y

    @torch.no_grad()
    def _add_examples(self, x: Tensor, mask: Tensor) -> None:
        """Merge the moments of a batch, of all processes, into those so far (Chan et al. 1979)."""
        if self.across is not None and not self.across.counts:
            mask = torch.zeros_like(mask)
        sums = self._total(torch.cat(((x * mask).sum((0, 1)), mask.sum().view(1))))
        count = sums[-1].clamp(min=1)
        mean = sums[:-1] / count
        var = self._total(((x - mean).square() * mask).sum((0, 1))) / count
        share = count / (self.examples + count)
        gap = mean - self.running_mean
        self.running_var.copy_(torch.lerp(self.running_var, var, share) + share * (1 - share) * gap.square())
        self.running_mean.add_(share * gap)
        self.examples.add_(count)

    def _total(self, x: Tensor) -> Tensor:
        return x if self.across is None else self.across.total(x)


class FeatureClassifier(Classifier):
    """A network on features of whole signals, with the classifier's head and no layers in its sense."""

    def __init__(self, config: WaveletFeaturesConfig, info: TaskInfo) -> None:
        super().__init__(config, info, [])
        del self.encoder  # of positions
        self.dropout = config.dropout
        self.scaler = FeatureScaler(FEATURES * info.channels)
        widths = [FEATURES * info.channels, *[config.d_model] * config.layers]
        self.hidden = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        for layer in (*self.hidden, self.head):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map signals (b, l, channels) of one length to logits (b, classes)."""
        with torch.no_grad():
            features = compute_features(inputs).unsqueeze(1)
            x = self.scaler(features, features.new_ones(len(lengths), 1, 1)).squeeze(1)
        for layer in self.hidden:
            x = functional.dropout(functional.relu(layer(x)), self.dropout, self.training)
        return self._compute_logits(x)

    def start(self, b: int) -> ClassifierState:  # noqa: ARG002 (refused for any)
        """Raise ConfigError: there is nothing to run step by step."""
        raise ConfigError(
            "features of whole signals have no recurrent inference; the model reads whole ones only"
        )


def build(config: WaveletFeaturesConfig, info: TaskInfo) -> Classifier:
    """Build the classifier; raise ConfigError for tokens."""
    if not info.real_valued:
        raise ConfigError(f"wavelet-features reads signals of one length, and this is a task of {info.kind}")
    return FeatureClassifier(config, info)


# Features are those of the whole signal.
FAMILY = Family(build, count_no_states, is_causal=lambda _config: False, cost="l log l")
