"""The command ``msbench bench``: measure, compare with an older document, write.

A document is JSON: the results with the conditions of the measurement. A comparison lists faster rows, slower
rows and changed conditions.
"""

import math
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msbench import __version__
from msbench.analysis.benchmarks.data import measure_datasets
from msbench.analysis.benchmarks.length import measure_lengths
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.scan import measure_scan
from msbench.analysis.benchmarks.step import measure_steps
from msbench.console import say
from msbench.environment import describe_environment, use_threads
from msbench.errors import ConfigError
from msbench.results.benchmark_documents import (
    SCHEMA,
    TIMED,
    VERSION,
    BenchmarkDocument,
    read_document,
    write_document,
)

MEASURES = {
    "scan": measure_scan,
    "step": measure_steps,
    "length": measure_lengths,
    "data": measure_datasets,
}
SETTINGS = ("device", "threads", "repeats", "only", "quick", "scaling")
"""Options that are part of a result."""
SMALLEST_CHANGE = 0.03
"""Changes below 3 % count as noise: spreads within a run do not cover the variation between runs."""

Row = Mapping[str, Any]
CONDITIONS = {
    "device": ("device", "type"),
    "name of the device": ("device", "name"),
    "host": ("environment", "host"),
    "threads": ("threads",),
    "torch": ("environment", "packages", "torch"),
}


def run_benchmark(options: BenchmarkOptions) -> dict[str, Any]:
    """Run the benchmark; return the document, written to a file if requested.

    Its `rows` may contain no measurement. Raises ConfigError before anything is measured if the older
    document is invalid.
    """
    old = _read_earlier(options.compare, options.what) if options.compare else None
    describe_environment()  # now: the commit that is measured, even if another is checked out meanwhile
    began = time.monotonic()

    def report(text: str) -> None:
        if not options.quiet:
            say(f"[{time.monotonic() - began:4.0f} s] {text}")

    with use_threads(options.threads):
        found = MEASURES[options.what](options, report)
    document = build_document(options, time.monotonic() - began, found)
    if old is not None:
        document["comparison"] = compare_documents(document, old)
    if options.out is not None:
        write_document(options.out, document)
    return document


def _read_earlier(path: Path, what: str) -> BenchmarkDocument:
    try:
        return read_document(path, what)
    except OSError as error:
        raise ConfigError(f"--compare {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"--compare {path}: {error}") from None


def build_document(options: BenchmarkOptions, seconds: float, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return `found` with the machine, the versions and the settings."""
    env = describe_environment()
    names = env["gpus"] if options.device == "cuda" else [env["cpu"]]
    return {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "what": options.what,
        "msbench": __version__,
        "git": env["git"],
        "environment": env,
        "device": {"type": options.device, "name": names[0] if names else ""},
        "threads": options.threads,
        "dtype": "float32",
        "settings": {name: getattr(options, name) for name in SETTINGS},
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        **found,
    }


def list_measured_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with valid measurements."""
    return [row for row in found["rows"] if row["status"] == "measured"]


def compare_documents(new: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``differences`` of the conditions, and ``rows``: time ratio, noise, verdict by row and mode.

    Rows that did not start are left out, and with ``--only`` those that were not requested.
    """
    before, after = ({row_key(row): row for row in found["rows"] if "size" in row} for found in (old, new))
    partial = _at(new, ("settings", "only"))
    rows = []
    for name in after if partial else dict.fromkeys([*after, *before]):
        rows += list(_compare_row(name, after.get(name), before.get(name)))
    return {"differences": _list_differences(new, old), "rows": rows}


def row_key(row: Row) -> str:
    """Return the key that matches rows of two documents: name and problem."""
    size = row.get("size", {})
    sizes = "x".join(str(size[name]) for name in ("b", "l", "m", "d", "n") if name in size)
    return " ".join(filter(None, (row.get("shape", ""), row["name"], sizes)))


def _compare_row(name: str, new: Row | None, old: Row | None) -> Iterator[dict[str, Any]]:
    """Yield a line for each mode; a single line if a row has no counterpart or no times."""
    if new is None or old is None:
        yield {"row": name, "verdict": "only now" if old is None else "only before"}
        return
    if "measured" not in (new["status"], old["status"]):
        return
    if new["status"] != old["status"]:
        yield {"row": name, "verdict": f"{new['status']}, was {old['status']}"}
        return
    for mode in TIMED:
        if mode in new and mode in old:
            label = "both" if mode == "forward_backward" else mode
            yield {"row": name, "mode": label, **compare_times(new[mode], old[mode])}


def compare_times(new: Row, old: Row) -> dict[str, Any]:
    """Return ``ratio`` of the medians (above 1: slower), ``noise``, and ``faster``, ``slower``, ``same``."""
    ratio = new["median"] / old["median"]
    noise = max(SMALLEST_CHANGE, math.hypot(_half_width(new), _half_width(old)))
    outside = abs(math.log(ratio)) > math.log1p(noise)
    verdict = ("slower" if ratio > 1 else "faster") if outside else "same"
    return {"ratio": ratio, "noise": noise, "verdict": verdict}


def _half_width(spread: Row) -> float:
    """Return the larger distance of a percentile from the median, relative to the median."""
    reach = max(spread["p80"] - spread["median"], spread["median"] - spread["p20"])
    return float(reach / spread["median"])


def _list_differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return the conditions that differ and may explain a ratio instead of the code."""
    pairs = {label: (_at(new, path), _at(old, path)) for label, path in CONDITIONS.items()}
    return [f"{label}: {now}, was {then}" for label, (now, then) in pairs.items() if now != then]


def _at(found: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the value at a path of keys; None if there is none."""
    value: Any = found
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
