"""Mega (Ma et al. 2022): gated attention whose queries and keys come from an exponential moving average.

==================  ==================  ==================================================================
code                paper               meaning
==================  ==================  ==================================================================
``n``               h                   states of a channel's moving average, in each direction (`state`)
``s``, ``e``        z, v                widths of queries and keys, of values
``input_share``     alpha               sigmoid of ``delta``
``damping``         delta               sigmoid of ``alpha``
``beta, gamma``     beta, eta           from a channel to its states, and back
``omega``                               skip of the moving average
``averaged``        X'                  silu of the moving average
``update``          phi                 gate between a position's own input and the candidate
``reset``           gamma               gate of what attention returns
``candidate``       H-hat               what the gate lets in
==================  ==================  ==================================================================

The parameters have the names of the authors' code, where alpha and delta are exchanged::

    h_t = (1 - input_share damping) h_{t-1} + input_share beta x_t       y_t = sum_n gamma h_t / sqrt(n)
    averaged = silu(y + y of the reversed sequence + omega x)
    (update, z, reset, own) = mix_proj(averaged)                         v = silu(v_proj(x))
    candidate = silu(own + h_proj(silu(reset) A v))
    output = x + sigmoid(update) (candidate - x)
    network: output = x + down(silu(up(x)))

A is computed from silu(z), see `msbench.models.gated_attention`. Both directions see the present, so that it
counts twice. With `prenorm` all but the x of the gate and of the network's residual is a norm of x; otherwise
a norm follows the gate, and another one the network. As the gate is no residual, a block has these norms
itself. It drops channels where the authors drop values: of the average, the candidate, the network's output.

Left out: the cut of the moving average to 1,024 lags (4,096 on Path-X), by which the authors' code saves time
in Fourier transforms, where a scan needs none; and ScaleNorm, an RMSNorm with one scale for all channels.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config.attention import MegaConfig
from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.models.family import Family, name_recurrence_kernel
from msbench.models.gated_attention import LagBias, ScaledOffsets, attend, build_linear
from msbench.models.layers import (
    ChannelDropout,
    Padding,
    ShortcutLayer,
    build_norm,
    normalise,
    require_full_precision,
)
from msbench.ops.gate import apply_gate
from msbench.ops.lti_scan import lti_scan

RATE_STD = 0.2
"""Standard deviation of ``alpha`` and ``delta`` at the start."""


class MovingAverage(nn.Module):
    """The damped moving averages of all channels over both directions, in several states each, and a skip."""

    def __init__(self, d_model: int, state: int) -> None:
        super().__init__()
        size = 2, d_model, state
        self.delta = nn.Parameter(torch.empty(size).normal_(std=RATE_STD))
        self.alpha = nn.Parameter(torch.empty(size).normal_(std=RATE_STD))
        signs = 1 - 2 * (torch.arange(state) % 2)
        self.beta = nn.Parameter(torch.empty(size).normal_(std=0.02) + signs)
        self.gamma = nn.Parameter(torch.randn(size))
        self.omega = nn.Parameter(torch.randn(d_model))
        # Decays, and as in the other models what is fed into the states, do not decay to 0.
        self.optimizer_groups = dict.fromkeys(("delta", "alpha", "beta"), "plain")

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, d), zero after the end of each sequence, to (b, l, d)."""
        log_decay, weight = self.compute_modes()
        # In reverse: padding is zero and adds nothing.
        ahead, back = lti_scan(torch.stack([x, x.flip(1)], dim=2), log_decay, weight).unbind(2)
        return functional.silu(ahead + back.flip(1) + self.omega * x)

    def compute_modes(self) -> tuple[Tensor, Tensor]:
        """Return the logarithm of the decay per step, and the weight of each state, both (2, d, n)."""
        input_share = torch.sigmoid(require_full_precision(self.delta))
        share = input_share * torch.sigmoid(require_full_precision(self.alpha))
        # A state that keeps nothing at all would have an infinite logarithm.
        log_decay = torch.log1p(-share.clamp(max=1 - torch.finfo(share.dtype).eps))
        return log_decay, input_share * self.beta * self.gamma / math.sqrt(self.gamma.shape[-1])


