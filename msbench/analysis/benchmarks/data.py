"""The benchmark of data: time to generate a dataset, to open it, and to feed it to a device."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from msbench import datasets
from msbench.analysis.benchmarks.measurement import (
    BenchmarkEntry,
    Report,
    TimedCall,
    time_call,
    time_entries,
)
from msbench.analysis.benchmarks.options import BenchmarkOptions
from msbench.config import DATASETS, DataConfig
from msbench.datasets.dataset import Dataset
from msbench.environment import measure_split_memory
from msbench.errors import UnknownName
from msbench.runs.suite import list_suites, resolve_specs
from msbench.training.batches import BatchLoader, draw_batches

BATCH = 64
FEW, MANY = 2**10, 2**13
"""Examples of a training epoch fed in one call, with ``--quick`` and without."""


@dataclass(kw_only=True)
class DatasetEntry(BenchmarkEntry):
    """One configuration in which a suite uses a dataset, and its results.

    `fed` are the examples and the positions of one epoch, `resident` the bytes kept on the device.
    """

    config: DataConfig
    dataset: Dataset | None = None
    resident: int = 0
    fed: tuple[int, int] = (0, 0)


def measure_datasets(options: BenchmarkOptions, report: Report) -> dict[str, Any]:
    """Measure every dataset of the suites that is set up; the others get the command that sets them up."""
    for name in options.only:
        if name not in DATASETS:
            raise UnknownName("dataset", name, DATASETS, "--only")
    room = measure_split_memory(options.device)  # once: a run has the memory to itself
    entries = [
        entry for entry in list_entries(report) if not options.only or entry.config.dataset in options.only
    ]
    for entry in entries:
        report(f"{entry.name}: first reading")
        entry.attempt(partial(start_entry, entry, options, room))
    time_entries(entries, options.repeats, report)
    return {"rows": [describe_entry(entry) for entry in entries]}


def list_entries(report: Report) -> Iterator[DatasetEntry]:
    """Yield the datasets of all suites, each configuration once, under the first task that uses it.

    Invalid suite files are reported and skipped.
    """
    seen: set[str] = set()
    for suite in list_suites(on_error=lambda error: report(str(error))):
        for spec in resolve_specs(suite):
            if (key := spec.data.model_dump_json()) not in seen:
                seen.add(key)
                yield DatasetEntry(name=f"{suite.name} {spec.task}", config=spec.data)


def start_entry(entry: DatasetEntry, options: BenchmarkOptions, room: int) -> None:
    """Open the dataset and feed it once; `room` is that of `BatchLoader`."""
    root = datasets.data_root()
    if not datasets.is_ready(entry.config, root):
        entry.stop("skipped", f"not set up: `{datasets.command(entry.config)}`")
        return
    entry.dataset = datasets.open_dataset(entry.config, root)
    device = torch.device(options.device)
    split = entry.dataset.splits["train"].augmented(0, 0)
    feed = BatchLoader(split, device, room)
    entry.resident = feed.resident_bytes
    chosen = draw_batches(split.lengths, BATCH, 0, 0, bucketing=True)
    some = chosen[: (FEW if options.quick else MANY) // BATCH]

    def feed_epoch() -> None:
        batches = [(len(batch.labels), batch.positions) for batch in feed.batches(some)]
        entry.fed = sum(examples for examples, _ in batches), sum(positions for _, positions in batches)

    reopen = partial(datasets.open_dataset, entry.config, root)
    for name, call in (("open", reopen), ("epoch", feed_epoch)):
        seconds, _ = time_call(call, options.device)
        entry.calls[name] = TimedCall(call, options.device, expected=seconds)


def describe_entry(entry: DatasetEntry) -> dict[str, Any]:
    """Return an entry as plain values."""
    found = entry.describe() | {"dataset": entry.config.dataset}
    if not entry.is_measured or entry.dataset is None:
        return found
    opened, epoch = entry.calls["open"].spread, entry.calls["epoch"].spread
    assert opened is not None, "a measured row was timed"
    assert epoch is not None
    manifest = entry.dataset.manifest
    examples = sum(len(split) for split in entry.dataset.splits.values())
    seconds = manifest["made_seconds"]
    return found | {
        "size": {"b": BATCH, "l": entry.dataset.info.longest},
        "config": entry.config.model_dump(mode="json"),
        "digest": entry.dataset.digest,
        "examples": examples,
        "bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "resident_bytes": entry.resident,
        "made_seconds": seconds,
        "made_per_second": examples / seconds if seconds else None,
        "open": asdict(opened),
        "epoch": asdict(epoch),
        "examples_per_second": entry.fed[0] / epoch.median,
        "positions_per_second": entry.fed[1] / epoch.median,
    }
