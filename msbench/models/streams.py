"""The streams of MS-SSM: their names, their numbers of states, and the decomposition that computes them.

The names are those of `msbench.models.ms_ssm`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import MsSsmConfig
from msbench.models.selective import ShortConv, initial_decays
from msbench.ops import decompose


def stream_names(config: MsSsmConfig) -> list[str]:
    """Return the names of the m streams, fine to coarse; without levels the signal alone (a^0 is x)."""
    if not config.levels:
        return ["x"]
    details = [f"d{level}" for level in range(1, config.levels + 1)]
    return [*(["x"] if config.raw_stream else []), *details, f"a{config.levels}"]


def stream_states(config: MsSsmConfig) -> list[int]:
    """Return the number of states n_s of every stream: an even split, with the remainder to coarse streams.

    Conjugate pairs stay together and count as two.
    """
    streams, unit = config.streams, 1 + config.paired
    if config.state_per_stream:
        return [config.state] * streams
    share, rest = divmod(config.state // unit, streams)
    return [unit * (share + (index >= streams - rest)) for index in range(streams)]


def decay_offsets(config: MsSsmConfig) -> list[int]:
    """Return the offsets of the streams' initial decay rates from those of a single stream.

    An offset is the number of states of all slower streams, which are the coarser ones and, with
    ``raw_decays: slowest``, the signal; or 0 with Mamba's initialisation.
    """
    if config.decay_init == "mamba":
        return [0] * config.streams
    sizes = stream_states(config)
    coarser = [sum(sizes[index + 1 :]) for index in range(len(sizes))]
    return coarser if config.raw_decays == "fastest" else [0, *(sizes[0] + n for n in coarser[1:])]


def stream_decays(config: MsSsmConfig, width: int) -> Tensor:
    """Return the initial log(-A), (width, sum of n_s), stream after stream."""
    return initial_decays(stream_states(config), width, decay_offsets(config), config.decay_spacing)


def only_scanned(config: MsSsmConfig) -> bool:
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
            self.conv = ShortConv(width, config.kernel, bias=config.conv_bias)
        elif config.decomposition == "wavelet" and config.levels:
            size = (config.levels, 2, config.kernel, width)
            self.filters = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
            if config.conv_bias:
                self.bias = nn.Parameter(torch.empty(config.levels, 2, width).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, i) to streams (b, l, m, i)."""
        if self.filters is None:
            return self._alike(x if self.conv is None else self.conv(x))
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
        return self._alike(x.unsqueeze(1)).squeeze(1), state

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

    def _alike(self, x: Tensor) -> Tensor:
        """Return x (b, l, i) as every stream."""
        x = functional.silu(x) if self.activated else x
        return x.unsqueeze(2).expand(-1, -1, self.streams, -1)
