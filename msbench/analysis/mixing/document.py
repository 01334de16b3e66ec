"""A measure as one JSON document: statistics of all layers, of each, and of each sequence."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msbench.analysis.mixing.measure import Floats, Measure, MeasuredLayer
from msbench.analysis.mixing.options import SAMPLE, MeasureOptions
from msbench.results.mixing_documents import BEYOND, SCHEMA_VERSION, MixingDocument

NETWORK = 0
"""Layer number of the whole network; layers count from 1."""
OVER = "layers, sequences and output channels"
"""Dimensions over which the mean and its standard deviation (of a sample, with n - 1) are taken."""


def build_document(
    measured: Measure, options: MeasureOptions, examples: Sequence[int], facts: Mapping[str, Any]
) -> MixingDocument:
    """Build the document of a measure; `examples` are the test example numbers, one per sequence in order.

    `facts` are further fields from the caller: run, model, kernel, time.
    """
    layers = measured.layers
    sequences = [
        _describe_sequence(examples, measured.lengths, place)
        for place in np.flatnonzero(measured.measured).tolist()
    ]
    by_layer = [_mean(layer.distance.ravel()[:, None])[0] for layer in layers]
    by_sequence = [_mean(row[:, None])[0] for row in np.concatenate([x.distance for x in layers], axis=1)]
    return {
        "schema_version": SCHEMA_VERSION,
        "options": options.describe(),
        "options_digest": options.digest,
        "default_options": options.is_default,
        "distribution": options.normaliser == "absolute",
        **_statistics(np.concatenate([layer.distance.ravel() for layer in layers])),
        "over": OVER,
        "sd_of_layers": _sd(np.array(by_layer)),
        "sd_of_sequences": _sd(np.array(by_sequence)),
        "beyond": _beyond(_mean(np.concatenate([layer.beyond for layer in layers]))),
        "profile": _plain(_mean(np.concatenate([layer.profile for layer in layers]))),
        "profile_edges": list(measured.edges),
        "examples": len(set(examples)),
        "example_ids": sorted(set(examples)),
        "example_choice": SAMPLE,
        "sequences": len(sequences),
        "sequences_left_out": len(measured.lengths) - len(sequences),
        "layers": [_describe_layer(layer, sequences) for layer in layers],
        **facts,
    }


def _describe_sequence(examples: Sequence[int], lengths: Any, place: int) -> dict[str, int]:
    """Return the sequence at a place; `sequence` is 1 for the second of a pair."""
    second = place > 0 and examples[place] == examples[place - 1]
    return {"example": int(examples[place]), "sequence": int(second), "length": int(lengths[place])}


def _describe_layer(layer: MeasuredLayer, sequences: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    return {
        "layer": NETWORK if layer.name == "network" else layer.name,
        "kind": layer.kind,
        **_statistics(layer.distance),
        "future_share": layer.future_share,
        "beyond": _beyond(_mean(layer.beyond)),
        "profile": _plain(_mean(layer.profile)),
        "sequences": [
            {**sequence, **_statistics(distances), "beyond": _beyond(shares)}
            for sequence, distances, shares in zip(sequences, layer.distance, layer.beyond, strict=True)
        ],
    }


def _statistics(distances: Floats) -> dict[str, Any]:
    """Return mean and standard deviation of the finite values, their number, and the number of zero rows."""
    known = distances[np.isfinite(distances)]
    return {
        "mean": float(known.mean()) if len(known) else None,
        "sd": _sd(known),
        "n": len(known),
        "zero_rows": int(distances.size - len(known)),
    }


def _sd(values: Floats) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1)) if len(known) > 1 else None


def _mean(rows: Floats) -> Floats:
    """Return the mean over the finite rows of (s, k): (k,), NaN if there is none."""
    known = rows[np.isfinite(rows).all(axis=1)]
    mean: Floats = known.mean(axis=0) if len(known) else np.full(rows.shape[1], np.nan)
    return mean


def _beyond(shares: Floats) -> dict[str, float | None]:
    return {str(limit): value for limit, value in zip(BEYOND, _plain(shares), strict=True)}


def _plain(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
