"""The SSMs of MS-SSM, one per stream, all run at once: selective (S6), constant (S4) and with complex states.

==============  ==================  =======================================================================
code            paper, S4D          meaning
==============  ==================  =======================================================================
``x_proj``                          from the raw input to the low-rank step sizes, B and C: selective SSMs
``log_dt``      log(Delta)          step sizes, one per stream and channel: constant SSMs
``B``, ``C``    B, C                of constant SSMs; B is 1 unless learned: only their product acts
``systems``                         complex states: one system per number of states, of `msbench.models.s4d`
                                    (the poles of S4D-Lin) or `msbench.models.s4`: their channels are i of
                                    one stream, i of the next, ..
``offset``      N'                  distance by which the initial poles of a stream are left of its system's
==============  ==================  =======================================================================

The other names are those of `msbench.models.ms_ssm`.

Real constant SSMs have an exact zero-order hold, B-bar = (exp(dt A) - 1) / A B (Gu et al. 2022, S4D), so that
a stream's kernel is ``k[j] = sum_n C_n B-bar_n exp(j dt A_n)``.

In the paper diag(A) of all streams together starts at -1 .. -N, coarse streams slowest: each stream starts at
the poles of S4D-Real minus N', the number of states of all coarser streams. Complex systems start likewise,
at A - N' with the A of their own papers::

    s4d        A = diag(-1/2 + i pi n), S4D-Lin: all decays of a stream are -1/2 - N', its frequencies are
               those of a separate model
    s4-dplr    A = HiPPO-LegS, whose diagonal and spectrum are -1, -2, ..: those of all streams together are
               the paper's -1 .. -N. In Lambda - P P* the offset turns Lambda into Lambda - N'

So without levels a flavour starts as the model that it is named after; with levels its streams differ in
memory length, which is the purpose of the paper's initialisation. N' counts a conjugate pair as two.
"""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.linear import S4Config, S4dConfig
from msbench.config.selective import MsSsmConfig
from msbench.models.layers import compute_decays, require_full_precision
from msbench.models.lti import checkpoint_kernel
from msbench.models.s4 import DplrSystem
from msbench.models.s4d import S4dSystem
from msbench.models.selective import SMALLEST_STEP, StepSizes, compute_dt_rank, draw_step_sizes, step_scan
from msbench.models.streams import (
    Decomposition,
    compute_decay_offsets,
    initialise_stream_decays,
    mix_streams,
    split_states,
)
from msbench.ops.convolution import long_convolution
from msbench.ops.lti_scan import lti_scan
from msbench.ops.scan.fused import low_rank_scan, multi_scale_scan


class StreamSsms(nn.Module):
    """The SSMs of the m streams, with n_s states per channel, and their skips."""

    D: nn.Parameter | None

    def __init__(self, config: MsSsmConfig) -> None:
        super().__init__()
        self.streams = split_states(config)

    def create_skips(self, config: MsSsmConfig, width: int) -> nn.Parameter | None:
        """Return the initial D (m, i), or None."""
        return nn.Parameter(torch.ones(len(self.streams), width)) if config.skip else None

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """Run `scanned` (b, l, m, i) through the SSMs, mix by E, and return z (b, l, i).

        E is the output of `msbench.models.streams.ScaleMixer`. Selective SSMs compute their
        parameters from `source`, (b, l, i) or per stream (b, l, m, i).
        """
        raise NotImplementedError

    def start(self, x: Tensor) -> Any:
        """Return the states before the first position, for inputs like x (b, i): a tensor or a nest."""
        raise NotImplementedError

    def step(self, scanned: Tensor, source: Tensor, h: Any) -> tuple[Tensor, Any]:
        """Run one position of `forward`, without l and mixing; return y (b, m, i) and the new states."""
        raise NotImplementedError

    def compute_poles(self) -> list[Tensor]:
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
        self.A_log = nn.Parameter(initialise_stream_decays(config, width))
        self.D = self.create_skips(config, width)
        self.register_buffer("pad_states", find_padded_rows([[n] for n in self.streams]), persistent=False)

    def start(self, x: Tensor) -> Tensor:
        """See `StreamSsms`: (b, m, i, n)."""
        size = (len(x), len(self.streams), self.A_log.shape[0], max(self.streams))
        return x.new_zeros(size, dtype=torch.promote_types(x.dtype, self.A_log.dtype))

    def compute_steps(self) -> Tensor:
        """Return the step sizes (m, i); for selective SSMs, those without a contribution of the input."""
        raise NotImplementedError

    def compute_poles(self) -> list[Tensor]:
        """See `StreamSsms`: exp(dt A)."""
        rates = torch.split(compute_decays(self.A_log), self.streams, dim=1)
        return [torch.exp(dt.unsqueeze(1) * A) for dt, A in zip(self.compute_steps(), rates, strict=True)]

    def pad_by_stream(self, values: Tensor) -> Tensor:
        """Return values (i, sum of n_s) as (m, i, n), 0 where a stream has fewer states."""
        m, n = len(self.streams), max(self.streams)
        return pad_rows(values.T.contiguous(), self.pad_states, m * n).view(m, n, -1).mT


