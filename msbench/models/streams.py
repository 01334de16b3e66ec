"""The parts of MS-SSM: how many states a stream has, the decomposition, the scan of all streams, the mixer.

The names are those of `msbench.models.ms_ssm`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.models.selective import ShortConv, StepSizes, decays, dt_rank, initial_decays
from msbench.ops import decompose, low_rank_scan, multi_scale_scan
from msbench.ops.scan import mixed
from msbench.specs.selective import MsSsmConfig


def stream_count(config: MsSsmConfig) -> int:
    """Streams m = S + 2; one, the signal itself, where there are no levels (a^0 is x)."""
    return config.levels + 2 if config.levels else 1


def stream_states(config: MsSsmConfig) -> list[int]:
    """States n_s of every stream: the total as even as it goes, what is left over to the coarse streams."""
    streams = stream_count(config)
    if config.state_per_stream:
        return [config.state] * streams
    share, rest = divmod(config.state, streams)
    return [share + (index >= streams - rest) for index in range(streams)]


def only_scanned(config: MsSsmConfig) -> bool:
    """Whether nothing but the scans reads the streams, as in the paper's own layer.

    Then they need not exist outside of the scan.
    """
    plain = config.decomposition == "wavelet" and config.levels > 0 and config.conv_activation == "none"
    read_once = config.ssm == "s6" and config.ssm_input == "stream" and config.parameters_from == "raw"
    return plain and read_once and config.mixer != "static-per-channel"


class Decomposition(nn.Module):
    """Equations 2 and 3 with learned filters for every level; or one convolution for all streams.

    Filters start uniform within k^-1/2, as a depthwise Conv1d does.
    """

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__()
        self.streams = stream_count(config)
        self.activated = config.conv_activation == "silu"
        self.conv: ShortConv | None = None
        self.filters: nn.Parameter | None = None
        self.bias: nn.Parameter | None = None
        bound = config.kernel**-0.5
        if config.decomposition == "shared-conv":
            self.conv = ShortConv(width, config.kernel, bias=config.conv_bias)
        elif config.levels:
            size = (config.levels, 2, config.kernel, width)
            self.filters = nn.Parameter(torch.empty(size).uniform_(-bound, bound))
            if config.conv_bias:
                self.bias = nn.Parameter(torch.empty(config.levels, 2, width).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, i) -> streams (b, l, m, i)."""
        if self.filters is not None:
            streams = decompose(x, self.filters, self.bias)
            return functional.silu(streams) if self.activated else streams
        one = x if self.conv is None else self.conv(x)
        one = functional.silu(one) if self.activated else one
        return one.unsqueeze(2).expand(-1, -1, self.streams, -1)


