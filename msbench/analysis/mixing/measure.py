"""The mixing distance of a model's layers on batches of examples, as arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msbench.analysis.mixing.jacobian import (
    FutureDependence,
    MixingUnit,
    compute_rows,
    exact_mode,
    list_units,
    measure_future,
    visit_inputs,
)
from msbench.analysis.mixing.options import MeasureOptions, choose_sample
from msbench.errors import ConfigError, RunError
from msbench.models import find_config_family
from msbench.models.classifier import Classifier
from msbench.models.layers import Padding
from msbench.results.mixing_documents import BEYOND
from msbench.training.step_memory import StepMemory

Floats = NDArray[np.float64]
Batch = tuple[Tensor, Tensor]
"""Inputs and true lengths of a batch, as a classifier takes them."""

ROUNDING = 1e-5
"""Largest |J| from the future that counts as rounding, relative to the largest of all: an FFT gives 3e-8."""
WORKING = 3
"""Factor over what is kept, for the operators' working memory: the spectra of S4's FFTs took 2.8 times it."""


@dataclass(frozen=True)
class MeasuredLayer:
    """Results of one layer, for s sequences in order and c output channels.

    `distance` (s, c) is NaN where a channel's gradient is zero everywhere; `beyond` (s, 4) and `profile` (s,
    bins) are means over the other channels, NaN if there are none.
    """

    name: int | Literal["network"]
    kind: str
    distance: Floats
    beyond: Floats
    profile: Floats
    future_share: float | None


@dataclass(frozen=True)
class Measure:
    """All layers; `lengths` and `measured` cover all sequences, (s,), with the two of a pair adjacent.

    A sequence too short for the requested position is not `measured`, and has no row in `layers`.
    """

    layers: tuple[MeasuredLayer, ...]
    edges: tuple[int, ...]
    lengths: NDArray[np.int64]
    measured: NDArray[np.bool_]


def measure_model(
    model: Classifier,
    batches: Sequence[Batch],
    options: MeasureOptions,
    note: Callable[[str], None] = lambda _: None,
) -> Measure:
    """Measure the distances of every layer of `model`, for all examples of all batches in order.

    The model is left unchanged, including its mode, flags, gradients and buffers. The caller applies
    `options.examples` and `dtype`: the model and its inputs are used as they are. Raises ConfigError if the
    model is of less than float32, RunError if a gradient is not finite or a causal model sees the future.
    """
    for name, parameter in model.named_parameters():
        if parameter.dtype.itemsize < 4:
            raise ConfigError(
                f"{name} is {parameter.dtype}: the tail of a Jacobian underflows there; measure in float32"
            )
    lengths = torch.cat([batch[1].flatten() for batch in batches]).cpu()
    measured = lengths > (options.position or 0)
    if not measured.any():
        raise ConfigError(f"--position {options.position or 0}: no example is that long")
    collector = _Collector(model, options, int(lengths.max()))
    with exact_mode(model):
        for number, (inputs, true) in enumerate(batches, start=1):
            note(f"batch {number} of {len(batches)}, {true.numel()} sequences up to {int(true.max())}")
            collector.add(inputs, true)
    layers = tuple(map(collector.result, collector.units))
    return Measure(layers, make_bin_edges(collector.longest), lengths.numpy(), measured.numpy())


def estimate_bytes_per_position(memory: StepMemory, options: MeasureOptions) -> int:
    """Return the approximate bytes that measuring takes for each position, from a training step's memory."""
    apart = options.scope == "layers" and memory.kept
    kept = max(memory.kept) if apart else sum(memory.kept) + memory.rest
    # What the forward keeps, and as much again during a backward.
    return int(2 * kept / memory.positions * (2 if options.dtype == "float64" else 1) * WORKING)


