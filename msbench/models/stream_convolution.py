"""The constant SSMs of MS-SSM with complex states: S4D's or S4's system in every stream, as convolutions.

==============  =======================================================================================
code            meaning
==============  =======================================================================================
``systems``     one per number of states, of `msbench.models.s4d` (the poles of S4D-Lin) or
                `msbench.models.s4`: their channels are i of one stream, i of the next, ..
``offset``      distance by which the initial poles of a stream are left of its system's own
==============  =======================================================================================

In the paper diag(A) of all streams together starts at -1 .. -N, coarse streams slowest: each stream starts at
the poles of S4D-Real minus N', the number of states of all coarser streams. Complex systems start likewise,
at A - N' with the A of their own papers::

    s4d        A = diag(-1/2 + i pi n), S4D-Lin: all decays of a stream are -1/2 - N', its frequencies are
               those of a separate model
    s4-dplr    A = HiPPO-LegS, whose diagonal and spectrum are -1, -2, ..: those of all streams together are
               the paper's -1 .. -N. In Lambda - P P* the offset turns Lambda into Lambda - N'

So without levels a flavour starts as the model that it is named after; with levels its streams differ in
memory length, which is the purpose of the paper's initialisation. N' counts a conjugate pair as two. The
other names are those of `msbench.models.ms_ssm`.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from msbench.config.linear import S4Config, S4dConfig
from msbench.config.selective import MsSsmConfig
from msbench.models.lti import made_again
from msbench.models.s4 import Dplr
from msbench.models.s4d import S4d
from msbench.models.scale_mixer import weighed
from msbench.models.selective import SMALLEST_STEP, full_precision
from msbench.models.stream_ssms import StreamSsms
from msbench.models.streams import decay_offsets
from msbench.ops import long_convolution


class StreamConvolution(StreamSsms):
    """All systems as one convolution, then mixed."""

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config)
        self.width = width
        offsets: dict[int, list[int]] = {}
        for states, offset in zip(self.streams, decay_offsets(config), strict=True):
            offsets.setdefault(states, []).append(offset)
        # Numbers of states never fall from stream to stream, so the groups are in the order of the streams.
        self.systems = nn.ModuleList(system(config, width, *group) for group in offsets.items())
        self.D = self.skips(config, width)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:  # noqa: ARG002 (constant)
        """See `StreamSsms`."""
        kernel = made_again(self.kernel, scanned.shape[1], training=self.training)
        return weighed(long_convolution(scanned, kernel), E)

    def kernel(self, length: int) -> Tensor:
        """Return the impulse response of the outputs, (length, m, i); a skip is part of lag 0."""
        kernels = [each.kernel(length)[:, 0] for each in self._systems()]
        kernel = torch.cat(kernels, dim=1).reshape(length, -1, self.width)
        return kernel if self.D is None else torch.cat([kernel[:1] + full_precision(self.D), kernel[1:]])

    def start(self, x: Tensor) -> Any:
        """See `StreamSsms`."""
        return [each.start(x) for each in self._systems()]

    def step(self, scanned: Tensor, source: Tensor, h: Any) -> tuple[Tensor, Any]:  # noqa: ARG002
        """See `StreamSsms`."""
        inputs = torch.split(scanned.flatten(1), self._channels(), dim=1)
        each = zip(self._systems(), inputs, h, strict=True)
        outputs, after = zip(*(system.step(u, state) for system, u, state in each), strict=True)
        y = torch.cat(outputs, dim=1).view_as(scanned)
        return y if self.D is None else y + self.D * scanned, list(after)

    def poles(self) -> list[Tensor]:
        """See `StreamSsms`: both halves of the pairs; for ``s4-dplr`` those of its diagonal part alone."""
        halves = (torch.split(each.discrete_poles(), self.width) for each in self._systems())
        return [torch.cat([half, half.conj()], dim=1) for streams in halves for half in streams]

    def _systems(self) -> list[Any]:
        return list(self.systems)

    def _channels(self) -> list[int]:
        return [len(each.log_dt) for each in self._systems()]


def system(config: MsSsmConfig, width: int, states: int, offsets: list[int]) -> S4d | Dplr:
    """Return a system with `width` channels per offset (stream); initial step sizes have a floor."""
    shared: dict[str, Any] = {"dt_min": config.dt_min, "dt_max": config.dt_max, "state": states}
    shared["d_model"] = width * len(offsets)
    offset = torch.tensor(offsets).repeat_interleave(width).unsqueeze(1)
    found = S4d(S4dConfig(**shared), offset) if config.ssm == "s4d" else Dplr(S4Config(**shared), offset)
    with torch.no_grad():
        found.log_dt.clamp_(min=math.log(SMALLEST_STEP))
    return found
