"""The SSMs of MS-SSM, one a stream, all run at once: what they share, and what those with a real diagonal do.

The names are those of `msbench.models.ms_ssm`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from msbench.config.selective import MsSsmConfig
from msbench.models.selective import decays
from msbench.models.streams import stream_decays, stream_states


class StreamSsms(nn.Module):
    """The SSMs of the m streams, of n_s states each a channel, and their skips."""

    D: nn.Parameter | None

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.streams = stream_states(config)

    def skips(self, config: MsSsmConfig, width: int) -> nn.Parameter | None:
        """D (m, i) at the start."""
        return nn.Parameter(torch.ones(len(self.streams), width)) if config.skip else None

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """Run `scanned` (b, l, m, i) through the SSMs, and mix them by E (`scale_mixer`); -> z (b, l, i).

        `source`, (b, l, i) or for every stream its own (b, l, m, i), is what selective SSMs go by.
        """
        raise NotImplementedError

    def start(self, x: Tensor) -> Any:
        """The states before the first position, for inputs like x (b, i): a tensor, or a nest of tensors."""
        raise NotImplementedError

    def step(self, scanned: Tensor, source: Tensor, h: Any) -> tuple[Tensor, Any]:
        """One position of `forward`, without l and before it is mixed: y (b, m, i), and the states behind."""
        raise NotImplementedError

    def poles(self) -> list[Tensor]:
        """diag(A-bar) of each stream, (i, n_s), where no input adds to the step sizes."""
        raise NotImplementedError


class RealSsms(StreamSsms):
    """One real diagonal SSM a stream and channel: its decay rates and its skip.

    Parameters hold, channel by channel, the states of one stream after another. Where streams differ in
    their states, those of fewer than the largest get states that nothing enters or leaves: exact.
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
        """Step sizes (m, i), of selective SSMs where the input adds nothing to them."""
        raise NotImplementedError

    def poles(self) -> list[Tensor]:
        """See `StreamSsms`: exp(dt A)."""
        rates = torch.split(decays(self.A_log), self.streams, dim=1)
        return [torch.exp(dt.unsqueeze(1) * A) for dt, A in zip(self.steps(), rates, strict=True)]

    def by_stream(self, values: Tensor) -> Tensor:
        """Values (i, sum of n_s) as (m, i, n), 0 where a stream has fewer states."""
        m, n = len(self.streams), max(self.streams)
        return stretch(values.T.contiguous(), self.pad_states, m * n).view(m, n, -1).mT


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
