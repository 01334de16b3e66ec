"""Orchid (Karami and Ghodsi 2024): global convolutions whose kernels depend on the input, between two gates.

=====================  ====================  =============================================================
code                   paper, code           meaning
=====================  ====================  =============================================================
``n``, ``longest``     L                     a sequence's own length, and that of the task's longest
``gate``, ``key``      x0, x1                factors after and before the convolution
``value``              v, y                  what is convolved
``static``             h_0, ``fixed_conv``   a kernel computed from positions, the same for all inputs
``dynamic``            h_theta(x)            a kernel computed from the input by the conditioning network
``remaining``          ``fixed_conv_res``    a second static convolution, of the layer's own input
=====================  ====================  =============================================================

::

    p = W_i x                 gate, key, value = short(p), three parts         s = key * value
    y = gate * ((static + dynamic) * s / sqrt(longest) + skip s)
    output = W_o (y + remaining * x / sqrt(longest) + skip' x)
    static(t)  = exp(-|delta| t) network([t, cos(f_b t'), -sin(f_b t')])       t = 0 .. 1, t' = 0 .. 2 pi
    dynamic    = F^-1 norm(conv(|F norm(conv(p_3))|^2))                       p_3: the last third of p

Products with a kernel are circular convolutions over a sequence: it is not causal. `short` is causal, of
``kernel`` taps, with a filter for each channel. Both conv of the conditioning network have 3 taps, over time
and over frequencies, where each channel gives two: the real and the imaginary part. A layer is this operator
and an MLP, each with norm and residual, as in the paper's networks for images.

F is the orthonormal transform of 2 longest points, as in the code's example, which has that of cosines; by
default the code divides by the length. So that padding changes no prediction, sequences wrap around at their
own end, frequencies are those of the task, and what norms and biases add to padding is masked. The code
trains the positions that the networks read, at a rate of 1e-5; here they are fixed.
"""

import math
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from msbench.config.baselines import OrchidConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import Mlp
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family, count_no_states
from msbench.models.implicit_kernel import ImplicitKernel
from msbench.models.layers import Padding
from msbench.models.selective import ShortConv
from msbench.ops.convolution import circular_convolution

SLOWEST, FASTEST, TARGET = 1.5, 0.3, 0.01
"""The windows of the static kernels fall to `TARGET` at these multiples of the longest sequence."""
LOWEST = 1e-4
"""The first frequency of the positions, close to a constant."""
LOCAL = 3
"""Taps of the conditioning network."""


class SineMlp(nn.Module):
    """Linear maps with sines between; one learned frequency for each unit, the same after every map."""

    def __init__(self, inputs: int, width: int, depth: int, outputs: int, frequency: float) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (1 + depth)]
        self.maps = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.last = nn.Linear(width, outputs, bias=False)
        self.frequency = nn.Parameter(torch.full((width,), frequency))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        for linear in self.maps:
            x = torch.sin(self.frequency * linear(x))
        y: Tensor = self.last(x)
        return y


class StaticConv(nn.Module):
    """A circular convolution with a kernel computed from positions, and its skip."""

    def __init__(self, config: OrchidConfig, longest: int) -> None:
        super().__init__()
        self.longest, self.bands, d = longest, config.bands, config.d_model
        self.network = ImplicitKernel(
            SineMlp(1 + 2 * config.bands, config.kernel_width, config.kernel_depth, d, config.frequency)
        )
        self.skip = nn.Parameter(torch.randn(d))

    def compute_kernel(self, length: int) -> Tensor:
        """Return the kernel (1, length, d), by lag."""
        like = self.skip
        steps = torch.arange(length, device=like.device, dtype=like.dtype).unsqueeze(1)
        bands = torch.linspace(LOWEST, self.bands - 1, self.bands, device=like.device, dtype=like.dtype)
        angles = 2 * math.pi / self.longest * steps * bands
        t = steps / max(1, self.longest - 1)
        positions = torch.cat([t, angles.cos(), -angles.sin()], dim=1)
        rates = torch.linspace(
            1 / SLOWEST, 1 / FASTEST, len(like), device=like.device, dtype=like.dtype
        ) * -math.log(TARGET)
        decay = torch.exp(-t * rates)
        kernel: Tensor = self.network(positions) * decay
        return kernel.unsqueeze(0)

    def forward(self, x: Tensor, lengths: Tensor, more: Tensor | None = None) -> Tensor:
        """Map x (b, l, d) to (b, l, d), with `more` (b, l, d) added to the kernel."""
        kernel = self.compute_kernel(x.shape[1])
        y = circular_convolution(x, kernel if more is None else kernel + more, lengths)
        return y / math.sqrt(self.longest) + self.skip * x


class ConditioningNetwork(nn.Module):
    """The kernel that depends on the input: from its local features in time, and those of its spectrum."""

    def __init__(self, config: OrchidConfig, longest: int) -> None:
        super().__init__()
        self.longest, d = longest, config.d_model
        self.time = nn.Conv1d(d, d, LOCAL, padding=LOCAL // 2, groups=d)
        self.time_norm = nn.LayerNorm(d)
        self.frequency = nn.Conv1d(d, 2 * d, LOCAL, padding=LOCAL // 2, groups=d)
        self.frequency_norm = nn.LayerNorm(2 * d)

    def forward(self, z: Tensor, lengths: Tensor) -> Tensor:
        """Map z (b, l, d) to a kernel (b, l, d) by lag, in float32 or better regardless of autocast."""
        size, length = 2 * self.longest, z.shape[1]
        with torch.autocast(z.device.type, enabled=False):
            z = z.to(self.time.weight.dtype)
            mask = Padding.from_lengths(lengths, length, z.dtype).mask
            local = self.time_norm(self.time((z * mask).mT).mT) * mask
            spectrum = torch.fft.rfft(local, n=size, dim=1, norm="ortho")
            power = spectrum.real.square() + spectrum.imag.square()
            response = self.frequency_norm(self.frequency(power.mT).mT).unflatten(2, (-1, 2))
            kernel = torch.fft.irfft(torch.view_as_complex(response), n=size, dim=1, norm="ortho")
        missing = max(0, length - size)
        return nn.functional.pad(kernel, (0, 0, 0, missing))[:, :length]


class OrchidOperator(nn.Module):
    """Gates around a convolution with a static and a dynamic kernel: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: OrchidConfig, longest: int) -> None:
        super().__init__()
        d = config.d_model
        self.in_proj = nn.Linear(d, 3 * d)
        self.short = ShortConv(3 * d, config.kernel, bias=True)
        self.static, self.remaining = StaticConv(config, longest), StaticConv(config, longest)
        self.conditioning = ConditioningNetwork(config, longest)
        self.out_proj = nn.Linear(d, d)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        p = self.in_proj(inputs)
        dynamic = self.conditioning(p.chunk(3, dim=2)[2], lengths)
        gate, key, value = self.short(p).chunk(3, dim=2)
        y = gate * self.static(key * value, lengths, dynamic)
        out: Tensor = self.out_proj(y + self.remaining(inputs, lengths))
        return out


def build(config: OrchidConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: the operator and an MLP per layer."""
    network = partial(Mlp, config.d_model, config.mlp_expand)
    return build_classifier(config, info, lambda: OrchidOperator(config, info.longest), network)


# Convolutions are circular.
FAMILY = Family(build, count_no_states, is_causal=lambda _config: False, cost="l log l")
