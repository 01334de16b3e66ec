"""The benchmark of lengths: how time and memory of a training step grow with the length of a sequence.

Every model reads one signal of `CHANNELS` channels through two small layers. A model is built anew for each
length, as the longest of its task, so that what a model sizes by its task grows as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import log2
from typing import Any

import numpy as np

from msbench import models
from msbench.analysis.benchmarks.measurement import (
    BenchmarkEntry,
    Report,
    TimedCall,
    estimate_seconds,
    measure_peak,
    time_call,
    time_entries,
)
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.analysis.benchmarks.step_models import StepRunner, StepShape, Variant, make_runner
from msbench.config import MODELS, TrainConfig
from msbench.datasets.dataset import Batch, TaskInfo
from msbench.errors import UnknownName
from msbench.models.family import Cost

LENGTHS, QUICK_LENGTHS = (512, 2048, 8192), (128, 256, 512)
CHANNELS, CLASSES = 12, 10
SMALL = {"d_model": 64, "layers": 2}

TERMS: Mapping[Cost, Any] = {
    "l": lambda length: length,
    "l log l": lambda length: length * log2(length),
    "l sqrt l": lambda length: length**1.5,
    "l^2": lambda length: length**2,
}
"""The functions that the costs of `Family.cost` name."""


@dataclass(kw_only=True)
class LengthEntry(BenchmarkEntry):
    """A model at one length, with its results."""

    length: int
    cost: Cost
    runner: StepRunner | None = None

    @property
    def ready(self) -> StepRunner:
        """Return the runner that `start_entry` has built."""
        assert self.runner is not None
        return self.runner


def measure_lengths(options: BenchmarkOptions, report: Report) -> dict[str, Any]:
    """Measure every model, or those of `only`, at every length, as plain values."""
    for name in options.only:
        if name not in MODELS:
            raise UnknownName("model", name, MODELS, "--only")
    lengths = QUICK_LENGTHS if options.quick else LENGTHS
    entries = [
        LengthEntry(name=name, length=length, cost=models.find_family(name).cost)
        for name in options.only or MODELS
        for length in lengths
    ]
    for entry in entries:
        report(f"{entry.name}, length {entry.length}: first step")
        entry.attempt(partial(start_entry, entry, options.device))
    time_entries(entries, options.repeats, report)
    # After the last timing, because it slows down allocations.
    for entry in entries:
        entry.attempt(partial(measure_memory, entry, options.device))
    rows = [describe_entry(entry) for entry in entries]
    return {"rows": rows, "growth": compute_growth(rows)}


def start_entry(entry: LengthEntry, device: str) -> None:
    """Build the model and its sequence; take the first step and, if that was short, a second."""
    found = MODELS[entry.name]
    variant = Variant(entry.name, found.config(**SMALL | found.preset))
    entry.runner = make_runner(variant, make_length_shape(variant, entry.length), device)
    first, _ = time_call(entry.runner.step, device)
    seconds = estimate_seconds(entry.runner.step, first, device)
    entry.calls["step"] = TimedCall(entry.runner.step, device, expected=seconds)


def make_length_shape(variant: Variant, length: int) -> StepShape:
    """Return a step on one random signal of this length, the longest of its task."""
    info = TaskInfo("signal", 0, CLASSES, length, "accuracy", 1 / CLASSES, {}, channels=CHANNELS)
    signal = np.random.default_rng(0).standard_normal((1, length, CHANNELS), dtype=np.float32)
    batch = Batch(signal, np.array([length]), np.array([0]))
    return StepShape(
        str(length), "random signal", {variant.model: variant}, TrainConfig(), info, batch, pairs=()
    )


def measure_memory(entry: LengthEntry, device: str) -> None:
    """Measure the peak of one more step, beyond parameters and optimiser state; then release the model."""
    entry.peak, _ = measure_peak(entry.ready.step, device)
    entry.runner = None


def describe_entry(entry: LengthEntry) -> dict[str, Any]:
    """Return an entry as plain values."""
    found = entry.describe() | {"cost": entry.cost, "size": {"b": 1, "l": entry.length}}
    if not entry.is_measured:
        return found
    spread = entry.calls["step"].spread
    assert spread is not None, "a measured row was timed"
    return found | {
        "step": asdict(spread),
        "tokens_per_second": entry.length / spread.median,
        "peak_bytes": entry.peak.bytes,
        "peak_reason": entry.peak.reason,
    }


def compute_growth(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return for each model the factors from the last length but one to the last, if both were measured.

    `expected` is that of its cost: short sequences cost more than their share, so a time may grow by less.
    """
    found = []
    for name in dict.fromkeys(row["name"] for row in rows):
        shorter, longer = [row for row in rows if row["name"] == name][-2:]
        if "step" in shorter and "step" in longer:
            term = TERMS[longer["cost"]]
            memory = (
                shorter["peak_bytes"]
                and longer["peak_bytes"]
                and longer["peak_bytes"] / shorter["peak_bytes"]
            )
            found.append(
                {
                    "name": name,
                    "cost": longer["cost"],
                    "from": shorter["size"]["l"],
                    "to": longer["size"]["l"],
                    "time": longer["step"]["median"] / shorter["step"]["median"],
                    "expected": term(longer["size"]["l"]) / term(shorter["size"]["l"]),
                    "memory": memory or None,
                }
            )
    return found
