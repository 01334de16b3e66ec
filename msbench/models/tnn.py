"""TNN, the Toeplitz neural network (Qin et al. 2023): gated mixing by relative positions alone.

===============  ==================  ====================================================================
code             paper               meaning
===============  ==================  ====================================================================
``inner``        d                   width of the gated Toeplitz unit (GTU), ``expand`` times d_model
``u``, ``v``     U, V                its gate and its values
``kernel``       T_ij = t_(i-j)      the Toeplitz matrix, as a kernel by lag i - j
``network``      RPE                 the small network that maps a lag to the kernel there
``decay``        lambda              factor of the kernel per position of distance
===============  ==================  ====================================================================

::

    GTU:  u = silu(W_u x)     v = silu(W_v x)     t(lag) = decay^|lag| network(lag)
          y_i = W_o (u_i * sum_j t(i - j) v_j)
    GLU:  y = W_3 (silu(W_1 x) * W_2 x)
    network(lag) = linear(relu(norm(linear(relu(linear(relu(linear(lag))))))))

A layer is these two blocks, each with norm and residual. Lags are whole numbers, so that the kernel is the
same for every length. Values are masked after silu, as the bias makes padding nonzero.

With ``dimensions: 2``, as in the authors' code for images, positions are pixels of a square picture in
reading order, and two operators with networks of their own mix along rows and along columns. The code adds
both orders of the two; they are equal, so here one is doubled.

In the code one-dimensional kernels end at a lag of 1,023 and fixed sines are added to the input; in the paper
and here neither. Weights and biases of the GTU start with deviation 0.02 as in the code, all else as torch's.
"""

from functools import partial
from math import isqrt

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import TnnConfig
from msbench.datasets.dataset import TaskInfo
from msbench.errors import ConfigError
from msbench.models.blocks import PositionwiseBlock
from msbench.models.classifier import Classifier, build_classifier
from msbench.models.family import Family, count_no_states
from msbench.models.implicit_kernel import ImplicitKernel
from msbench.models.layers import Padding
from msbench.ops.convolution import two_sided_convolution
from msbench.ops.gate import apply_gate

GTU_STD = 0.02


class ToeplitzOperator(nn.Module):
    """The product with a Toeplitz matrix along one axis, its own for each channel."""

    def __init__(self, config: TnnConfig) -> None:
        super().__init__()
        self.decay = config.decay
        width = config.kernel_width
        self.network = ImplicitKernel(
            nn.Linear(1, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, config.inner),
        )

    def compute_kernel(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the kernel (length, c) by lags 0, 1, .. of the past, and -1, -2, .. of the future."""
        example = next(self.network.parameters())
        lags = torch.arange(-length, length, device=example.device, dtype=example.dtype).unsqueeze(1)
        kernel = self.network(lags) * self.decay ** lags.abs()
        return kernel[length:], kernel[:length].flip(0)

    def forward(self, v: Tensor) -> Tensor:
        """Map v (b, l, c), zero after the end, to (b, l, c)."""
        return two_sided_convolution(v, *self.compute_kernel(v.shape[1]))


class PictureOperator(nn.Module):
    """Toeplitz operators along rows and columns of square pictures, pixel by pixel in reading order."""

    def __init__(self, config: TnnConfig, side: int) -> None:
        super().__init__()
        self.side = side
        self.rows, self.columns = ToeplitzOperator(config), ToeplitzOperator(config)

    def forward(self, v: Tensor) -> Tensor:
        """Map v (b, l, c), zero after the end, to (b, l, c); beyond the picture there is only padding."""
        b, length, _ = v.shape
        missing = self.side**2 - length
        lines = (b, self.side, self.side, -1)
        pixels = functional.pad(v, (0, 0, 0, missing)).reshape(b * self.side, self.side, -1)
        y = self.rows(pixels).view(lines).transpose(1, 2)
        y = self.columns(y.flatten(0, 1)).view(lines).transpose(1, 2)
        return 2 * functional.pad(y.flatten(1, 2), (0, 0, 0, -missing))


class GatedToeplitzUnit(nn.Module):
    """The GTU, W_o (u * T v): (b, l, d) -> (b, l, d)."""

    def __init__(self, config: TnnConfig, longest: int) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, 2 * config.inner)
        self.out_proj = nn.Linear(config.inner, config.d_model)
        for parameter in (*self.up.parameters(), *self.out_proj.parameters()):
            nn.init.normal_(parameter, std=GTU_STD)
        if config.dimensions == 1:
            self.operator: nn.Module = ToeplitzOperator(config)
        else:
            self.operator = PictureOperator(config, isqrt(longest))

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map (b, l, d) to (b, l, d)."""
        u, v = functional.silu(self.up(inputs)).chunk(2, dim=2)
        v = v * Padding.from_lengths(lengths, v.shape[1], v.dtype).mask
        y: Tensor = self.out_proj(u * self.operator(v))
        return y


class SwishGlu(PositionwiseBlock):
    """The gated linear unit, W_3 (silu(W_1 x) * W_2 x), with a hidden layer `expand` times as wide."""

    def __init__(self, d_model: int, expand: float) -> None:
        super().__init__()
        width = round(expand * d_model)
        self.up = nn.Linear(d_model, 2 * width)
        self.down = nn.Linear(width, d_model)

    def transform(self, x: Tensor) -> Tensor:
        """See `PositionwiseBlock`."""
        gate, value = self.up(x).chunk(2, dim=-1)
        out: Tensor = self.down(apply_gate(value, gate))
        return out


def build(config: TnnConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: a GTU and a GLU per layer; ConfigError for pictures that are not square."""
    if config.dimensions == 2 and isqrt(info.longest) ** 2 != info.longest:
        raise ConfigError(
            f"dimensions: 2 needs square pictures, and the longest sequence has {info.longest} positions; set"
            " it to 1"
        )
    return build_classifier(
        config,
        info,
        lambda: GatedToeplitzUnit(config, info.longest),
        partial(SwishGlu, config.d_model, config.mlp_expand),
    )


# Toeplitz matrices have both triangles.
FAMILY = Family(build, count_no_states, is_causal=lambda _config: False, cost="l log l")
