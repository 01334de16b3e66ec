"""The base classes of MS-SSM's SSMs, one per stream, all run at once: general, and with a real diagonal.

The names are those of `msbench.models.ms_ssm`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from msbench.config.selective import MsSsmConfig
from msbench.models.selective import decays
from msbench.models.streams import stream_decays, stream_states


class StreamSsms(nn.Module):
    """The SSMs of the m streams, with n_s states per channel, and their skips."""

    D: nn.Parameter | None

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.streams = stream_states(config)

    def skips(self, config: MsSsmConfig, width: int) -> nn.Parameter | None:
        """Return the initial D (m, i), or None."""
        return nn.Parameter(torch.ones(len(self.streams), width)) if config.skip else None

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """Run `scanned` (b, l, m, i) through the SSMs, mix by E (`scale_mixer`), and return z (b, l, i).

        Selective SSMs compute their parameters from `source`, (b, l, i) or per stream (b, l, m, i).
        """
        raise NotImplementedError

    def start(self, x: Tensor) -> Any:
        """Return the states before the first position, for inputs like x (b, i): a tensor or a nest."""
        raise NotImplementedError

    def step(self, scanned: Tensor, source: Tensor, h: Any) -> tuple[Tensor, Any]:
        """Run one position of `forward`, without l and mixing; return y (b, m, i) and the new states."""
        raise NotImplementedError

    def poles(self) -> list[Tensor]:
        """Return diag(A-bar) of each stream, (i, n_s), for step sizes without a contribution of the input."""
        raise NotImplementedError


class RealSsms(StreamSsms):
    """One real diagonal SSM per stream and channel: its decay rates and its skip.

    Parameters hold, channel by channel, the states of one stream after another. If streams differ in their
    number of states, smaller ones are padded with states without input and output, which is exact.
    """

    pad_states: Tensor | None

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config)
        self.A_log = nn.Parameter(stream_decays(config, width))
        self.D = self.skips(config, width)
        self.register_buffer("pad_states", padded([[n] for n in self.streams]), persistent=False)

    def start(self, x: Tensor) -> Tensor:
        """See `StreamSsms`: (b, m, i, n)."""
        size = (len(x), len(self.streams), self.A_log.shape[0], max(self.streams))
        return x.new_zeros(size, dtype=torch.promote_types(x.dtype, self.A_log.dtype))

    def steps(self) -> Tensor:
        """Return the step sizes (m, i); for selective SSMs, those without a contribution of the input."""
        raise NotImplementedError

    def poles(self) -> list[Tensor]:
        """See `StreamSsms`: exp(dt A)."""
        rates = torch.split(decays(self.A_log), self.streams, dim=1)
        return [torch.exp(dt.unsqueeze(1) * A) for dt, A in zip(self.steps(), rates, strict=True)]

    def by_stream(self, values: Tensor) -> Tensor:
        """Return values (i, sum of n_s) as (m, i, n), 0 where a stream has fewer states."""
        m, n = len(self.streams), max(self.streams)
        return stretch(values.T.contiguous(), self.pad_states, m * n).view(m, n, -1).mT


def padded(sizes: list[list[int]]) -> Tensor | None:
    """Return the target indices of rows that pad runs of unequal size, given by stream, to the largest.

    None if all streams are equal.
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
    """Place rows (r, ...) at the `places` of `padded` among `size` rows; the other rows are zeros."""
    if places is None:
        return rows
    # Not index_select with a row of zeros: its gradient adds row by row, 30 ms per layer of 300 rows.
    return rows.new_zeros(size, *rows.shape[1:]).index_copy(0, places, rows)
