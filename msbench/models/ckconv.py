"""CKCNN (Romero et al. 2022): convolutions as long as the sequence, whose kernels are functions of the lag.

==============  ====================  ================================================================
code            paper                 meaning
==============  ====================  ================================================================
``d``           N_C = N_in = N_out    channels
``network``     MLP^psi               the network from a relative position to the kernel there
``positions``   Delta tau             from 1 now to -1 at the start of the task's longest sequence
``kernel``      psi                   (k, d, d): a matrix between all channels at each lag
``frequency``   omega_0               of the sines in the network (Sitzmann et al. 2020)
==============  ====================  ================================================================

::

    network(p) = linear(sin(w linear(sin(w linear(p)))))        w = frequency
    kernel(lag) = network(1 - 2 lag / (longest - 1))
    conv(x)[t] = b + sum_lag kernel(lag) x[t - lag]
    part(x)    = dropout(relu(norm(conv(x))))
    block(x)   = relu(x + part(part(x)))                        logits = head(last position)

The network's weights are normalised: a gain and a direction for each output. Of the first map, which has one
input, a direction would be a sign: its weights are plain.

The paper says layer norm; in its code the statistics are over all positions too, so that each sees the future
and the padding. Here they are over the channels of one position or, with ``norm_over: sequence``, those of
the code over real positions. The code takes the scale of positions from the first batch that it sees; here it
is the task's. Its first block reads the input itself; here an encoder comes before it, as in every model.

The network starts as those of sines: uniform from -1 to 1 in the first map, up to sqrt(6 / width) / w in the
others, and biases up to 1. The code draws these weights too, but into tensors that weight normalisation then
overwrites, so that the last two start as torch's, ten times as large: ``kernel_init: torch``.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import CkConvConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family, count_no_states
from msbench.models.implicit_kernel import ImplicitKernel, Sine
from msbench.models.layers import ChannelDropout, Padding, ShortcutLayer, build_norm, normalise
from msbench.models.weight_norm import WeightNormLinear
from msbench.ops.batch_norm import EPSILON
from msbench.ops.convolution import dense_convolution


class ElementDropout(ChannelDropout):
    """Dropout of single values."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (...) to (...)."""
        return functional.dropout(x, self.p, self.training)


class ContinuousConv(nn.Module):
    """A causal convolution between all channels with a continuous kernel: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: CkConvConfig, longest: int) -> None:
        super().__init__()
        self.steps = max(1, longest - 1)
        width, d = config.kernel_width, config.d_model
        first = nn.Linear(1, width)
        second, last = WeightNormLinear(width, width), WeightNormLinear(width, d * d)
        for linear in (first, second, last):
            nn.init.uniform_(linear.bias, -1, 1)
        nn.init.uniform_(first.weight, -1, 1)
        if config.kernel_init == "sine":
            bound = math.sqrt(6 / width) / config.frequency
            for normed in (second, last):
                nn.init.uniform_(normed.direction, -bound, bound)
                normed.set_gains()
        sine = Sine(config.frequency)
        self.network = ImplicitKernel(first, sine, second, sine, last)
        self.dropout = ElementDropout(config.kernel_dropout)
        self.bias = nn.Parameter(torch.zeros(d))

    def compute_kernel(self, length: int) -> Tensor:
        """Return the kernel (length, d, d) by lag: to an output channel from an input channel."""
        lags = torch.arange(length, device=self.bias.device, dtype=self.bias.dtype)
        positions = 1 - 2 * lags / self.steps
        d = self.bias.numel()
        kernel: Tensor = self.dropout(self.network(positions.unsqueeze(1)))
        return kernel.view(length, d, d)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        return dense_convolution(x, self.compute_kernel(x.shape[1])) + self.bias


class SequenceNorm(nn.Module):
    """A layer norm over all channels of all real positions of a sequence."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Map x (b, l, d) and mask (b, l, 1) to (b, l, d), zero after the end."""
        x, mask = x.to(self.weight.dtype), mask.to(self.weight.dtype)
        count = mask.sum((1, 2), keepdim=True).clamp(min=1) * x.shape[2]
        centred = (x - (x * mask).sum((1, 2), keepdim=True) / count) * mask
        variance = centred.square().sum((1, 2), keepdim=True) / count
        return (centred * torch.rsqrt(variance + EPSILON) * self.weight + self.bias) * mask


class ContinuousConvBlock(ShortcutLayer):
    """Two convolutions, each with norm, ReLU and dropout, and a shortcut: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: CkConvConfig, longest: int) -> None:
        super().__init__()
        over_sequence = config.norm_over == "sequence"
        self.convs = nn.ModuleList(ContinuousConv(config, longest) for _ in range(2))
        self.norms = nn.ModuleList(
            SequenceNorm(config.d_model) if over_sequence else build_norm(config) for _ in range(2)
        )
        self.dropout = ChannelDropout(config.dropout)

    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """See `ShortcutLayer`."""
        mask = Padding.from_lengths(lengths, inputs.shape[1], inputs.dtype).mask
        x = inputs
        for conv, norm in zip(self.convs, self.norms, strict=True):
            y = conv(x)
            y = norm(y, mask) if isinstance(norm, SequenceNorm) else normalise(norm, y, mask, zero=True)
            x = self.dropout(functional.relu(y))
        return x

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """See `ShortcutLayer`; a last ReLU acts on the sum."""
        return functional.relu(super().forward(inputs, lengths))


def build(config: CkConvConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer, with dropout inside of the blocks alone."""
    layers = [[ContinuousConvBlock(config, info.longest)] for _ in range(config.layers)]
    return Classifier(config.model_copy(update={"dropout": 0.0}), info, layers, residuals=False)


FAMILY = Family(
    build,
    count_no_states,
    is_causal=lambda config: config.norm_over == "channels",
    cost="l log l",
)
