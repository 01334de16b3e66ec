"""What surrounds the blocks: padding, norms, dropout, pooling, reversal."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from msbench.ops.masked_norm import EPSILON, frozen_batch_norm, masked_batch_norm, spread_batch_norm


class Padding(NamedTuple):
    """Where a batch is real: `lengths` (b,) int64, and `mask` (b, l, 1), 1.0 there and 0.0 behind."""

    lengths: Tensor
    mask: Tensor

    @classmethod
    def of(cls, lengths: Tensor, longest: int, dtype: torch.dtype = torch.float32) -> "Padding":
        """The padding of sequences of these lengths, on the right, up to `longest`."""
        mask = torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)
        return cls(lengths, mask.unsqueeze(2).to(dtype))

    @classmethod
    def nowhere(cls, x: Tensor) -> "Padding":
        """Every position of x (b, l, d) counts as real."""
        lengths = torch.full((x.shape[0],), x.shape[1], device=x.device)
        return cls.of(lengths, x.shape[1], x.dtype)


class Across(Protocol):
    """Processes that have a batch between them; `counts` is off where this one has only a stand-in."""

    counts: bool

    def total(self, x: Tensor) -> Tensor:
        """The sum of all processes' vectors (n,), differentiable."""


class MaskedBatchNorm(nn.Module):
    """Batch norm whose statistics, running ones too, are those of real positions only.

    Padding would pull mean and variance towards its own constant: with half of a batch padded, by half.
    Where several processes share a batch, `across`, the statistics are those of all of it.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.tracks = True
        self.across: Across | None = None
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, mask: Tensor, *, zero: bool = False) -> Tensor:
        """x (b, l, d) and mask (b, l, 1) -> (b, l, d); with `zero` padding becomes 0."""
        x, mask = x.to(self.weight.dtype), mask.to(self.weight.dtype)
        if not self.training:
            moments = self.running_mean, self.running_var
            return frozen_batch_norm(x, mask, self.weight, self.bias, *moments, zero=zero)
        if self.across is not None:
            return self._spread(x, mask, self.across, zero)
        y, mean, var = masked_batch_norm(x, mask, self.weight, self.bias, zero=zero)
        if self.tracks:
            self._track(mean, var, mask.sum().clamp(min=1))
        return y

    def _spread(self, x: Tensor, mask: Tensor, across: Across, zero: bool) -> Tensor:
        mask = mask if across.counts else torch.zeros_like(mask)
        y, *moments = spread_batch_norm(x, mask, self.weight, self.bias, across.total, zero=zero)
        if self.tracks:
            self._track(*moments)
        return y

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor, count: Tensor) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(var * count / (count - 1).clamp(min=1), self.momentum)


def build_norm(kind: Literal["layer", "rms", "batch"], width: int) -> nn.Module:
    """A norm over d; `normalise` applies it."""
    if kind == "batch":
        return MaskedBatchNorm(width)
    return nn.LayerNorm(width, eps=EPSILON) if kind == "layer" else nn.RMSNorm(width, eps=EPSILON)


def normalise(norm: nn.Module, x: Tensor, mask: Tensor, *, zero: bool = False) -> Tensor:
    """Apply a norm of `build_norm` to x (b, l, d); with `zero`, x becomes 0 where mask (b, l, 1) is."""
    if isinstance(norm, MaskedBatchNorm):
        batch: Tensor = norm(x, mask, zero=zero)
        return batch
    y: Tensor = norm(x)
    return y * mask if zero else y


class ChannelDropout(nn.Module):
    """Drop whole channels of a sequence: one draw per example and channel, the same at every position."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, d) -> (b, l, d)."""
        if not self.training or self.p == 0:
            return x
        return x * functional.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), self.p)


@contextmanager
def _untracked(module: nn.Module) -> Iterator[None]:
    """Batch norms in here leave their running statistics alone: a pass that is run again counts once."""
    norms = [part for part in module.modules() if isinstance(part, MaskedBatchNorm)]
    for norm in norms:
        norm.tracks = False
    try:
        yield
    finally:
        for norm in norms:
            norm.tracks = True


def once(layer: nn.Module) -> dict[str, Any]:
    """Options of torch's checkpoint so that the second pass is as the first, and leaves no other trace."""
    parts = list(layer.modules())
    # Most layers draw no random numbers, and then there is no state to put back.
    draws = any(isinstance(part, ChannelDropout) and part.p > 0 for part in parts)
    options: dict[str, Any] = {"preserve_rng_state": draws}
    if any(isinstance(part, MaskedBatchNorm) for part in parts):
        options["context_fn"] = lambda: (nullcontext(), _untracked(layer))
    return options


def pool(x: Tensor, padding: Padding, kind: Literal["mean", "last", "mean-with-padding"]) -> Tensor:
    """x (b, l, d) -> (b, d): the mean of real positions, the last real one, or the mean of all."""
    if kind == "mean-with-padding":
        return x.mean(1)
    if kind == "last":
        last = (padding.lengths - 1).clamp(min=0)
        return x[torch.arange(len(x), device=x.device), last]
    weights = padding.mask / padding.lengths.clamp(min=1).view(-1, 1, 1)
    # A product of matrices, with nothing of the size of x in between; under autocast it would be bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        dtype = torch.promote_types(x.dtype, weights.dtype)
        return torch.bmm(weights.mT.to(dtype), x.to(dtype)).squeeze(1)


def reverse(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse the real part of every sequence of x (b, l, d); padding stays behind it."""
    position = torch.arange(x.shape[1], device=x.device)
    mirrored = lengths.unsqueeze(1) - 1 - position
    index = torch.where(mirrored >= 0, mirrored, position)
    return x.gather(1, index.unsqueeze(2).expand(-1, -1, x.shape[2]))


class Bidirectional(nn.Module):
    """The mean of a layer over the sequence and of another, with its own parameters, over its reverse.

    The mean and not the sum, which would double the residual's growth in every layer.
    """

    def __init__(self, ahead: nn.Module, back: nn.Module) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (b, l, d) and lengths (b,) -> (b, l, d)."""
        there: Tensor = self.ahead(x, lengths)
        returned: Tensor = self.back(reverse(x, lengths), lengths)
        return (there + reverse(returned, lengths)) / 2
