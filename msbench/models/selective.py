"""Parts shared by the selective layers of Mamba and MS-SSM: step sizes, decays, convolution, projections.

==============  ==================  =========================================================
code            paper               meaning
==============  ==================  =========================================================
``dt``          Delta_t             step sizes, positive, one per stream and channel
``A_log``       log(-diag A)        decay rates; A = -exp(A_log)
``dt.weight``   Linear_Delta        from rank r to the channels, one matrix per stream
``dt.bias``                         its softplus is the initial step size
==============  ==================  =========================================================

All of them are float32 (or float64) regardless of autocast: in bfloat16 a decay is off by up to 0.8 %.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.selective import SsmConfig
from msbench.models.layers import require_full_precision
from msbench.ops.filters import causal_conv, convolve_silu
from msbench.ops.scan.reference import step_sizes, working_dtype

SMALLEST_STEP = 1e-4
"""Lower bound of initial step sizes (the floor in Mamba's code)."""


def compute_inner_width(config: SsmConfig) -> int:
    """Return the width i of the scan: ``expand`` times d_model."""
    return round(config.expand * config.d_model)


def compute_dt_rank(config: SsmConfig) -> int:
    """Return the rank r of the step sizes: ceil(d_model / 16) unless set."""
    return config.dt_rank or math.ceil(config.d_model / 16)


class StepSizes(nn.Module):
    """The parameters of Delta = softplus(W low + b), one W and b per stream; the scan computes Delta itself.

    W starts uniform within r^-1/2. b makes the initial step sizes log-uniform in [dt_min, dt_max]; no later
    initialisation may change it.
    """

    optimizer_groups: ClassVar = {"weight": "dt-maps", "bias": "dt"}

    def __init__(self, config: SsmConfig, streams: int, width: int, *, shared: bool = False) -> None:
        """Build the parameters of `streams` streams, each with its own W and b unless `shared`."""
        super().__init__()
        rank, own = compute_dt_rank(config), 1 if shared else streams
        self.streams = streams
        self.weight = nn.Parameter(torch.empty(own, width, rank).uniform_(-(rank**-0.5), rank**-0.5))
        self.bias = nn.Parameter(invert_softplus(draw_step_sizes(config, own, width)))

    def get_affine(self) -> tuple[Tensor, Tensor]:
        """Return W (m, i, r) and b (m, i); raise TypeError if they were cast to half precision."""
        weight, bias = require_full_precision(self.weight), require_full_precision(self.bias)
        return weight.expand(self.streams, -1, -1), bias.expand(self.streams, -1)

    def step(self, low: Tensor) -> Tensor:
        """Return Delta of one position: low (b, m, r) -> (b, m, i), positive, in full precision."""
        weight, bias = self.get_affine()
        with torch.autocast(low.device.type, enabled=False):
            return step_sizes(low.unsqueeze(1).to(weight.dtype), weight, bias).squeeze(1)


def draw_step_sizes(config: SsmConfig, streams: int, width: int) -> Tensor:
    """Draw initial step sizes (m, i): log-uniform in [dt_min, dt_max], with a floor."""
    exponent = torch.rand(streams, width) * math.log(config.dt_max / config.dt_min)
    return (config.dt_min * exponent.exp()).clamp(min=SMALLEST_STEP)


def invert_softplus(y: Tensor) -> Tensor:
    """Return x with softplus(x) = y, for y > 0; accurate for small y."""
    return y + torch.log(-torch.expm1(-y))


def initialise_decays(
    sizes: Sequence[int],
    width: int,
    offsets: Sequence[int] = (0,),
    spacing: Literal["even", "random"] = "even",
) -> Tensor:
    """Return the initial log(-A), (width, sum of sizes), stream after stream.

    The rates of a stream are its offset plus 1..n. ``random`` draws each rate of a channel uniformly from
    [offset + 1, offset + n + 1) instead.
    """
    rates = []
    for size, offset in zip(sizes, offsets, strict=True):
        even = torch.arange(1, size + 1, dtype=torch.float32).expand(width, size)
        rates.append(offset + (even if spacing == "even" else 1 + size * torch.rand(width, size)))
    return torch.cat(rates, dim=1).log()


class ShortConv(nn.Module):
    """Mamba's causal convolution over k steps, one filter per channel; initialised like torch's Conv1d.

    SiLU follows if it is `activated`.
    """

    def __init__(self, width: int, kernel: int, *, bias: bool, activated: bool = False) -> None:
        super().__init__()
        self.activated = activated
        bound = kernel**-0.5
        self.weight = nn.Parameter(torch.empty(width, kernel).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, i) to (b, l, i)."""
        convolve = convolve_silu if self.activated else causal_conv
        return convolve(x, self.weight, self.bias)

    def start(self, x: Tensor) -> Tensor:
        """See `msbench.models.layers.Recurrent`: the last k - 1 inputs (b, k - 1, i), oldest first."""
        return x.new_zeros(x.shape[0], self.weight.shape[1] - 1, x.shape[1])

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.models.layers.Recurrent`."""
        window = torch.cat((state.to(x.dtype), x.unsqueeze(1)), dim=1)
        y = (window * self.weight.flip(1).t()).sum(1)
        y = y if self.bias is None else y + self.bias
        return functional.silu(y) if self.activated else y, window[:, 1:]


def start_scan(u: Tensor, states: int) -> Tensor:
    """Return the states before the first position of a scan of u (b, m, i): zeros (b, m, i, n)."""
    return u.new_zeros(*u.shape, states, dtype=working_dtype([u]))


def step_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    *,
    state: Tensor,
    discretisation: Literal["euler", "raw"] = "euler",
) -> tuple[Tensor, Tensor]:
    """Run one position of `msbench.ops.selective_scan`, in float32 or better; return output and new states.

    u and dt (b, m, i), A (m, i, n), B and C (b, m, n), skip (m, i), state (b, m, i, n).
    """
    with torch.autocast(u.device.type, enabled=False):
        v, B, C = u.to(state.dtype), B.to(state.dtype), C.to(state.dtype)
        drive = dt * v if discretisation == "euler" else v
        h = torch.exp(dt.unsqueeze(-1) * A) * state + B.unsqueeze(-2) * drive.unsqueeze(-1)
        y = (h * C.unsqueeze(-2)).sum(-1)
        return (y if skip is None else y + skip * v).to(u.dtype), h


def build_output_projection(width: int, d_model: int, layers: int) -> nn.Linear:
    """Return the projection back into the residual, scaled down by the square root of the depth."""
    linear = nn.Linear(width, d_model, bias=False)
    with torch.no_grad():
        linear.weight /= math.sqrt(layers)
    return linear
