"""Parts that layers share: padding, norms, dropout, pooling, reversal, shortcuts, steps, and precision."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import reduce
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.config import ClassifierConfig
from msbench.errors import ConfigError
from msbench.ops.batch_norm import (
    EPSILON,
    frozen_batch_norm,
    masked_batch_norm,
    spread_batch_norm,
    track_moments,
)
from msbench.ops.layer_norm import layer_norm


class Padding(NamedTuple):
    """The padding of a batch: `lengths` (b,) int64, and `mask` (b, l, 1), 1.0 at real positions, else 0.0."""

    lengths: Tensor
    mask: Tensor

    @classmethod
    def from_lengths(cls, lengths: Tensor, longest: int, dtype: torch.dtype = torch.float32) -> "Padding":
        """Return the right padding of sequences of these lengths up to `longest`."""
        mask = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
        return cls(lengths, mask.unsqueeze(2).to(dtype))

    @classmethod
    def none_of(cls, x: Tensor) -> "Padding":
        """Return a padding in which every position of x (b, l, d) is real."""
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        return cls.from_lengths(lengths, x.shape[1], x.dtype)


class BatchGroup(Protocol):
    """The processes that share a batch; `counts` is False if this one has only a dummy batch."""

    counts: bool

    def total(self, x: Tensor) -> Tensor:
        """Return the differentiable sum of all processes' vectors (n,)."""


class MaskedBatchNorm(nn.Module):
    """A batch norm whose statistics, including the running ones, are those of real positions only.

    Padding would pull mean and variance towards its own constant: with half of a batch padded, by half.
    If several processes share a batch (`across`), the statistics are those of the whole batch.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.tracks = True
        self.across: BatchGroup | None = None
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, mask: Tensor, *, zero: bool = False) -> Tensor:
        """Map x (b, l, d) and mask (b, l, 1) to (b, l, d); with `zero` padding becomes 0."""
        affine, running = (self.weight, self.bias), (self.running_mean, self.running_var)
        if not self.training:
            return frozen_batch_norm(x, mask, *affine, *running, zero=zero)
        if self.across is None:
            y, moments = masked_batch_norm(x, mask, *affine, zero=zero)
        else:
            counted = mask if self.across.counts else torch.zeros_like(mask)
            y, moments = spread_batch_norm(x, counted, *affine, self.across.total, zero=zero)
        if self.tracks:
            track_moments(*running, moments, self.momentum)
        return y


class MaskedLayerNorm(nn.LayerNorm):
    """A layer norm whose padding can become 0."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPSILON)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x (b, l, d) to (b, l, d), times the mask (b, l, 1) if it is given."""
        return layer_norm(x, mask, self.weight, self.bias)


class MaskedRmsNorm(nn.RMSNorm):
    """An RMS norm whose padding can become 0."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=EPSILON)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map x (b, l, d) to (b, l, d), times the mask (b, l, 1) if it is given."""
        return layer_norm(x, mask, self.weight, None)


def build_norm(config: ClassifierConfig) -> nn.Module:
    """Return a norm over d, to be applied by `normalise`."""
    width = config.d_model
    if config.norm == "batch":
        return MaskedBatchNorm(width, config.batch_norm_momentum)
    return MaskedLayerNorm(width) if config.norm == "layer" else MaskedRmsNorm(width)


def normalise(norm: nn.Module, x: Tensor, mask: Tensor, *, zero: bool = False) -> Tensor:
    """Apply a norm of `build_norm` to x (b, l, d); with `zero`, set x to 0 where mask (b, l, 1) is 0."""
    if isinstance(norm, MaskedBatchNorm):
        batch: Tensor = norm(x, mask, zero=zero)
        return batch
    y: Tensor = norm(x, mask if zero else None)
    return y


def build_gelu(config: ClassifierConfig) -> nn.GELU:
    """Return GELU, or its approximation by tanh, which is flax's default, if the config says so."""
    return nn.GELU("tanh" if getattr(config, "gelu", "exact") == "tanh" else "none")


class ChannelDropout(nn.Module):
    """Dropout of whole channels of a sequence: one draw per example and channel, for all positions."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, d) to (b, l, d)."""
        return reduce(torch.mul, self.draw(x), x)

    def draw(self, x: Tensor) -> list[Tensor]:
        """Return the factors (b, 1, d) of x (b, l, d), if there are any."""
        if not self.training or self.p == 0:
            return []
        return [functional.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.p)]


class DropPath(nn.Module):
    """Dropout of whole examples: one draw for all positions and channels (stochastic depth)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, d) to (b, l, d)."""
        return reduce(torch.mul, self.draw(x), x)

    def draw(self, x: Tensor) -> list[Tensor]:
        """Return the factors (b, 1, 1) of x (b, l, d), if there are any."""
        if not self.training or self.p == 0:
            return []
        return [functional.dropout(x.new_ones(x.shape[0], 1, 1), self.p)]