class MegaBlock(ShortcutLayer):
    """Moving average, gated attention and feed-forward network, with their norms: (b, l, d) -> (b, l, d)."""

    def __init__(self, config: MegaConfig, longest: int) -> None:
        super().__init__()
        d, s, e = config.d_model, config.key_dim, round(config.expand * config.d_model)
        self.prenorm, self.activation, self.chunk = config.prenorm, config.attention, config.chunk
        self.sizes = [d, s, e, d]
        self.norm = build_norm(config)
        self.average = MovingAverage(d, config.state)
        self.v_proj = build_linear(d, e)
        self.mix_proj = build_linear(d, sum(self.sizes))
        self.h_proj = build_linear(e, d)
        self.queries_keys = ScaledOffsets(s, 2)
        self.bias = LagBias(min(config.chunk or longest, longest))
        self.mlp_norm = build_norm(config)
        self.up = build_linear(d, round(config.mlp_expand * d))
        self.down = build_linear(self.up.out_features, d)
        self.dropout = ChannelDropout(config.dropout)
        # The sizes of a dot product's terms; other activations divide by the number of keys.
        self.divisor = math.sqrt(s) if config.attention == "softmax" else None

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to (b, l, d)."""
        mask = find_mask(inputs, lengths)
        update, candidate = self._propose(inputs, lengths, mask)
        x = self._norm_after(self.norm, inputs + update * (candidate - inputs), mask)
        inner = self.up(self._norm_before(self.mlp_norm, x, mask))
        y = self.dropout(self.down(functional.silu(inner)))
        return self._norm_after(self.mlp_norm, x + y, mask)

    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """See `ShortcutLayer`: what the gate lets in, without what it keeps, and without the network."""
        update, candidate = self._propose(inputs, lengths, find_mask(inputs, lengths))
        return update * candidate

    def _propose(self, inputs: Tensor, lengths: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the update gate and the candidate, both (b, l, d)."""
        x = self._norm_before(self.norm, inputs, mask)
        v = functional.silu(self.v_proj(x))
        averaged = self.dropout(self.average(x))
        update, z, reset, own = torch.split(self.mix_proj(averaged), self.sizes, dim=-1)
        q, k = self.queries_keys(functional.silu(z))
        y = attend(q, k, v, self.bias, lengths, self.activation, chunk=self.chunk, divisor=self.divisor)
        candidate = functional.silu(own + self.h_proj(apply_gate(y, reset)))
        return torch.sigmoid(update), self.dropout(candidate)

    def _norm_before(self, norm: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
        return normalise(norm, x, mask, zero=True) if self.prenorm else x * mask

    def _norm_after(self, norm: nn.Module, x: Tensor, mask: Tensor) -> Tensor:
        return x if self.prenorm else normalise(norm, x, mask)


def find_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Return 1 at real positions of x (b, l, d) and 0 in padding, (b, l, 1)."""
    return Padding.from_lengths(lengths, x.shape[1], x.dtype).mask


def build(config: MegaConfig, info: TaskInfo) -> Classifier:
    """Build the classifier: one block per layer."""
    layers = [[MegaBlock(config, info.longest)] for _ in range(config.layers)]
    # Dropout is inside of the blocks: behind them it would be one of the residual stream.
    return Classifier(config.model_copy(update={"dropout": 0.0}), info, layers, residuals=False)


def count_states(config: MegaConfig) -> int:
    """See `Family`: those of the moving average, in both directions."""
    return 2 * config.state


FAMILY = Family(
    build,
    count_states,
    is_causal=lambda _config: False,
    name_kernel=name_recurrence_kernel,
    cost="l^2",
    loop="examples",
)
