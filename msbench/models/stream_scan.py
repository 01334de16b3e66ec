"""The selective (S6) SSMs of MS-SSM: B, C and step sizes are computed from the input.

The names are those of `msbench.models.ms_ssm`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import MsSsmConfig
from msbench.models.scale_mixer import weighed
from msbench.models.selective import StepSizes, decays, dt_rank, scan_step
from msbench.models.stream_ssms import RealSsms, padded, stretch
from msbench.models.streams import Decomposition
from msbench.ops import low_rank_scan, multi_scale_scan


class StreamScan(RealSsms):
    """All m selective SSMs in one scan, then mixed.

    Padded states have B, C and rate 0. Rows of `x_proj` are, stream after stream, r of the step size (of the
    first stream alone, if it is shared), n_s of B, n_s of C.
    """

    pad_projection: Tensor | None

    def __init__(self, config: MsSsmConfig, width: int, source: int) -> None:
        """Build the SSMs of streams of `width` channels, controlled by an input of `source` channels."""
        super().__init__(config, width)
        rank, largest = dt_rank(config), max(self.streams)
        self.sizes = [rank, largest, largest]
        self.discretisation = config.input_discretisation
        self.shared_steps = config.step_sizes == "shared"
        ranks = [rank] + [0 if self.shared_steps else rank] * (len(self.streams) - 1)
        rows = sum(ranks) + 2 * sum(self.streams)
        self.x_proj = nn.Parameter(torch.empty(rows, source).uniform_(-(source**-0.5), source**-0.5))
        self.dt = StepSizes(config, len(self.streams), width, shared=self.shared_steps)
        sizes = [[rank, n, n] for rank, n in zip(ranks, self.streams, strict=True)]
        self.register_buffer("pad_projection", padded(sizes), persistent=False)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """See `StreamSsms`."""
        low, B, C = self._project(source)
        mix = E if E.ndim == 3 else None
        arguments = (scanned, low, *self.dt.affine(), self._decays(), B, C, self.D, mix)
        y = low_rank_scan(*arguments, discretisation=self.discretisation)
        return y if mix is not None else weighed(y, E)

    def decomposed(self, x: Tensor, source: Tensor, decomposition: Decomposition, E: Tensor) -> Tensor:
        """Apply `forward` to the streams of x (b, l, i), which are computed inside the scan; E (b, l, m)."""
        assert decomposition.filters is not None
        low, B, C = self._project(source)
        bank = (decomposition.filters, decomposition.bias)
        arguments = (x, *bank, low, *self.dt.affine(), self._decays(), B, C, self.D, E)
        return multi_scale_scan(*arguments, discretisation=self.discretisation)

    def step(self, scanned: Tensor, source: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `StreamSsms`."""
        low, B, C = (x.squeeze(1) for x in self._project(source.unsqueeze(1)))
        arguments = (scanned, self.dt.step(low), self._decays(), B, C, self.D, h)
        return scan_step(*arguments, discretisation=self.discretisation)

    def steps(self) -> Tensor:
        """See `RealSsms`."""
        return functional.softplus(self.dt.affine()[1])

    def _decays(self) -> Tensor:
        """Return A (m, i, n)."""
        return self.by_stream(decays(self.A_log))

    def _project(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the low-rank input of the step sizes (b, l, m, r), B and C (b, l, m, n)."""
        m = len(self.streams)
        weight = stretch(self.x_proj, self.pad_projection, m * sum(self.sizes))
        if source.ndim == 4:
            rows = torch.einsum("blmi,mri->blmr", source, weight.view(m, -1, weight.shape[1]))
        else:
            rows = functional.linear(source, weight).view(*source.shape[:2], m, -1)
        low, B, C = torch.split(rows, self.sizes, dim=-1)
        return low[:, :, :1].expand_as(low) if self.shared_steps else low, B, C
