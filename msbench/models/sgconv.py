"""SGConv (Li et al. 2022): a long kernel with few parameters, which decays with the lag.

===================  ==================  ==================================================================
code                 paper               meaning
===================  ==================  ==================================================================
``scales``           N                   sub-kernels; enough to span the longest sequence
``k``                d                   parameters of a sub-kernel (``kernel_dim``)
``sides``                                1, or 2 where bidirectional: kernels over the past, the future
``kernels``          w_i                 all parameters of all sub-kernels
``fading``           alpha^i             weight of a sub-kernel: `decay` ^ (number of coarser sub-kernels)
``norm``             Z                   norm of the initial kernel
``D``                                    skip
===================  ==================  ==================================================================

::

    kernel = [up_1(w_0) fading_0, up_1(w_1) fading_1, up_2(w_2) fading_2, up_4(w_3) fading_3 ..] / norm
    y = kernel * x + D x                         output = glu(linear(dropout(gelu(y))))

up_f is linear interpolation to f times as many points. The authors' code computes the norm in the first
forward pass, from the weights of that moment. Here it is that of the initial weights and part of the model's
state, so that it does not depend on loaded checkpoints or the first batch. As in the authors' code both sides
share one block: the second kernel reads the future, from the next step on.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import SgConvConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.blocks import GluBlock
from msbench.models.classifier import Classifier, Layer, build_classifier
from msbench.models.family import Family, count_no_states
from msbench.models.layers import shift_earlier
from msbench.models.long_conv import LongConv, State
from msbench.ops.convolution import long_convolution


def count_scales(longest: int, kernel_dim: int) -> int:
    """Return the fewest sub-kernels that span the longest sequence: 1 + ceil(log2(l / k))."""
    return 1 + (-(-longest // kernel_dim) - 1).bit_length()  # in integers: 2^(scales - 1) k >= l


def interpolate(points: Tensor, factor: int) -> Tensor:
    """Interpolate (..., k, d) to (..., k factor, d): linear between midpoints, constant at both ends.

    Equal to torch's interpolate without aligned corners, whose gradient on a GPU is not deterministic.
    """
    place = (torch.arange(factor, device=points.device, dtype=points.dtype) + 0.5) / factor - 0.5
    rise = functional.pad(points.diff(dim=-2), (0, 0, 1, 1))
    before, behind = rise[..., :-1, None, :], rise[..., 1:, None, :]
    place = place.unsqueeze(1)
    fine = points.unsqueeze(-2) + place.clamp(max=0) * before + place.clamp(min=0) * behind
    return fine.flatten(-3, -2)


class SgConv(LongConv):
    """A convolution with the structured kernel, and a skip: (b, l, d) -> (b, l, d)."""

    fading: Tensor
    norm: Tensor
    # As in the authors' code kernels have a learning rate of their own, and D does not.
    optimizer_groups: ClassVar = {"kernels": "kernels", "D": "plain"}

    def __init__(self, config: SgConvConfig, longest: int) -> None:
        scales = count_scales(longest, config.kernel_dim)
        super().__init__(config.kernel_dim * 2 ** (scales - 1))
        sides, d = 1 + config.bidirectional, config.d_model
        self.kernels = nn.Parameter(torch.randn(scales, sides, config.kernel_dim, d))
        self.D = nn.Parameter(torch.randn(d))
        coarser_left = torch.arange(scales - 1, -1, -1).unsqueeze(1)
        decay = torch.linspace(config.decay_min, config.decay_max, d)
        self.register_buffer("fading", decay**coarser_left, persistent=False)
        self.register_buffer("norm", self._compute_unscaled().detach().norm(dim=1, keepdim=True))

    def compute_sides(self) -> Tensor:
        """Return the kernels (sides, reach, d), by lag; that of the future begins at the next step."""
        return self._compute_unscaled() / self.norm

    def compute_kernel(self, length: int) -> Tensor:  # noqa: ARG002 (the whole kernel is cheap)
        """See `LongConv`: the kernel of the past."""
        return self.compute_sides()[0]

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, d), zero after the end of each sequence, to (b, l, d)."""
        kernels = self.compute_sides()
        y = long_convolution(x, kernels[0]) + self.D * x
        if len(kernels) == 1:
            return y
        # In reverse: padding is zero and adds nothing. Shifted by one step: the last step sees no future.
        return y + shift_earlier(long_convolution(x.flip(1), kernels[1]).flip(1))

    def start(self, x: Tensor) -> State:
        """See `msbench.models.layers.Recurrent`; raises ConfigError if the layer is bidirectional."""
        if self.kernels.shape[1] == 2:
            raise ConfigError("a bidirectional kernel reads what follows; steps need bidirectional: false")
        return super().start(x)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `msbench.models.layers.Recurrent`."""
        y, state = super().step(x, state)
        return y + self.D * x, state

    def _compute_unscaled(self) -> Tensor:
        """Return the kernels before division by their norm."""
        weighed = self.kernels * self.fading[:, None, None]
        parts = [interpolate(part, 2 ** max(0, i - 1)) for i, part in enumerate(weighed)]
        return torch.cat(parts, dim=1)


def build(config: SgConvConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""

    def build_block() -> Layer:
        return GluBlock(config, SgConv(config, info.longest), dropout=config.dropout)

    return build_classifier(config, info, build_block)


FAMILY = Family(build, count_no_states, cost="l log l")