def find_padded_rows(sizes: list[list[int]]) -> Tensor | None:
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


def pad_rows(rows: Tensor, places: Tensor | None, size: int) -> Tensor:
    """Place rows (r, ...) at `places`, of `find_padded_rows`, among `size` rows of zeros."""
    if places is None:
        return rows
    # Not index_select with a row of zeros: its gradient adds row by row, 30 ms per layer of 300 rows.
    return rows.new_zeros(size, *rows.shape[1:]).index_copy(0, places, rows)


class SelectiveSsms(RealSsms):
    """All m selective SSMs in one scan, then mixed.

    Padded states have B, C and rate 0. Rows of `x_proj` are, stream after stream, r of the step size (of the
    first stream alone, if it is shared), n_s of B, n_s of C.
    """

    pad_projection: Tensor | None

    def __init__(self, config: MsSsmConfig, width: int, source: int) -> None:
        """Build the SSMs of streams of `width` channels, controlled by an input of `source` channels."""
        super().__init__(config, width)
        rank, largest = compute_dt_rank(config), max(self.streams)
        self.sizes = [rank, largest, largest]
        self.discretisation = config.input_discretisation
        self.shared_steps = config.step_sizes == "shared"
        ranks = [rank] + [0 if self.shared_steps else rank] * (len(self.streams) - 1)
        rows = sum(ranks) + 2 * sum(self.streams)
        self.x_proj = nn.Parameter(torch.empty(rows, source).uniform_(-(source**-0.5), source**-0.5))
        self.dt = StepSizes(config, len(self.streams), width, shared=self.shared_steps)
        sizes = [[rank, n, n] for rank, n in zip(ranks, self.streams, strict=True)]
        self.register_buffer("pad_projection", find_padded_rows(sizes), persistent=False)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:
        """See `StreamSsms`."""
        low, B, C = self._project(source)
        mix = E if E.ndim == 3 else None
        arguments = (scanned, low, *self.dt.get_affine(), self._compute_decays(), B, C, self.D, mix)
        y = low_rank_scan(*arguments, discretisation=self.discretisation)
        return y if mix is not None else mix_streams(y, E)

    def scan_decomposed(self, x: Tensor, source: Tensor, decomposition: Decomposition, E: Tensor) -> Tensor:
        """Apply `forward` to the streams of x (b, l, i), which are computed inside the scan; E (b, l, m)."""
        assert decomposition.filters is not None
        low, B, C = self._project(source)
        bank = (decomposition.filters, decomposition.bias)
        arguments = (x, *bank, low, *self.dt.get_affine(), self._compute_decays(), B, C, self.D, E)
        return multi_scale_scan(*arguments, discretisation=self.discretisation)

    def step(self, scanned: Tensor, source: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `StreamSsms`."""
        low, B, C = (x.squeeze(1) for x in self._project(source.unsqueeze(1)))
        arguments = (scanned, self.dt.step(low), self._compute_decays(), B, C, self.D)
        return step_scan(*arguments, state=h, discretisation=self.discretisation)

    def compute_steps(self) -> Tensor:
        """See `RealSsms`."""
        return functional.softplus(self.dt.get_affine()[1])

    def _compute_decays(self) -> Tensor:
        """Return A (m, i, n)."""
        return self.pad_by_stream(compute_decays(self.A_log))

    def _project(self, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the low-rank input of the step sizes (b, l, m, r), B and C (b, l, m, n)."""
        m = len(self.streams)
        weight = pad_rows(self.x_proj, self.pad_projection, m * sum(self.sizes))
        if source.ndim == 4:
            rows = torch.einsum("blmi,mri->blmr", source, weight.view(m, -1, weight.shape[1]))
        else:
            rows = functional.linear(source, weight).view(*source.shape[:2], m, -1)
        low, B, C = torch.split(rows, self.sizes, dim=-1)
        return low[:, :, :1].expand_as(low) if self.shared_steps else low, B, C


class ConstantSsms(RealSsms):
    """All m constant SSMs in one scan, then mixed. C starts from a normal distribution, as in S4."""

    optimizer_groups: ClassVar = {"B": "ssm"}

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config, width)
        states = sum(self.streams)
        self.log_dt = nn.Parameter(draw_step_sizes(config, len(self.streams), width).log())
        self.B = nn.Parameter(torch.ones(width, states)) if config.learned_b else None
        self.C = nn.Parameter(torch.randn(width, states))

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:  # noqa: ARG002 (constant)
        """See `StreamSsms`."""
        mix = E if E.ndim == 3 else None
        y = lti_scan(scanned, *self.discretise(), self.D, mix)
        return y if mix is not None else mix_streams(y, E)

    def step(self, scanned: Tensor, source: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `StreamSsms`."""
        log_decay, weight = self.discretise()
        u = scanned.to(h.dtype)
        h = torch.exp(log_decay) * h + u.unsqueeze(3)
        y = (weight * h).sum(3)
        return y if self.D is None else y + self.D * u, h

    def compute_steps(self) -> Tensor:
        """See `RealSsms`."""
        return torch.exp(require_full_precision(self.log_dt))

    def discretise(self) -> tuple[Tensor, Tensor]:
        """Return dt A and C B-bar, both (m, i, n)."""
        A, pairs = compute_decays(self.A_log), zip(self.compute_steps(), self.streams, strict=True)
        dt = torch.cat([steps.unsqueeze(1).expand(-1, n) for steps, n in pairs], dim=1)
        B_bar = torch.expm1(dt * A) / A
        B_bar = B_bar if self.B is None else B_bar * self.B
        return self.pad_by_stream(dt * A), self.pad_by_stream(require_full_precision(self.C) * B_bar)


class ComplexSsms(StreamSsms):
    """All systems as one convolution, then mixed."""

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config)
        self.width = width
        offsets: dict[int, list[int]] = {}
        for states, offset in zip(self.streams, compute_decay_offsets(config), strict=True):
            offsets.setdefault(states, []).append(offset)
        # Numbers of states never fall from stream to stream, so the groups are in the order of the streams.
        self.systems = nn.ModuleList(build_system(config, width, *group) for group in offsets.items())
        self.D = self.create_skips(config, width)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:  # noqa: ARG002 (constant)
        """See `StreamSsms`."""
        kernel = checkpoint_kernel(self.compute_kernel, scanned.shape[1], training=self.training)
        return mix_streams(long_convolution(scanned, kernel), E)

    def compute_kernel(self, length: int) -> Tensor:
        """Return the impulse response of the outputs, (length, m, i); a skip is part of lag 0."""
        kernels = [each.compute_kernel(length)[:, 0] for each in self._list_systems()]
        kernel = torch.cat(kernels, dim=1).reshape(length, -1, self.width)
        return (
            kernel if self.D is None else torch.cat([kernel[:1] + require_full_precision(self.D), kernel[1:]])
        )

    def start(self, x: Tensor) -> Any:
        """See `StreamSsms`."""
        return [each.start(x) for each in self._list_systems()]

    def step(self, scanned: Tensor, source: Tensor, h: Any) -> tuple[Tensor, Any]:  # noqa: ARG002
        """See `StreamSsms`."""
        inputs = torch.split(scanned.flatten(1), self._count_channels(), dim=1)
        each = zip(self._list_systems(), inputs, h, strict=True)
        outputs, after = zip(*(build_system.step(u, state) for build_system, u, state in each), strict=True)
        y = torch.cat(outputs, dim=1).view_as(scanned)
        return y if self.D is None else y + self.D * scanned, list(after)

    def compute_poles(self) -> list[Tensor]:
        """See `StreamSsms`: both halves of the pairs; for ``s4-dplr`` those of its diagonal part alone."""
        halves = (torch.split(each.compute_discrete_poles(), self.width) for each in self._list_systems())
        return [torch.cat([half, half.conj()], dim=1) for streams in halves for half in streams]

    def _list_systems(self) -> list[Any]:
        return list(self.systems)

    def _count_channels(self) -> list[int]:
        return [len(each.log_dt) for each in self._list_systems()]


def build_system(config: MsSsmConfig, width: int, states: int, offsets: list[int]) -> S4dSystem | DplrSystem:
    """Return a system with `width` channels per offset (stream); initial step sizes have a floor."""
    shared: dict[str, Any] = {"dt_min": config.dt_min, "dt_max": config.dt_max, "state": states}
    shared["d_model"] = width * len(offsets)
    offset = torch.tensor(offsets).repeat_interleave(width).unsqueeze(1)
    found = (
        S4dSystem(S4dConfig(**shared), offset)
        if config.ssm == "s4d"
        else DplrSystem(S4Config(**shared, b_clip=config.b_clip), offset)
    )
    with torch.no_grad():
        found.log_dt.clamp_(min=math.log(SMALLEST_STEP))
    return found
