"""The measure of a model on batches of examples, as arrays."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msbench.analysis.mixing import sample
from msbench.analysis.mixing.distance import BEYOND, Drawn, drawn, edges
from msbench.analysis.mixing.jacobian import Future, exact, future, rows
from msbench.analysis.mixing.options import Options
from msbench.analysis.mixing.units import MixingUnit, caught, units
from msbench.errors import ConfigError, RunError
from msbench.models import FAMILIES
from msbench.models.classifier import Classifier
from msbench.models.layers import Padding

Floats = NDArray[np.float64]
Batch = tuple[Tensor, Tensor]
"""Inputs and true lengths of a batch, as a classifier takes them."""

ROUNDING = 1e-5
"""Largest |J| from the future that counts as rounding, relative to the largest of all: an FFT gives 3e-8."""


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


def measure(
    model: Classifier,
    batches: Sequence[Batch],
    options: Options,
    note: Callable[[str], None] = lambda _: None,
) -> Measure:
    """Measure the distances of every layer of `model`, for all examples of all batches in order.

    The model is left unchanged, including its mode, flags, gradients and buffers. The caller applies
    `options.examples` and `dtype`: the model and its inputs are used as they are. Raises ConfigError if the
    model is of less than float32, RunError if a gradient is not finite or a causal model sees the future.
    """
    _check_precision(model)
    lengths = torch.cat([batch[1].flatten() for batch in batches]).cpu()
    measured = lengths > (options.position or 0)
    if not measured.any():
        raise ConfigError(f"--position {options.position or 0}: no example is that long")
    longest = int(lengths.max())
    collector = _Collector(model, options, longest)
    with exact(model):
        for number, (inputs, true) in enumerate(batches, start=1):
            note(f"batch {number} of {len(batches)}, {true.numel()} sequences up to {int(true.max())}")
            collector.add(inputs, true)
    return Measure(tuple(collector.layers()), edges(longest), lengths.numpy(), measured.numpy())


WORKING = 3
"""Factor over what is kept, for the operators' working memory: the spectra of S4's FFTs took 2.8 times it."""


def bytes_a_position(model: Classifier, options: Options) -> int:
    """Return the approximate bytes that measuring takes for each position of a batch."""
    config: Any = model.config
    layers = 1 if options.scope == "layers" else len(model.blocks)
    device = next(model.parameters()).device.type
    kept = FAMILIES[type(config)].activations(config, device) * layers
    # What the forward keeps, as much again during a backward, and the input with its gradient.
    return int((2 * kept + 4 * config.d_model) * (8 if options.dtype == "float64" else 4) * WORKING)


def _check_precision(model: Classifier) -> None:
    for name, parameter in model.named_parameters():
        if parameter.dtype.itemsize < 4:
            raise ConfigError(
                f"{name} is {parameter.dtype}: the tail of a Jacobian underflows there; measure in float32"
            )


class _Collector:
    """Measured layers, collected batch by batch."""

    def __init__(self, model: Classifier, options: Options, longest: int) -> None:
        self.model, self.options, self.longest = model, options, longest
        self.units = units(model, options.scope, residual=options.residual)
        config: Any = model.config
        self.channels = sample.first(config.d_model, options.channels or config.d_model).tolist()
        self.causal = FAMILIES[type(config)].causal(config)
        self.parts: dict[int | str, list[tuple[Floats, Floats, Floats]]] = {u.name: [] for u in self.units}
        self.future: dict[int | str, Future] = {}

    def add(self, inputs: Tensor, lengths: Tensor) -> None:
        """Run one batch through the model and measure each layer on the way."""
        true = lengths.flatten()

        def visit(unit: MixingUnit, x: Tensor, padding: Padding) -> None:
            with torch.enable_grad():
                self._measure(unit, x, padding, true)

        with caught(self.units, visit), torch.no_grad():
            self.model(inputs, lengths)

    def _measure(self, unit: MixingUnit, x: Tensor, padding: Padding, lengths: Tensor) -> None:
        try:
            self._look_ahead(unit, x, padding, lengths)
            position = self.options.position
            places = lengths - 1 if position is None else torch.full_like(lengths, position)
            kept = (lengths > (position or 0)).nonzero().flatten()
            if not len(kept):
                return
            padding = Padding(padding.lengths[kept], padding.mask[kept])
            x, places, lengths = x[kept], places[kept], lengths[kept]
            found = [
                self._drawn(gradient, channel, places, lengths)
                for channel, gradient in zip(
                    self.channels, rows(unit.apply, x, padding, places, self.channels), strict=True
                )
            ]
        except RunError as error:
            raise RunError(f"layer {unit.name} ({unit.kind}): {error}") from None
        self.parts[unit.name].append(_joined(found))

    def _drawn(self, gradient: Tensor, channel: int, places: Tensor, lengths: Tensor) -> Drawn:
        entries, normaliser = self.options.entries, self.options.normaliser
        return drawn(gradient, channel, places, lengths, self.longest, entries, normaliser)

    def _look_ahead(self, unit: MixingUnit, x: Tensor, padding: Padding, lengths: Tensor) -> None:
        seen = future(unit.apply, x, padding, lengths)
        if seen is None:
            return
        if self.causal and not seen.peak <= ROUNDING:
            raise RunError(
                f"a causal model sees the future: {seen.share:.2%} of |J| at a middle position comes from"
                " behind it"
            )
        before = self.future.get(unit.name, seen)
        self.future[unit.name] = Future(max(before.share, seen.share), max(before.peak, seen.peak))

    def layers(self) -> Iterable[MeasuredLayer]:
        """Yield the collected results, layer by layer."""
        for unit in self.units:
            distance, beyond, profile = (
                np.concatenate(parts) for parts in zip(*self.parts[unit.name], strict=True)
            )
            seen = self.future.get(unit.name)
            share = None if seen is None else seen.share
            yield MeasuredLayer(unit.name, unit.kind, distance, beyond, profile, share)


def _joined(found: Sequence[Drawn]) -> tuple[Floats, Floats, Floats]:
    """Return distances (b, c), and shares as means over the channels whose weights are not all zero."""
    distance = torch.stack([each.distance for each in found], dim=1)
    # A row whose weights are all zero has no shares; any other sums to 1.
    count = sum((each.profile.sum(1) > 0.5).double() for each in found)
    assert isinstance(count, Tensor)
    means = [
        torch.where(count > 0, 1 / count, torch.nan).unsqueeze(1) * torch.stack(parts).sum(0)
        for parts in ([each.beyond for each in found], [each.profile for each in found])
    ]
    beyond, profile = (mean.cpu().numpy() for mean in means)
    assert beyond.shape[1] == len(BEYOND)
    return distance.cpu().numpy(), beyond, profile