class _Collector:
    """Measured layers, collected batch by batch."""

    def __init__(self, model: Classifier, options: MeasureOptions, longest: int) -> None:
        self.model, self.options, self.longest = model, options, longest
        self.units = list_units(model, options.scope, residual=options.residual)
        config: Any = model.config
        self.channels = choose_sample(config.d_model, options.channels or config.d_model).tolist()
        self.causal = find_config_family(config).is_causal(config)
        self.parts: dict[int | str, list[tuple[Floats, Floats, Floats]]] = {u.name: [] for u in self.units}
        self.future_shares: dict[int | str, float] = {}

    def add(self, inputs: Tensor, lengths: Tensor) -> None:
        """Run one batch through the model and measure each layer on the way."""

        def visit(unit: MixingUnit, x: Tensor, padding: Padding) -> None:
            try:
                with torch.enable_grad():
                    self._check_future(unit, measure_future(unit.apply, x, padding, lengths.flatten()))
                    self._measure(unit, x, padding, lengths.flatten())
            except RunError as error:
                raise RunError(f"layer {unit.name} ({unit.kind}): {error}") from None

        with visit_inputs(self.units, visit), torch.no_grad():
            self.model(inputs, lengths)

    def _check_future(self, unit: MixingUnit, seen: FutureDependence | None) -> None:
        if seen is None:
            return
        if self.causal and not seen.peak <= ROUNDING:
            raise RunError(
                f"a causal model sees the future: {seen.share:.2%} of |J| at a middle position comes from"
                " later positions"
            )
        self.future_shares[unit.name] = max(seen.share, self.future_shares.get(unit.name, 0.0))

    def _measure(self, unit: MixingUnit, x: Tensor, padding: Padding, lengths: Tensor) -> None:
        position = self.options.position
        kept = (lengths > (position or 0)).nonzero().flatten()
        if not len(kept):
            return
        lengths = lengths[kept]
        positions = lengths - 1 if position is None else torch.full_like(lengths, position)
        padding = Padding(padding.lengths[kept], padding.mask[kept])
        rows = compute_rows(unit.apply, x[kept], padding, positions, self.channels)
        found = [
            measure_row(
                row,
                channel,
                positions=positions,
                lengths=lengths,
                longest=self.longest,
                options=self.options,
            )
            for channel, row in zip(self.channels, rows, strict=True)
        ]
        self.parts[unit.name].append(_join_channels(found))

    def result(self, unit: MixingUnit) -> MeasuredLayer:
        """Return all that was measured of a layer."""
        if not self.parts[unit.name]:
            raise ConfigError(f"layer {unit.name} ({unit.kind}) of mixing_layers is not called by the model")
        parts = zip(*self.parts[unit.name], strict=True)
        distance, beyond, profile = (np.concatenate(part) for part in parts)
        future_share = self.future_shares.get(unit.name)
        return MeasuredLayer(unit.name, unit.kind, distance, beyond, profile, future_share)


@dataclass(frozen=True)
class ChannelDistances:
    """Distances from which one output channel draws, for b examples.

    `distance` (b,) is NaN where all weights are zero; there the shares of the weights, `beyond` (b, 4) each
    distance of `BEYOND` and `profile` (b, bins) in each bin of `make_bin_edges`, are zero. All float64.
    """

    distance: Tensor
    beyond: Tensor
    profile: Tensor


def make_bin_edges(longest: int) -> tuple[int, ...]:
    """Return the lower ends of the distance bins for a sequence of `longest`: 0, 1, 2, 4, 8, ..."""
    return (0, *(1 << power for power in range(max(longest - 1, 0).bit_length())))


def measure_row(
    gradient: Tensor,
    channel: int,
    *,
    positions: Tensor,
    lengths: Tensor,
    longest: int,
    options: MeasureOptions,
) -> ChannelDistances:
    """Compute distances from the gradients (b, l, d) of an output channel at `positions` (b,).

    `lengths` are those of the examples; `longest`, the largest over all examples, determines the bins.
    """
    place = torch.arange(gradient.shape[1], device=gradient.device)
    real = place < lengths.unsqueeze(1)
    weights = _weigh(gradient, channel, options) * real
    away = (place - positions.unsqueeze(1)).abs()
    total = below = weights.sum(1)
    if options.normaliser == "printed":  # |sum over k of J_{m,k}|: signs cancel before the norm is taken
        below = _weigh((gradient * real.unsqueeze(2)).sum(1, dtype=torch.float64), channel, options)
    distance = torch.where(below > 0, (weights * away).sum(1) / below, torch.nan)
    shares = torch.where(total > 0, 1 / total, 0).unsqueeze(1) * weights
    beyond = torch.stack([(shares * (away > limit)).sum(1) for limit in BEYOND], dim=1)
    starts = torch.tensor(make_bin_edges(longest)[1:], device=gradient.device)
    profile = shares.new_zeros(len(shares), len(starts) + 1)
    profile.scatter_add_(1, torch.bucketize(away, starts, right=True), shares)
    return ChannelDistances(distance, beyond, profile)


def _weigh(gradient: Tensor, channel: int, options: MeasureOptions) -> Tensor:
    """Return one weight in float64 for each position of a gradient (..., d): (...)."""
    if options.entries == "same-channel":
        return gradient[..., channel].double().abs()
    if options.entries == "l2":
        return gradient.double().square().sum(-1).sqrt()
    return gradient.abs().sum(-1, dtype=torch.float64)


def _join_channels(found: Sequence[ChannelDistances]) -> tuple[Floats, Floats, Floats]:
    """Return distances (b, c), and shares as means over the channels whose weights are not all zero."""
    distance = torch.stack([each.distance for each in found], dim=1)
    beyond = torch.stack([each.beyond for each in found])
    profile = torch.stack([each.profile for each in found])
    # A row whose weights are all zero has no shares; any other sums to 1.
    count = (profile.sum(2) > 0.5).sum(0).double()
    share = torch.where(count > 0, 1 / count, torch.nan).unsqueeze(1)
    means = (share * beyond.sum(0)).cpu().numpy(), (share * profile.sum(0)).cpu().numpy()
    return distance.cpu().numpy(), *means
