"""What the selective layers of Mamba and MS-SSM share: step sizes, decays, convolution, projections.

==============  ==================  =========================================================
code            paper               meaning
==============  ==================  =========================================================
``dt``          Delta_t             step sizes, positive, one per stream and channel
``A_log``       log(-diag A)        decay rates; A = -exp(A_log)
``dt.weight``   Linear_Delta        from rank r to the channels, one matrix per stream
``dt.bias``                         softplus of it is the step size at the start
==============  ==================  =========================================================

All of them are float32 (or float64) whatever the autocast: in bfloat16 a decay is off by up to 0.8 %.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from msbench.config.selective import SsmConfig
from msbench.ops import causal_conv, makes_inputs, step_sizes
from msbench.ops.scan_arguments import working_dtype

SMALLEST_STEP = 1e-4
"""No step size starts below this (the floor that Mamba's code has)."""


def inner_width(config: SsmConfig) -> int:
    """Width i of the scan: ``expand`` times d_model."""
    return round(config.expand * config.d_model)


def dt_rank(config: SsmConfig) -> int:
    """Rank r of the step sizes: ceil(d_model / 16) unless set."""
    return config.dt_rank or math.ceil(config.d_model / 16)


class StepSizes(nn.Module):
    """The parameters of Delta = softplus(W low + b), one W and b per stream; the scan makes Delta itself.

    W is uniform within r^-1/2. b makes the step sizes log-uniform in [dt_min, dt_max] at the start; no later
    initialisation may touch it.
    """

    optimizer_groups: ClassVar = {"weight": "steps", "bias": "ssm"}

    def __init__(self, config: SsmConfig, streams: int, width: int, *, shared: bool = False) -> None:
        """For so many streams, of which each has its own W and b unless they are `shared`."""
        super().__init__()
        rank, own = dt_rank(config), 1 if shared else streams
        self.streams = streams
        self.weight = nn.Parameter(torch.empty(own, width, rank).uniform_(-(rank**-0.5), rank**-0.5))
        self.bias = nn.Parameter(inverse_softplus(initial_steps(config, own, width)))

    def affine(self) -> tuple[Tensor, Tensor]:
        """W (m, i, r) and b (m, i), or TypeError where they were cast to half precision."""
        weight, bias = full_precision(self.weight), full_precision(self.bias)
        return weight.expand(self.streams, -1, -1), bias.expand(self.streams, -1)

    def step(self, low: Tensor) -> Tensor:
        """Delta of one position: low (b, m, r) -> (b, m, i), positive, in full precision."""
        weight, bias = self.affine()
        with torch.autocast(low.device.type, enabled=False):
            return step_sizes(low.unsqueeze(1).to(weight.dtype), weight, bias).squeeze(1)


def initial_steps(config: SsmConfig, streams: int, width: int) -> Tensor:
    """Step sizes (m, i) at the start: log-uniform in [dt_min, dt_max], with a floor."""
    exponent = torch.rand(streams, width) * math.log(config.dt_max / config.dt_min)
    return (config.dt_min * exponent.exp()).clamp(min=SMALLEST_STEP)


def inverse_softplus(y: Tensor) -> Tensor:
    """x with softplus(x) = y, for y > 0; accurate for small y."""
    return y + torch.log(-torch.expm1(-y))


def full_precision(parameter: Tensor) -> Tensor:
    """The parameter, or TypeError where the model was cast to half precision."""
    if parameter.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"decays and step sizes are {parameter.dtype}; keep the model in float32 and use autocast"
            " (precision: bf16) instead of casting it"
        )
    return parameter


def decays(A_log: Tensor) -> Tensor:
    """A = -exp(A_log), in float32 or better."""
    return -torch.exp(full_precision(A_log))


def initial_decays(
    sizes: Sequence[int],
    width: int,
    offsets: Sequence[int] = (0,),
    spacing: Literal["even", "random"] = "even",
) -> Tensor:
    """log(-A) at the start, (width, sum of sizes), stream after stream.

    The rates of a stream are its offset and 1..n. ``random`` draws each rate of a channel uniformly from
    [offset + 1, offset + n + 1) instead.
    """
    rates = []
    for size, offset in zip(sizes, offsets, strict=True):
        even = torch.arange(1, size + 1, dtype=torch.float32).expand(width, size)
        rates.append(offset + (even if spacing == "even" else 1 + size * torch.rand(width, size)))
    return torch.cat(rates, dim=1).log()


class ShortConv(nn.Module):
    """Mamba's causal convolution over k steps, a filter per channel; initialised as torch's Conv1d."""

    def __init__(self, width: int, kernel: int, *, bias: bool) -> None:
        super().__init__()
        bound = kernel**-0.5
        self.weight = nn.Parameter(torch.empty(width, kernel).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, i) -> (b, l, i)."""
        return causal_conv(x, self.weight, self.bias)

    def start(self, x: Tensor) -> Tensor:
        """See `msbench.models.stepping.Recurrent`: the last k - 1 inputs (b, k - 1, i), oldest first."""
        return x.new_zeros(x.shape[0], self.weight.shape[1] - 1, x.shape[1])

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.models.stepping.Recurrent`."""
        window = torch.cat((state.to(x.dtype), x.unsqueeze(1)), dim=1)
        y = (window * self.weight.flip(1).t()).sum(1)
        return y if self.bias is None else y + self.bias, window[:, 1:]


def scan_start(u: Tensor, states: int) -> Tensor:
    """The states before the first position of a scan of u (b, m, i): zeros (b, m, i, n)."""
    return u.new_zeros(*u.shape, states, dtype=working_dtype([u]))


def scan_step(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    state: Tensor,
    *,
    discretisation: Literal["euler", "raw"] = "euler",
) -> tuple[Tensor, Tensor]:
    """One position of `msbench.ops.selective_scan`, in float32 or better: the output, and the states behind.

    u and dt (b, m, i), A (m, i, n), B and C (b, m, n), skip (m, i), state (b, m, i, n).
    """
    with torch.autocast(u.device.type, enabled=False):
        v, B, C = u.to(state.dtype), B.to(state.dtype), C.to(state.dtype)
        drive = dt * v if discretisation == "euler" else v
        h = torch.exp(dt.unsqueeze(-1) * A) * state + B.unsqueeze(-2) * drive.unsqueeze(-1)
        y = (h * C.unsqueeze(-2)).sum(-1)
        return (y if skip is None else y + skip * v).to(u.dtype), h


def output_projection(width: int, d_model: int, layers: int) -> nn.Linear:
    """The projection back into the residual, scaled down by the square root of the depth."""
    linear = nn.Linear(width, d_model, bias=False)
    with torch.no_grad():
        linear.weight /= math.sqrt(layers)
    return linear


def scan_activations(config: SsmConfig, device: str, streams: int, states: int, outside: float = 0) -> float:
    """Numbers that one position of one layer keeps, see `msbench.models.family.Family`.

    Per channel one state in 16 and ten arrays of the inner width; where the kernel of that device type does
    not make step sizes and streams itself, each stream adds its input, its step size before and after the
    softplus, and a copy in the order that the scan reads; and arrays that stand `outside` of the scan.
    """
    arrays = 10 + outside + (0 if makes_inputs(device) else 4 * streams)
    return inner_width(config) * (arrays * (1 + config.bidirectional) + states / 16)
