"""Griffin and Hawk (De et al. 2024): gated linear recurrences, with and without local attention.

====================  ==================  ===============================================================
code                  paper               meaning
====================  ==================  ===============================================================
``i``                 D_RNN               width of the recurrence
``h``, ``w``                              heads, and the width of a head
``Lambda``            -Lambda             decay parameter of each channel, with the sign of the source's code
``input_gate``        i_t                 sigmoid of a linear map with one block per head
``recurrence_gate``   r_t                 the same, with parameters of its own
``log_a``             log a_t             -8 r_t softplus(Lambda)
``scale``             sqrt(1 - a_t^2)     keeps the size of the state; 1 at the first step
``window``                                positions before its own that a query sees
====================  ==================  ===============================================================

::

    recurrent:  x = conv(in_proj(input))     h_t = a_t h_{t-1} + scale_t i_t x_t     h_0 = i_0 x_0
                output = out_proj(h gelu(gate_proj(input)))
    attention:  one head of keys and values for all heads of queries, half of each head rotated (RoPE)
    gated MLP:  output = down(gelu(g) u),  (g, u) = up(input)

A layer is two blocks, each with norm and residual: recurrence or attention, then the MLP. Hawk has only
recurrences, Griffin has attention in every third layer. Details that the paper leaves open follow the
authors' ``recurrentgemma``: initialisation, biases, and the rule of the first step.

Norm and encoder are those of the classifier. Its RMSNorm multiplies by a weight that starts at 1, where the
source has 1 + scale with scale starting at 0: the same function, but weight decay would pull the source's
factor to 1 and ours to 0 (neither decays here). Its epsilon is 1e-5, not 1e-6. Embeddings start from
N(0, 0.02^2), where the source has N(0, 1/d) and multiplies them by the square root of d.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.baselines import GriffinConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.blocks import PositionwiseBlock
from msbench.models.classifier import Classifier, Layer, build_directions
from msbench.models.family import Family, name_recurrence_kernel
from msbench.models.layers import require_full_precision
from msbench.models.selective import ShortConv
from msbench.ops.gate import apply_gate
from msbench.ops.linear_scan import linear_scan
from msbench.ops.local_attention import local_attention

SHARPNESS = 8.0
"""The paper's c."""
SLOWEST, FASTEST = 0.999, 0.9
"""Range of the initial decays exp(-softplus(Lambda)), uniform in area on that ring."""
CONV_VARIANCE = 0.01
LONGEST_WAVE = 10_000.0
"""Longest wavelength of the rotations, in positions, divided by 2 pi."""


def build_linear(inputs: int, outputs: int, *, variance: float = 1.0, bias: bool = True) -> nn.Linear:
    """Return a linear map with weights from N(0, variance / inputs) and a bias of zeros."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.normal_(layer.weight, std=math.sqrt(variance / inputs))
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def compute_output_variance(config: GriffinConfig) -> float:
    """Return the weight variance of a residual branch's last map: 2 / layers, with two branches per layer."""
    return 2 / config.layers


def compute_input_scale(log_a: Tensor) -> Tensor:
    """Return sqrt(1 - a^2), exact for a near 1, with a finite gradient everywhere.

    Below the smallest normal number the gradient is 0, which is also the limit of the gradient with respect
    to the inputs of `log_a`. Bounding it at 1000, as the source does, changes gradients where 1 - a^2 is
    below 2.5e-7.
    """
    smallest = torch.finfo(log_a.dtype).tiny
    return (-torch.expm1(2 * log_a)).clamp(min=smallest).sqrt()


class BlockDiagonal(nn.Module):
    """A block-diagonal linear map, with one block per head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        block = width // heads
        self.weight = nn.Parameter(torch.empty(heads, block, block).normal_(std=block**-0.5))
        self.bias = nn.Parameter(torch.zeros(heads, block))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., i) to (..., i)."""
        heads = x.reshape(*x.shape[:-1], *self.bias.shape)
        return (torch.einsum("...hi,hij->...hj", heads, self.weight) + self.bias).flatten(-2)


