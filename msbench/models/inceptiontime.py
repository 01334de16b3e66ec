"""InceptionTime (Ismail Fawaz et al. 2020): parallel convolutions of several widths, no recurrence.

===================  ==================  ==================================================================
code                 paper               meaning
===================  ==================  ==================================================================
``d``                128                 output channels of a module: those of all branches
``kernels``          40, 20, 10          widths of the convolutions (39, 19, 9 in the PTB-XL benchmark)
``bottleneck``       m = 32              input channels of the convolutions
``branches``         4                   the convolutions and the pooling, d / 4 channels each
===================  ==================  ==================================================================

::

    module(x) = relu(norm([conv_k(linear(x)) for k in kernels, linear(maxpool_3(x))]))
    group(x)  = relu(norm(linear(x)) + module(module(module(x))))

Each convolution sees both sides, half of its width each; an even width sees one more step of the future.
For convolutions padding is 0, as is everything outside the sequence; the pooling ignores padding, where a 0
would win over negative values. Norms use real positions only. The last group is followed by the classifier's
own mean pooling and head. The paper's network reads the signal itself; here an encoder comes before the first
module, as in every model.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import InceptionTimeConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.models.layers import Padding, build_norm, normalise

POOLED = 3


class InceptionModule(nn.Module):
    """All branches, norm and ReLU: (b, l, d) -> (b, l, d); input and output are zero where `mask` is 0."""

    def __init__(self, config: InceptionTimeConfig) -> None:
        super().__init__()
        filters = config.d_model // (len(config.kernels) + 1)
        self.kernels = config.kernels
        self.bottleneck = nn.Linear(config.d_model, config.bottleneck, bias=False)
        self.convs = nn.ModuleList(
            nn.Conv1d(config.bottleneck, filters, width, bias=False) for width in config.kernels
        )
        self.pooled = nn.Linear(config.d_model, filters, bias=False)
        self.norm = build_norm(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map x (b, l, d) and mask (b, l, 1) to (b, l, d)."""
        branches = self._convolve(self.bottleneck(x).mT)
        y = torch.cat([*branches, self.pooled(compute_local_maxima(x, mask))], dim=2)
        # Norms in the input's precision, regardless of autocast in the branches.
        return functional.relu(normalise(self.norm, y.to(x.dtype), mask, zero=True))

    def _convolve(self, x: Tensor) -> list[Tensor]:
        """Return every convolution of x (b, c, l), each (b, l, filters); on a CPU in the weights' precision.

        There bfloat16 is wrong by as much as the result on processors with AMX for some widths and numbers of
        channels, such as 40 taps of 4 and 20 of 8 (PyTorch 2.14.1).
        """
        if x.device.type == "cpu":
            x = x.to(next(self.convs.parameters()).dtype)
        widths = zip(self.convs, self.kernels, strict=True)
        with torch.autocast("cpu", enabled=False):
            return [conv(pad_both_sides(x, width)).mT for conv, width in widths]


class InceptionGroup(nn.Module):
    """Several modules in sequence, with a shortcut over all of them if `shortcut`."""

    def __init__(self, config: InceptionTimeConfig, modules: int, *, shortcut: bool) -> None:
        super().__init__()
        self.inception = nn.ModuleList(InceptionModule(config) for _ in range(modules))
        self.shortcut: nn.Linear | None = None
        self.norm: nn.Module | None = None
        if shortcut:
            self.shortcut = nn.Linear(config.d_model, config.d_model, bias=False)
            self.norm = build_norm(config)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to the same shape."""
        mask = Padding.from_lengths(lengths, inputs.shape[1], inputs.dtype).mask
        x = inputs
        for module in self.inception:
            x = module(x, mask)
        if self.shortcut is None or self.norm is None:
            return x
        around = self.shortcut(inputs).to(x.dtype)
        return functional.relu(x + normalise(self.norm, around, mask, zero=True))


def pad_both_sides(x: Tensor, width: int) -> Tensor:
    """Pad x (b, c, l) with zeros at both ends, so that a convolution of this width leaves l positions."""
    return functional.pad(x, ((width - 1) // 2, width // 2))


def compute_local_maxima(x: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum of each three neighbours at real positions of x (b, l, d); 0 after the end."""
    behind = mask == 0
    real = x.masked_fill(behind, -torch.inf)
    largest = functional.max_pool1d(real.mT, POOLED, stride=1, padding=POOLED // 2).mT
    return largest.masked_fill(behind, 0)


def build(config: InceptionTimeConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per group under a shortcut; left-over modules have no shortcut."""
    span = config.shortcut_every
    starts = range(0, config.layers, span)
    sizes = [min(span, config.layers - start) for start in starts]
    groups = [[InceptionGroup(config, size, shortcut=size == span)] for size in sizes]
    return Classifier(config, info, groups, residuals=False)


# Convolutions see both sides.
FAMILY = Family(build, count_no_states, is_causal=lambda _config: False)