@contextmanager
def _untracked(module: nn.Module) -> Iterator[None]:
    """Suspend updates of running statistics in `module`, so that a recomputed pass counts once."""
    norms = [part for part in module.modules() if isinstance(part, MaskedBatchNorm)]
    for norm in norms:
        norm.tracks = False
    try:
        yield
    finally:
        for norm in norms:
            norm.tracks = True


def build_checkpoint_options(layer: nn.Module) -> dict[str, Any]:
    """Return options of torch's checkpoint for a second pass equal to the first, without side effects."""
    parts = list(layer.modules())
    # Most layers draw no random numbers, so that there is no generator state to restore.
    draws = any(isinstance(part, ChannelDropout) and part.p > 0 for part in parts)
    options: dict[str, Any] = {"preserve_rng_state": draws}
    if any(isinstance(part, MaskedBatchNorm) for part in parts):
        options["context_fn"] = lambda: (nullcontext(), _untracked(layer))
    return options


def pool(x: Tensor, padding: Padding, kind: Literal["mean", "last", "mean-with-padding"]) -> Tensor:
    """Pool x (b, l, d) to (b, d): the mean of real positions, the last real one, or the mean of all."""
    if kind == "mean-with-padding":
        return x.mean(1)
    if kind == "last":
        last = (padding.lengths - 1).clamp(min=0)
        return x[torch.arange(len(x), device=x.device), last]
    weights = padding.mask / padding.lengths.clamp(min=1).view(-1, 1, 1)
    # A matrix product, without temporaries of the size of x; under autocast it would be bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        dtype = torch.promote_types(x.dtype, weights.dtype)
        return torch.bmm(weights.mT.to(dtype), x.to(dtype)).squeeze(1)


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the real part of every sequence of x (b, l, d); padding stays after it."""
    position = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    index = torch.where(mirrored >= 0, mirrored, position)
    return x.gather(1, index.unsqueeze(2).expand(-1, -1, x.shape[2]))


def shift_earlier(y: Tensor) -> Tensor:
    """Shift y (b, l, d) one step earlier: y_{t+1} at t, and 0 at the end."""
    return torch.cat([y[:, 1:], torch.zeros_like(y[:, :1])], dim=1)


class Bidirectional(nn.Module):
    """The mean of a layer over the sequence and of another, with its own parameters, over its reverse.

    The sum would double the residual's growth in every layer.
    """

    def __init__(self, ahead: nn.Module, back: nn.Module) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Map x (b, l, d) and lengths (b,) to (b, l, d)."""
        there: Tensor = self.ahead(x, lengths)
        returned: Tensor = self.back(reverse(x, lengths), lengths)
        return (there + reverse(returned, lengths)) / 2


class ShortcutLayer(nn.Module, ABC):
    """A layer whose output is that of `mix` and a shortcut around it."""

    @abstractmethod
    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to (b, l, d), without the shortcut."""

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to (b, l, d)."""
        return inputs + self.mix(inputs, lengths)


@runtime_checkable
class Recurrent(Protocol):
    """A causal layer that can run step by step; its state is a tensor or a nest of tensors and None.

    In evaluation mode successive steps give the same outputs as the layer's forward for the whole sequence.
    """

    def start(self, x: Tensor) -> Any:
        """Return the state before the first position, for inputs like x (b, d): its device, dtype and b."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run one position x (b, d); return its output (b, d) and the new state; `state` is unchanged."""


def start_layer(layer: nn.Module, x: Tensor) -> Any:
    """Call `Recurrent.start` of a layer for inputs like x (b, d); raise ConfigError if it has none."""
    if not isinstance(layer, Recurrent):
        raise ConfigError(
            f"{type(layer).__name__} has no recurrent inference; the model reads whole sequences only"
        )
    return layer.start(x)


def step_layer(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Run the positions of x (b, l, d) one by one; return the outputs (b, l, d) and the new state."""
    outputs = []
    for position in x.unbind(1):
        y, state = layer.step(position, state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state


TRUNCATED = 0.87962566103423978
"""Standard deviation of a standard normal distribution truncated at 2."""


def draw_truncated_normal(variance: float, *size: int) -> Tensor:
    """Draw normal numbers truncated at two standard deviations, of this variance after truncation."""
    unit = nn.init.trunc_normal_(torch.empty(size), a=-2, b=2)
    return unit * (math.sqrt(variance) / TRUNCATED)


@torch.no_grad()
def restart_as_lecun(module: nn.Module) -> None:
    """Draw all linear maps anew as flax does: truncated normal of variance 1 / inputs, biases 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.weight.copy_(draw_truncated_normal(1 / part.in_features, *part.weight.shape))
            if part.bias is not None:
                part.bias.zero_()


def require_full_precision(parameter: Tensor) -> Tensor:
    """Return the parameter; raise TypeError if the model was cast to half precision."""
    if parameter.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"decays and step sizes are {parameter.dtype}; keep the model in float32 and use autocast"
            " (precision: bf16) instead of casting it"
        )
    return parameter


def compute_decays(A_log: Tensor) -> Tensor:
    """Return A = -exp(A_log), in float32 or better."""
    return -torch.exp(require_full_precision(A_log))