class Mixer(nn.Module):
    """E_t, the weights of the streams (equation 4): linear in x_t, its softmax, or constant (static).

    ``mean`` starts at 1/m for every stream, exactly: weights 0 and bias 1/m (0 before a softmax).
    """

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__()
        streams = stream_count(config)
        self.kind = config.mixer
        constant = config.mixer.startswith("static")
        per_channel = (streams, width) if config.mixer == "static-per-channel" else (streams,)
        size = per_channel if constant else (streams, width)
        bound = streams**-0.5 if constant else width**-0.5
        start = 0.0 if config.mixer == "softmax" else 1 / streams
        weight, bias = torch.empty(size).uniform_(-bound, bound), torch.empty(streams).uniform_(-bound, bound)
        if config.mixer_init == "mean":
            weight, bias = torch.full(size, start if constant else 0.0), torch.full((streams,), start)
        self.weight = nn.Parameter(weight)
        self.bias = None if constant else nn.Parameter(bias)
        # A constant mixer is a scale, as a norm's is: it does not decay.
        self.optimizer_groups = {"weight": "plain"} if constant else {}

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, i) -> (b, l, m); the constant weights (m, i) where they are per channel."""
        if self.kind == "static-per-channel":
            return self.weight
        if self.kind == "static":
            return self.weight.expand(*x.shape[:2], -1)
        weights = functional.linear(x, self.weight, self.bias)
        return weights.softmax(-1) if self.kind == "softmax" else weights


class StreamScan(nn.Module):
    """All m selective SSMs in one scan, then mixed.

    Streams of fewer states than the largest get states whose B, C and rate are 0: exact, and parameters are
    stored without them. Rows of `x_proj` are, stream after stream, r of the step size, n_s of B, n_s of C.
    """

    pad_projection: Tensor | None
    pad_decays: Tensor | None

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__()
        sizes, rank = stream_states(config), dt_rank(config)
        self.sizes = [rank, max(sizes), max(sizes)]
        self.discretisation = config.input_discretisation
        self.streams = sizes
        rows = sum(rank + 2 * size for size in sizes)
        self.x_proj = nn.Parameter(torch.empty(rows, width).uniform_(-(width**-0.5), width**-0.5))
        self.dt = StepSizes(config, len(sizes), width)
        self.A_log = nn.Parameter(initial_decays(sizes, width, config.decay_init, config.decay_spacing))
        self.D = nn.Parameter(torch.ones(len(sizes), width)) if config.skip else None
        self.register_buffer("pad_projection", padded([[rank, n, n] for n in sizes]), persistent=False)
        self.register_buffer("pad_decays", padded([[n] for n in sizes]), persistent=False)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """Scan `scanned` (b, l, m, i) by parameters from `source`, mixed by E; -> z (b, l, i).

        `source` is x (b, l, i), or the streams (b, l, m, i) where each makes its own. E is (b, l, m)
        or (m, i).
        """
        low, B, C = self._project(source)
        mix = E if E.ndim == 3 else None
        arguments = (scanned, low, *self.dt.affine(), self._decays(), B, C, self.D, mix)
        y = low_rank_scan(*arguments, discretisation=self.discretisation)
        return y if mix is not None else mixed(y, E)

    def decomposed(self, x: Tensor, decomposition: Decomposition, E: Tensor) -> Tensor:
        """The same of the streams of x (b, l, i), which are made inside the scan; E (b, l, m)."""
        assert decomposition.filters is not None
        low, B, C = self._project(x)
        bank = (decomposition.filters, decomposition.bias)
        arguments = (x, *bank, low, *self.dt.affine(), self._decays(), B, C, self.D, E)
        return multi_scale_scan(*arguments, discretisation=self.discretisation)

    def _decays(self) -> Tensor:
        """A (m, i, n)."""
        m, n = len(self.streams), self.sizes[1]
        rates = stretch(decays(self.A_log).T.contiguous(), self.pad_decays, m * n)
        return rates.view(m, n, -1).mT

    def _project(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What step sizes are made of (b, l, m, r), B and C (b, l, m, n)."""
        m = len(self.streams)
        weight = stretch(self.x_proj, self.pad_projection, m * sum(self.sizes))
        if source.ndim == 4:
            rows = torch.einsum("blmi,mri->blmr", source, weight.view(m, -1, weight.shape[1]))
        else:
            rows = functional.linear(source, weight).view(*source.shape[:2], m, -1)
        low, B, C = torch.split(rows, self.sizes, dim=-1)
        return low, B, C


def padded(sizes: list[list[int]]) -> Tensor | None:
    """Where rows go so that runs of unequal size, given stream by stream, get room for the largest.

    None where all streams are equal.
    """
    if all(stream == sizes[0] for stream in sizes):
        return None
    largest = [max(column) for column in zip(*sizes, strict=True)]
    places: list[int] = []
    start = 0
    for stream in sizes:
        for size, full in zip(stream, largest, strict=True):
            places += range(start, start + size)
            start += full
    return torch.tensor(places)


def stretch(rows: Tensor, places: Tensor | None, size: int) -> Tensor:
    """Rows (r, ...) at the `places` of `padded` among `size` rows, the others zeros."""
    if places is None:
        return rows
    # Not index_select with a row of zeros: its gradient adds row by row, 30 ms a layer of 300 rows.
    return rows.new_zeros(size, *rows.shape[1:]).index_copy(0, places, rows)
