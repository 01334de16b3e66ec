"""Pure functions from gradients to distances."""

from dataclasses import dataclass

import torch
from torch import Tensor

from msbench.analysis.mixing.options import Entries, Normaliser

BEYOND = (1, 10, 100, 1000)
"""Distances, in positions, beyond which shares are reported."""


@dataclass(frozen=True)
class Drawn:
    """Distances from which one output channel draws, for b examples.

    `distance` (b,) is NaN where all weights are zero; there the shares of the weights, `beyond` (b, 4) each
    distance of `BEYOND` and `profile` (b, bins) in each bin of `edges`, are zero. All float64.
    """

    distance: Tensor
    beyond: Tensor
    profile: Tensor


def edges(longest: int) -> tuple[int, ...]:
    """Return the lower ends of the distance bins for a sequence of `longest`: 0, 1, 2, 4, 8, ..."""
    return (0, *(1 << power for power in range(max(longest - 1, 0).bit_length())))


def drawn(
    gradient: Tensor,
    channel: int,
    positions: Tensor,
    lengths: Tensor,
    longest: int,
    entries: Entries,
    normaliser: Normaliser,
) -> Drawn:
    """Compute distances from the gradients (b, l, d) of an output channel at `positions` (b,).

    `lengths` are those of the examples; `longest`, the largest over all examples, determines the bins.
    """
    place = torch.arange(gradient.shape[1], device=gradient.device)
    real = place < lengths.unsqueeze(1)
    weights = norm(gradient, channel, entries) * real
    away = (place - positions.unsqueeze(1)).abs()
    total = weights.sum(1)
    below = total if normaliser == "absolute" else _printed(gradient * real.unsqueeze(2), channel, entries)
    distance = torch.where(below > 0, (weights * away).sum(1) / below, torch.nan)
    shares = torch.where(total > 0, 1 / total, 0).unsqueeze(1) * weights
    beyond = torch.stack([(shares * (away > limit)).sum(1) for limit in BEYOND], dim=1)
    starts = torch.tensor(edges(longest)[1:], device=gradient.device)
    profile = shares.new_zeros(len(shares), len(starts) + 1)
    profile.scatter_add_(1, torch.bucketize(away, starts, right=True), shares)
    return Drawn(distance, beyond, profile)


def norm(gradient: Tensor, channel: int, entries: Entries) -> Tensor:
    """Return one weight in float64 for each position of a gradient (..., d): (...)."""
    if entries == "same-channel":
        return gradient[..., channel].double().abs()
    if entries == "l2":
        return gradient.double().square().sum(-1).sqrt()
    return gradient.abs().sum(-1, dtype=torch.float64)


def _printed(gradient: Tensor, channel: int, entries: Entries) -> Tensor:
    """Return the printed |sum over k of J_{m,k}|: signs cancel before the norm is taken."""
    return norm(gradient.sum(1, dtype=torch.float64), channel, entries)
