"""The constant SSMs of MS-SSM with complex states: S4D's or S4's system in every stream, as convolutions.

==============  =======================================================================================
code            meaning
==============  =======================================================================================
``systems``     those of streams that have as many states, of `msbench.models.s4d` (the poles of S4D-Lin)
                or `msbench.models.s4`: their channels are i of one stream, i of the next, ..
``offset``      how far the poles of a stream start to the left of its system's own
==============  =======================================================================================

The paper has diag(A) of all streams together start at -1 .. -N, coarse streams slowest: each stream starts at
the poles of S4D-Real less N', the number of states of all coarser ones. Complex systems start likewise, at
A - N' with the A of their own papers::

    s4d        A = diag(-1/2 + i pi n), S4D-Lin: a stream's one decay is -1/2 - N', its frequencies are those
               that a model of its own would have
    s4-dplr    A = HiPPO-LegS, whose diagonal and spectrum are -1, -2, ..: those of all streams together are
               the paper's -1 .. -N. Of Lambda - P P* it is Lambda that becomes Lambda - N'

So without levels a flavour starts as the model that it is named after; with them its streams differ in how
long they remember, which is what the paper's start is for. N' counts a conjugate pair as two. The other names
are those of `msbench.models.ms_ssm`.
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
    """The kernels of all systems, in one convolution; then mixed."""

    def __init__(self, config: MsSsmConfig, width: int) -> None:
        super().__init__(config)
        self.width = width
        offsets: dict[int, list[int]] = {}
        for states, offset in zip(self.streams, decay_offsets(config), strict=True):
            offsets.setdefault(states, []).append(offset)
        # States never fall from a stream to the next, so the groups are in the order of the streams.
        self.systems = nn.ModuleList(system(config, width, *group) for group in offsets.items())
        self.D = self.skips(config, width)

    def forward(self, scanned: Tensor, source: Tensor, E: Tensor) -> Tensor:  # noqa: ARG002 (constant)
        """See `StreamSsms`."""
        kernel = made_again(self.kernel, scanned.shape[1], training=self.training)
        return weighed(long_convolution(scanned, kernel), E)

    def kernel(self, length: int) -> Tensor:
        """What the outputs answer to an impulse, (length, m, i): a skip is its lag 0."""
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
        """See `StreamSsms`: both halves of the pairs; of ``s4-dplr`` those of its diagonal part alone."""
        halves = (torch.split(each.discrete_poles(), self.width) for each in self._systems())
        return [torch.cat([half, half.conj()], dim=1) for streams in halves for half in streams]

    def _systems(self) -> list[Any]:
        return list(self.systems)

    def _channels(self) -> list[int]:
        return [len(each.log_dt) for each in self._systems()]


def system(config: MsSsmConfig, width: int, states: int, offsets: list[int]) -> S4d | Dplr:
    """One for `width` channels of each stream, given by its offset. No step size starts below our floor."""
    shared: dict[str, Any] = {"dt_min": config.dt_min, "dt_max": config.dt_max, "state": states}
    shared["d_model"] = width * len(offsets)
    offset = torch.tensor(offsets).repeat_interleave(width).unsqueeze(1)
    found = S4d(S4dConfig(**shared), offset) if config.ssm == "s4d" else Dplr(S4Config(**shared), offset)
    with torch.no_grad():
        found.log_dt.clamp_(min=math.log(SMALLEST_STEP))
    return found
