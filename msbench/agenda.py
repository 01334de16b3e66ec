"""What a command would do with each planned run, and why: run, --dry-run and explain all ask here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from msbench import data, models, sources, store
from msbench.config import gather
from msbench.data.dataset import Dataset
from msbench.errors import DamagedRecord, DataError
from msbench.specs import RunSpec
from msbench.store import RunRecord
from msbench.training.schedule import Schedule

Action = Literal["train", "resume", "retry", "keep", "set up", "damaged"]


@dataclass(frozen=True)
class Entry:
    """One planned run. `run_id` is None while its data is not set up."""

    spec: RunSpec
    action: Action
    reason: str
    run_id: str | None
    directory: Path | None
    record: RunRecord | None = None
    dataset: Dataset | None = None


@dataclass(frozen=True)
class Identity:
    """What a run's id is made of."""

    run_id: str
    data_digest: str
    source_digest: str
    files: dict[str, str]


def check_kernels(specs: Iterable[RunSpec], device: str) -> None:
    """One ConfigError for all runs whose model the scan in use on a device type cannot take."""
    gather(*(partial(models.check_kernel, spec.model_name, spec.model, device) for spec in specs))


def identify(spec: RunSpec, data_digest: str) -> Identity:
    """The id of this spec on this data with this source."""
    batches = sources.BATCHES.get(spec.data.dataset, ())
    modules = ("msbench.training.loop", models.family(spec.model_name).module, *batches)
    files = sources.source_files(modules)
    digest = sources.source_digest(files)
    return Identity(store.run_id(spec.digest, data_digest, digest), data_digest, digest, files)


def agenda(specs: Sequence[RunSpec], results: Path, data_root: Path, *, fresh: bool = False) -> list[Entry]:
    """An entry for each spec, in order; `fresh` as ``run --fresh``. Reads, never writes; opens data once."""
    opened: dict[str, Dataset | str] = {}
    earlier: dict[str, list[RunRecord]] = {}
    entries = []
    for spec in specs:
        key = spec.data.model_dump_json()
        if key not in opened:
            opened[key] = _open(spec, data_root)
        if spec.suite not in earlier:
            earlier[spec.suite] = store.records(results, spec.suite)[0]
        dataset = opened[key]
        if isinstance(dataset, str):
            entries.append(Entry(spec, "set up", dataset, None, None))
        else:
            entries.append(_entry(spec, dataset, results, earlier[spec.suite], fresh=fresh))
    return entries


def _open(spec: RunSpec, data_root: Path) -> Dataset | str:
    if not data.is_ready(spec.data, data_root):
        return f"{spec.data.dataset} is not set up yet"
    try:
        return data.open_dataset(spec.data, data_root)
    except DataError as error:
        return str(error)


def _entry(spec: RunSpec, dataset: Dataset, results: Path, earlier: list[RunRecord], *, fresh: bool) -> Entry:
    identity = identify(spec, dataset.digest)
    directory = store.run_directory(results, spec, identity.run_id)
    action: Action
    try:
        record = store.read_record(directory)
    except DamagedRecord as error:
        action, text = ("train", "--fresh") if fresh else ("damaged", str(error))
        return Entry(spec, action, text, identity.run_id, directory, None, dataset)
    if record is None:
        resumable = (directory / "checkpoint" / "last.safetensors").exists()
        action = "resume" if resumable else "train"
        reason = "stopped before its end" if resumable else _why_new(spec, identity, earlier)
    else:
        action, reason = _what_of(record)
        if fresh and action == "keep":
            action, reason = "train", f"{reason}; --fresh"
    return Entry(spec, action, reason, identity.run_id, directory, record, dataset)


def _what_of(record: RunRecord) -> tuple[Action, str]:
    match record.status:
        case "finished":
            return "keep", "finished"
        case "diverged":
            # The same step would diverge again; only --fresh trains it once more.
            return "keep", f"diverged: {record.failure.message if record.failure else 'no detail'}"
        case "interrupted":
            return "resume", "interrupted"
        case _:
            return "retry", f"{record.status}: {record.failure.message if record.failure else 'no detail'}"


def _why_new(spec: RunSpec, identity: Identity, earlier: list[RunRecord]) -> str:
    """Name what keeps the newest run of this task, model and seed from counting."""
    wanted = (spec.task, spec.model_name, spec.seed)
    alike = [record for record in earlier if (record.task, record.model, record.seed) == wanted]
    if not alike:
        return "no run yet"
    newest = max(alike, key=lambda record: record.ended)
    reasons = []
    if newest.spec_digest != spec.digest:
        keys = differing(newest.spec, spec.model_dump(mode="json"))
        reasons.append("settings differ: " + ", ".join(keys))
    if newest.data_digest != identity.data_digest:
        reasons.append(f"data differs: {newest.data_digest[:8]} → {identity.data_digest[:8]}")
    if newest.source_digest != identity.source_digest:
        reasons.append("source differs: " + ", ".join(sources.changed(newest.sources, identity.files)))
    return f"unlike run {newest.run_id}: " + "; ".join(reasons)


def differing(before: object, now: object, prefix: str = "") -> list[str]:
    """Dotted keys in which two plain values differ, with both values."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = list(before) + [key for key in now if key not in before]
        return [
            text
            for key in keys
            for text in differing(before.get(key), now.get(key), f"{prefix}.{key}" if prefix else str(key))
        ]
    return [] if before == now else [f"{prefix} {before} → {now}"]


def flatten(values: object, prefix: str = "") -> list[tuple[str, object]]:
    """Dotted keys and leaves of nested mappings; lists count as leaves."""
    if not isinstance(values, dict) or not values:
        return [(prefix, values)]
    return [
        pair
        for key, value in values.items()
        for pair in flatten(value, f"{prefix}.{key}" if prefix else str(key))
    ]


def describe(entry: Entry, *, estimate: bool) -> dict[str, Any]:
    """A row of the plan: what would be done and why; with `estimate`, also how large it is."""
    spec = entry.spec
    row: dict[str, Any] = {"task": spec.task, "model": spec.model_name, "seed": spec.seed}
    row |= {"run": entry.run_id, "action": entry.action, "why": entry.reason}
    return row | (_size(spec, entry.dataset) if estimate else {})


def _size(spec: RunSpec, dataset: Dataset | None) -> dict[str, Any]:
    """Parameters, states a channel, steps and tokens of a run; None where only the data would tell."""
    info = dataset.info if dataset else data.outline(spec.data)
    model = models.build(spec.model_name, spec.model, info, spec.seed)
    examples = len(dataset.splits["train"]) if dataset else getattr(spec.data, "train", None)
    steps = Schedule.of(spec.train, examples).total if examples is not None else None
    mean_length = float(np.mean(dataset.splits["train"].lengths)) if dataset else None
    sequences = spec.train.batch_size * info.sequences
    tokens = round(steps * sequences * mean_length) if steps and mean_length else None
    return {
        "parameters": models.parameter_count(model),
        "states per channel": models.states_per_channel(spec.model_name, spec.model),
        "steps": steps,
        "tokens": tokens,
    }
