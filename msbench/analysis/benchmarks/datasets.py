"""The benchmark of data: time to generate a dataset, to open it, and to feed it to a device."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from msbench import datasets as data
from msbench.analysis.benchmarks.settings import Say, Settings
from msbench.analysis.benchmarks.timing import Task, failure, interleave, timed
from msbench.config import DATASETS, DataConfig
from msbench.datasets.dataset import Dataset
from msbench.environment import measure_split_memory
from msbench.errors import UnknownName
from msbench.runs.suite import list_suites, resolve_specs
from msbench.training.feed import BatchLoader
from msbench.training.order import epoch_batches

BATCH = 64
FEW, MANY = 2**10, 2**13
"""Examples of a training epoch fed in one call, with ``--quick`` and without."""


@dataclass
class DatasetEntry:
    """One configuration in which a suite uses a dataset, and its results."""

    name: str
    config: DataConfig
    status: str = "measured"
    reason: str = ""
    dataset: Dataset | None = None
    resident: int = 0
    fed: list[int] = field(default_factory=lambda: [0, 0])
    """Examples and positions of one call."""
    tasks: dict[str, Task] = field(default_factory=dict)

    def fail(self, status: str, reason: str) -> None:
        """Stop measuring this entry, with status and reason."""
        self.status, self.reason, self.tasks = status, reason, {}


def measure(settings: Settings, say: Say) -> dict[str, Any]:
    """Measure every dataset of the suites that is set up; the others get the command that sets them up."""
    for name in settings.only:
        if name not in DATASETS:
            raise UnknownName("dataset", name, DATASETS, "--only")
    room = measure_split_memory(settings.device)  # once: a run has the memory to itself
    entries = [entry for entry in configs(say) if not settings.only or entry.config.dataset in settings.only]
    for entry in entries:
        say(f"{entry.name}: first reading")
        if fault := failure(partial(start, entry, settings, room)):
            entry.fail("failed", fault)
    interleave([task for entry in entries for task in entry.tasks.values()], settings.repeats, say)
    return {"rows": [row(entry) for entry in entries]}


def configs(say: Say) -> Iterator[DatasetEntry]:
    """Yield the datasets of all suites, each configuration once, under the first task that uses it.

    Invalid suite files are reported and skipped.
    """
    seen: set[str] = set()
    for suite in list_suites(on_error=lambda error: say(str(error))):
        for spec in resolve_specs(suite):
            if (key := spec.data.model_dump_json()) not in seen:
                seen.add(key)
                yield DatasetEntry(f"{suite.name} {spec.task}", spec.data)


def start(entry: DatasetEntry, settings: Settings, room: int) -> None:
    """Open the dataset and feed it once; `room` is that of `BatchLoader`."""
    root = data.data_root()
    if not data.is_ready(entry.config, root):
        entry.fail("skipped", f"not set up: `{data.command(entry.config)}`")
        return
    entry.dataset = data.open_dataset(entry.config, root)
    device = torch.device(settings.device)
    split = entry.dataset.splits["train"].augmented(0, 0)
    feed = BatchLoader(split, device, room)
    entry.resident = feed.resident_bytes
    chosen = epoch_batches(split.lengths, BATCH, 0, 0, bucketing=True)
    some = chosen[: (FEW if settings.quick else MANY) // BATCH]

    def epoch() -> None:
        entry.fed[:] = [0, 0]
        for batch in feed.batches(some):
            entry.fed[0] += len(batch.labels)
            entry.fed[1] += batch.positions

    calls: dict[str, Callable[[], object]] = {
        "open": partial(data.open_dataset, entry.config, root),
        "epoch": epoch,
    }
    for name, call in calls.items():
        seconds, _ = timed(call, settings.device)
        entry.tasks[name] = Task(call, settings.device, expected=seconds)


def row(entry: DatasetEntry) -> dict[str, Any]:
    """Return an entry as plain values."""
    found: dict[str, Any] = {"name": entry.name, "dataset": entry.config.dataset, "status": entry.status}
    for task in entry.tasks.values():
        if task.error:
            entry.fail("failed", task.error)
    if entry.status != "measured" or entry.dataset is None:
        return found | {"status": entry.status, "reason": entry.reason}
    spreads = {name: task.spread for name, task in entry.tasks.items()}
    opened, epoch = spreads["open"], spreads["epoch"]
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
