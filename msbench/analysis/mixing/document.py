"""A measure as one JSON document in its run's folder: ``mixing/<trained|untrained>-<options>.json``."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msbench.analysis.mixing import sample
from msbench.analysis.mixing.distance import BEYOND
from msbench.analysis.mixing.measure import Floats, Measure, MeasuredLayer
from msbench.analysis.mixing.options import Options
from msbench.console import encodable
from msbench.errors import ConfigError, DamagedRecord
from msbench.results.files import parse_json, read_bytes, write_file

SCHEMA_VERSION = 1
FOLDER = "mixing"
NETWORK = 0
"""Layer number of the whole network; layers count from 1."""
OVER = "layers, sequences and output channels"
"""Dimensions over which the mean and its standard deviation (of a sample, with n - 1) are taken."""

Document = dict[str, Any]


def path_of(directory: Path, options: Options, *, trained: bool) -> Path:
    """Return the path of the measure with these options in a run's folder; unique for each set of options."""
    return directory / FOLDER / f"{'trained' if trained else 'untrained'}-{options.digest[:12]}.json"


def build(measured: Measure, options: Options, examples: Sequence[int], facts: Mapping[str, Any]) -> Document:
    """Build the document of a measure; `examples` are the test example numbers, one per sequence in order.

    `facts` are further fields from the caller: run, model, kernel, time.
    """
    kept = np.flatnonzero(measured.measured).tolist()
    everything = np.concatenate([layer.distance.ravel() for layer in measured.layers])
    rows = [_row(examples, measured.lengths, place) for place in kept]
    profile = _mean(np.concatenate([layer.profile for layer in measured.layers]))
    document = {
        "schema_version": SCHEMA_VERSION,
        "options": options.model_dump(mode="json"),
        "options_digest": options.digest,
        "default_options": options.default,
        "distribution": options.normaliser == "absolute",
        **_statistics(everything),
        "over": OVER,
        "sd_of_layers": _sd(
            np.array([_mean(layer.distance.ravel()[:, None])[0] for layer in measured.layers])
        ),
        "sd_of_sequences": _sd(_by_sequence(measured)),
        "beyond": _beyond(_mean(np.concatenate([layer.beyond for layer in measured.layers]))),
        "profile": _plain(profile),
        "profile_edges": list(measured.edges),
        "examples": len(set(examples)),
        "example_ids": sorted(set(examples)),
        "example_choice": sample.CHOICE,
        "sequences": len(rows),
        "sequences_left_out": len(measured.lengths) - len(rows),
        "layers": [_layer(layer, rows) for layer in measured.layers],
    }
    return {**document, **facts}


def _row(examples: Sequence[int], lengths: Any, place: int) -> Document:
    """Return the sequence that a row describes; `sequence` is 1 for the second of a pair."""
    first = int(place) if place == 0 or examples[place] != examples[place - 1] else int(place) - 1
    return {
        "example": int(examples[place]),
        "sequence": int(place) - first,
        "length": int(lengths[place]),
    }


def _layer(layer: MeasuredLayer, rows: Sequence[Document]) -> Document:
    return {
        "layer": NETWORK if layer.name == "network" else layer.name,
        "kind": layer.kind,
        **_statistics(layer.distance),
        "future_share": layer.future_share,
        "beyond": _beyond(_mean(layer.beyond)),
        "profile": _plain(_mean(layer.profile)),
        "sequences": [
            {**row, **_statistics(distances), "beyond": _beyond(shares)}
            for row, distances, shares in zip(rows, layer.distance, layer.beyond, strict=True)
        ],
    }


def _statistics(distances: Floats) -> Document:
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


def _by_sequence(measured: Measure) -> Floats:
    """Return for each sequence the mean over layers and channels (s,)."""
    wide = np.concatenate([layer.distance for layer in measured.layers], axis=1)
    return np.array([_mean(row[:, None])[0] for row in wide])


def _beyond(shares: Floats) -> Document:
    return {str(limit): value for limit, value in zip(BEYOND, _plain(shares), strict=True)}


def _plain(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def check_writable(path: Path) -> None:
    """Raise ConfigError if `write` could not write there; nothing is created."""
    there = next(folder for folder in path.parents if folder.exists())
    if not there.is_dir():
        raise _unwritable(path, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _unwritable(path, f"{there} is read-only")


def write(path: Path, document: Document) -> None:
    """Write the whole document or nothing; sorted keys, two spaces, no NaN, a newline at the end.

    Raises ConfigError if it cannot be written.
    """
    text = json.dumps(encodable(document), indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    write_file(path, (text + "\n").encode(), "--results")


def _unwritable(path: Path, why: str | None) -> ConfigError:
    return ConfigError(f"{path}: cannot be written: {why}; choose another --results")


def read(path: Path) -> Document | None:
    """Read a document, or return None if there is none; DamagedRecord, naming the file, if it is invalid."""
    try:
        found = encodable(parse_json(read_bytes(path)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DamagedRecord(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DamagedRecord(f"{path}: not a measure of mixing: {error}; delete it") from None
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        raise DamagedRecord(f"{path}: not a measure of mixing of version {SCHEMA_VERSION}; delete it")
    return found
