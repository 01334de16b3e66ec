"""The streams of MS-SSM: their names and numbers of states, their decomposition, and the mixer of equation 4.

The names are those of `msbench.models.ms_ssm`; ``r`` is the rank of a low-rank mixer.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import MsSsmConfig
from msbench.models.selective import ShortConv, initialise_decays
from msbench.ops.filters import decompose
from msbench.ops.scan.reference import sum_streams


def list_stream_names(config: MsSsmConfig) -> list[str]:
    """Return the names of the m streams, fine to coarse; without levels the signal alone (a^0 is x)."""
    if not config.levels:
        return ["x"]
    details = [f"d{level}" for level in range(1, config.levels + 1)]
    return [*(["x"] if config.raw_stream else []), *details, f"a{config.levels}"]


def split_states(config: MsSsmConfig) -> list[int]:
    """Return the number of states n_s of every stream: an even split, with the remainder to coarse streams.

    Conjugate pairs stay together and count as two.
    """
    streams, unit = config.streams, 1 + config.paired
    if config.state_per_stream:
        return [config.state] * streams
    share, rest = divmod(config.state // unit, streams)
    return [unit * (share + (index >= streams - rest)) for index in range(streams)]


def compute_decay_offsets(config: MsSsmConfig) -> list[int]:
    """Return the offsets of the streams' initial decay rates from those of a single stream.

    An offset is the number of states of all slower streams, which are the coarser ones and, with
    ``raw_decays: slowest``, the signal; or 0 with Mamba's initialisation.
    """
    if config.decay_init == "mamba":
        return [0] * config.streams
    sizes = split_states(config)
    coarser = [sum(sizes[index + 1 :]) for index in range(len(sizes))]
    return coarser if config.raw_decays == "fastest" else [0, *(sizes[0] + n for n in coarser[1:])]


def initialise_stream_decays(config: MsSsmConfig, width: int) -> Tensor:
    """Return the initial log(-A), (width, sum of n_s), stream after stream."""
    return initialise_decays(split_states(config), width, compute_decay_offsets(config), config.decay_spacing)


def is_only_scanned(config: MsSsmConfig) -> bool:
    """Return True if only the scans read the streams, as in the paper's own layer.

    In this case the streams need not exist outside of the scan.
    """
    plain = config.decomposition == "wavelet" and config.levels > 0 and config.conv_activation == "none"
    read_once = config.ssm == "s6" and config.ssm_input == "stream" and config.parameters_from == "raw"
    read_once = read_once and config.raw_input != "sum"
    return plain and read_once and config.raw_stream and config.mixer_channels == "shared"


class Decomposition(nn.Module):
    """The decomposition: equations 2 and 3 with learned filters, or one convolution for all streams, or none.

    Filters start uniform within k^-1/2, like a depthwise Conv1d.
    """

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__()
        self.width, self.kernel = width, config.kernel
        self.streams = config.streams
        self.without_signal = not config.raw_stream
        self.activated = config.conv_activation == "silu"
        self.conv: ShortConv | None = None
        self.filters: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        bound = config.kernel**-0.5
        if config.decomposition == "shared-conv":
            self.conv = ShortConv(width, config.kernel, bias=config.conv_bias, activated=self.activated)
        elif config.decomposition == "wavelet" and config.levels:
            size = (config.levels, 2, config.kernel, width)
            self.filters = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
            if config.conv_bias:
                self.bias = nn.Parameter(torch.empty(config.levels, 2, width).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, i) to streams (b, l, m, i)."""
        if self.filters is None:
            return self._repeat_streams(x if self.conv is None else self.conv(x))
        streams = decompose(x, self.filters, self.bias)
        streams = streams[:, :, 1:] if self.without_signal else streams
        return functional.silu(streams) if self.activated else streams

    def start(self, x: Tensor) -> list[Tensor]:
        """Return the past: for every level s the last (k - 1) 2^(s-1) values of a^(s-1), oldest first."""
        if self.conv is not None:
            return [self.conv.start(x.new_zeros(len(x), self.width))]
        spans = [] if self.filters is None else [2**level for level in range(len(self.filters))]
        return [x.new_zeros(len(x), (self.kernel - 1) * span, self.width) for span in spans]

    def step(self, x: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Decompose one position x (b, i) of the signal; return its streams (b, m, i) and the new past."""
        if self.filters is not None:
            return self._step_of_levels(x, self.filters, state)
        if self.conv is not None:
            x, window = self.conv.step(x, state[0])
            state = [window]
        return self._repeat_streams(x.unsqueeze(1)).squeeze(1), state

    def _step_of_levels(self, x: Tensor, filters: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        low = x.to(torch.promote_types(x.dtype, filters.dtype))
        streams, after = [low], []
        for level, (taps, past) in enumerate(zip(filters, state, strict=True)):
            window = torch.cat([past.to(low.dtype), low.unsqueeze(1)], dim=1)
            by_lag = window.flip(1)[:, :: 2**level]
            sides = (by_lag * taps.unsqueeze(1)).sum(2)
            low, high = sides if self.bias is None else sides + self.bias[level].unsqueeze(1)
            streams.append(high)
            after.append(window[:, 1:])
        together = torch.stack([*streams[self.without_signal :], low], dim=1)
        return functional.silu(together) if self.activated else together, after

    def _repeat_streams(self, x: Tensor) -> Tensor:
        """Return x (b, l, i) as every stream, after SiLU if none followed the convolution."""
        x = functional.silu(x) if self.activated and self.conv is None else x
        return x.unsqueeze(2).expand(-1, -1, self.streams, -1)


class ScaleMixer(nn.Module):
    """E_t, the weights of the streams: linear in the input, the softmax of that, or constant (static).

    One weight per stream for all channels, or one per stream and channel; in that case the matrix may be of
    low rank. With ``mean`` every stream starts at exactly 1/m: weights 0 and bias 1/m (0 before a softmax).
    """

    def __init__(self, config: MsSsmConfig, width: int, source: int) -> None:
        """Build a mixer of streams of `width` channels, from an input of `source` channels."""
        super().__init__()
        streams = config.streams
        self.static, self.softmax = config.mixer == "static", config.mixer == "softmax"
        self.shape = (streams,) if config.mixer_channels == "shared" else (streams, width)
        self.down: nn.Parameter | None = None
        mean = 0.0 if self.softmax else 1 / streams
        start = mean if config.mixer_init == "mean" else None
        if self.static:
            self.weight = _create_parameter(self.shape, streams, start)
            self.bias: nn.Parameter | None = None
        else:
            if config.mixer_channels == "low-rank":
                rank = config.mixer_rank or math.ceil(config.d_model / 16)
                self.down = _create_parameter((rank, source), source, None)
                source = rank
            self.weight = _create_parameter(
                (math.prod(self.shape), source), source, None if start is None else 0.0
            )
            self.bias = _create_parameter(self.shape, source, start) if config.mixer_bias else None
        # A constant mixer is a scale like a norm's weight: no weight decay.
        self.optimizer_groups = {"weight": "plain"} if self.static else {}

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, source) to weights (b, l, m); per channel (b, l, m, i), or (m, i) if static."""
        if self.static:
            return self.weight if self.weight.ndim == 2 else self.weight.expand(*x.shape[:2], -1)
        x = x if self.down is None else functional.linear(x, self.down)
        weights = functional.linear(x, self.weight, None if self.bias is None else self.bias.flatten())
        weights = weights.view(*x.shape[:2], *self.shape)
        return weights.softmax(2) if self.softmax else weights


def mix_streams(y: Tensor, E: Tensor) -> Tensor:
    """Return the sum of the streams of y (b, l, m, i), weighted by the E of `ScaleMixer`: (b, l, i)."""
    return (y * E.to(y.dtype)).sum(2) if E.ndim == 4 else sum_streams(y, E)


def _create_parameter(size: tuple[int, ...], fan_in: int, start: float | None) -> nn.Parameter:
    """Return a parameter filled with `start`, or uniform within fan_in^-1/2, as in torch's linear layer."""
    values = torch.empty(size).uniform_(-(fan_in**-0.5), fan_in**-0.5)
    return nn.Parameter(values if start is None else torch.full(size, start))
