"""The constant (S4) SSMs of MS-SSM: linear, time-invariant, with a real diagonal.

==============  ==================  =========================================================
code            paper, S4D          meaning
==============  ==================  =========================================================
``log_dt``      log(Delta)          step sizes, one per stream and channel
``B``, ``C``    B, C                constant; B is 1 unless learned: only their product acts
==============  ==================  =========================================================

The zero-order hold is exact, B-bar = (exp(dt A) - 1) / A B (Gu et al. 2022, S4D), so that a stream's kernel
is ``k[j] = sum_n C_n B-bar_n exp(j dt A_n)``. The other names are those of `msbench.models.ms_ssm`.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from msbench.config.selective import MsSsmConfig
from msbench.models.scale_mixer import weighed
from msbench.models.selective import decays, full_precision, initial_steps
from msbench.models.stream_ssms import RealSsms
from msbench.ops import lti_scan


class StreamSystem(RealSsms):
    """All m constant SSMs in one scan, then mixed. C starts from a normal distribution, as in S4."""

    optimizer_groups: ClassVar = {"log_dt": "ssm", "B": "ssm"}

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config, width)
        states = sum(self.streams)
        self.log_dt = nn.Parameter(initial_steps(config, len(self.streams), width).log())
        self.B = nn.Parameter(torch.ones(width, states)) if config.learned_b else None
        self.C = nn.Parameter(torch.randn(width, states))

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:  # noqa: ARG002 (constant)
        """See `StreamSsms`."""
        mix = E if E.ndim == 3 else None
        y = lti_scan(scanned, *self.discrete(), self.D, mix)
        return y if mix is not None else weighed(y, E)

    def step(self, scanned: Tensor, source: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """See `StreamSsms`."""
        log_decay, weight = self.discrete()
        u = scanned.to(h.dtype)
        h = torch.exp(log_decay) * h + u.unsqueeze(3)
        y = (weight * h).sum(3)
        return y if self.D is None else y + self.D * u, h

    def steps(self) -> Tensor:
        """See `RealSsms`."""
        return torch.exp(full_precision(self.log_dt))

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Return dt A and C B-bar, both (m, i, n)."""
        A, pairs = decays(self.A_log), zip(self.steps(), self.streams, strict=True)
        dt = torch.cat([steps.unsqueeze(1).expand(-1, n) for steps, n in pairs], dim=1)
        B_bar = torch.expm1(dt * A) / A
        B_bar = B_bar if self.B is None else B_bar * self.B
        return self.by_stream(dt * A), self.by_stream(full_precision(self.C) * B_bar)