class RgLru(nn.Module):
    """The real-gated linear recurrent unit, in float32, or float64 for such input, regardless of autocast."""

    optimizer_groups: ClassVar = {"Lambda": "ssm"}

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        areas = torch.empty(width).uniform_(FASTEST**2, SLOWEST**2)
        self.Lambda = nn.Parameter(torch.expm1(-0.5 * areas.log()).log())  # softplus inverted
        self.input_gate = BlockDiagonal(width, heads)
        self.recurrence_gate = BlockDiagonal(width, heads)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, i) to h (b, l, i)."""
        with torch.autocast(x.device.type, enabled=False):
            log_a, gated = self._compute_gates(x)
            scale = compute_input_scale(log_a)
            scale = torch.cat([torch.ones_like(scale[:, :1]), scale[:, 1:]], dim=1)
            return linear_scan(log_a.exp(), scale * gated).to(x.dtype)

    def step(self, x: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run one position x (b, i) from state h (b, i), None at the start; return output and new state."""
        with torch.autocast(x.device.type, enabled=False):
            log_a, gated = self._compute_gates(x)
            h = gated if h is None else torch.addcmul(compute_input_scale(log_a) * gated, log_a.exp(), h)
            return h.to(x.dtype), h

    def _compute_gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return log a_t and i_t x_t."""
        rates = functional.softplus(require_full_precision(self.Lambda))
        x = x.to(rates.dtype)
        log_a = -SHARPNESS * rates * torch.sigmoid(self.recurrence_gate(x))
        return log_a, apply_gate(x, self.input_gate(x), "sigmoid")


class RecurrentBlock(nn.Module):
    """The recurrent block: a short convolution and the RG-LRU in one branch, JAX's GELU in the other."""

    def __init__(self, config: GriffinConfig) -> None:
        super().__init__()
        width = config.lru_width
        self.in_proj = build_linear(config.d_model, width)
        self.gate_proj = build_linear(config.d_model, width)
        self.conv = ShortConv(width, config.kernel, bias=True)
        assert self.conv.bias is not None
        nn.init.normal_(self.conv.weight, std=math.sqrt(CONV_VARIANCE / config.kernel))
        nn.init.zeros_(self.conv.bias)
        self.rg_lru = RgLru(width, config.head_count)
        self.out_proj = build_linear(width, config.d_model, variance=compute_output_variance(config))

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        h = self.rg_lru(self.conv(self.in_proj(inputs)))
        out: Tensor = self.out_proj(apply_gate(h, self.gate_proj(inputs), "gelu"))
        return out

    def start(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the filters' past inputs and None for the state: the first step has its own rule."""
        return self.conv.start(x.new_empty(len(x), self.rg_lru.Lambda.numel())), None

    def step(self, x: Tensor, state: tuple[Tensor, Tensor | None]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """See `msbench.models.layers.Recurrent`."""
        u, before = self.conv.step(self.in_proj(x), state[0])
        y, h = self.rg_lru.step(u, state[1])
        return self.out_proj(apply_gate(y, self.gate_proj(x), "gelu")), (before, h)


class LocalAttention(nn.Module):
    """Causal attention to the last `window` positions, with one head of keys and values for all queries."""

    def __init__(self, config: GriffinConfig) -> None:
        super().__init__()
        self.heads, self.window = config.head_count, config.window
        self.width = config.d_model // self.heads
        self.q_proj = build_linear(config.d_model, config.d_model, bias=False)
        self.kv_proj = build_linear(config.d_model, 2 * self.width, bias=False)
        self.out_proj = build_linear(config.d_model, config.d_model, variance=compute_output_variance(config))

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:  # noqa: ARG002 (causal: none needed)
        """Map (b, l, d) to (b, l, d)."""
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        q, k, v = self._project_heads(inputs, positions)
        out: Tensor = self.out_proj(local_attention(q, k, v, self.window).transpose(1, 2).flatten(2))
        return out

    def start(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return empty keys and values (b, 1, 0, w), and the position of each sequence (b,)."""
        empty = x.new_empty(len(x), 1, 0, self.width)
        return empty, empty, torch.zeros(len(x), dtype=torch.int64, device=x.device)

    def step(self, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """See `msbench.models.layers.Recurrent`."""
        keys, values, position = state
        q, k, v = self._project_heads(x.unsqueeze(1), position.view(-1, 1, 1))
        keys, values = torch.cat([keys.to(k.dtype), k], 2), torch.cat([values.to(v.dtype), v], 2)
        seen, read = (each.expand(-1, self.heads, -1, -1) for each in (keys, values))
        y = functional.scaled_dot_product_attention(q, seen, read)
        window = keys[:, :, -self.window :], values[:, :, -self.window :]
        return self.out_proj(y.flatten(1)), (*window, position + 1)

    def _project_heads(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (b, h, l, w), keys and values (b, 1, l, w)."""
        q = self.q_proj(x).unflatten(2, (self.heads, self.width)).transpose(1, 2)
        k, v = self.kv_proj(x).unsqueeze(1).chunk(2, dim=-1)
        return rotate(q, positions), rotate(k, positions), v


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate the first half of each head (RoPE): x (b, h, l, w), positions that broadcast to (b, h, l).

    Angles are float32 or better: bfloat16 cannot distinguish positions beyond 256.
    """
    pairs = x.shape[-1] // 4
    dtype = torch.promote_types(x.dtype, torch.float32)
    exponents = torch.arange(pairs, device=x.device, dtype=dtype) / pairs
    angles = positions.unsqueeze(-1) * LONGEST_WAVE**-exponents
    cos, sin = angles.cos(), angles.sin()
    first, second, rest = torch.split(x, [pairs, pairs, x.shape[-1] - 2 * pairs], dim=-1)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return torch.cat([*(part.to(x.dtype) for part in turned), rest], dim=-1)


class GatedMlp(PositionwiseBlock):
    """The gated MLP, down(gelu(g) u)."""

    def __init__(self, config: GriffinConfig) -> None:
        super().__init__()
        inner = round(config.mlp_expand * config.d_model)
        self.up = build_linear(config.d_model, 2 * inner)
        self.down = build_linear(inner, config.d_model, variance=compute_output_variance(config))

    def transform(self, x: Tensor) -> Tensor:
        """See `PositionwiseBlock`."""
        gate, value = self.up(x).chunk(2, dim=-1)
        out: Tensor = self.down(apply_gate(value, gate, "gelu"))
        return out


def list_temporal_blocks(config: GriffinConfig) -> list[str]:
    """Return the temporal block of each layer; a pattern longer than the model is cut to its end."""
    pattern = config.pattern[-config.layers :]
    return [pattern[index % len(pattern)] for index in range(config.layers)]


def build(config: GriffinConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: a temporal block and an MLP per layer."""
    temporal = {"recurrent": RecurrentBlock, "attention": LocalAttention}

    def layer(kind: str) -> list[Layer]:
        block = temporal[kind]
        return [build_directions(lambda: block(config), bidirectional=config.bidirectional), GatedMlp(config)]

    return Classifier(config, info, [layer(kind) for kind in list_temporal_blocks(config)])


def count_states(config: GriffinConfig) -> int:
    """See `Family`: states of recurrent layers only; the attention window does not count."""
    return (1 + config.bidirectional) if "recurrent" in list_temporal_blocks(config) else 0


FAMILY = Family(build, count_states, name_kernel=name_recurrence_kernel)
