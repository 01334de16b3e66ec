"""Action of a command for each planned run, and its reason: used by run, --dry-run and explain."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msbench import datasets
from msbench.config import RunSpec
from msbench.config.differences import Change, compare_data, compare_settings, compare_sources
from msbench.config.layers import run_checks
from msbench.datasets.dataset import Dataset
from msbench.errors import DamagedRecord, DataError
from msbench.results import store
from msbench.results.record import RunRecord, compute_run_id
from msbench.results.store import StoredRuns
from msbench.runs.identity import Identity, identify

RESUMABLE = ("next", "last", "previous")
"""Checkpoints that a run can resume from: after a kill, any of them may be the only one."""
NAMED = 3
"""Number of changed source files that a reason names; `PlannedRun.changes` has them all."""
NO_RECORD = "has no record: it is still running, or was stopped; the same command resumes it"
TO_TRAIN = ("train", "resume", "retry")
"""Actions that train."""
Action = Literal["train", "resume", "retry", "keep", "set up", "damaged"]


@dataclass(frozen=True)
class PlannedRun:
    """One planned run. `run_id` is None while its data is not set up.

    If it would be trained although its task, model and seed have been run before, `nearest` is the most
    similar run and `changes` are the differences that keep that one from counting.
    """

    spec: RunSpec
    action: Action
    reason: str
    run_id: str | None
    directory: Path | None
    record: RunRecord | None = None
    dataset: Dataset | None = None
    nearest: RunRecord | None = None
    changes: tuple[Change, ...] = ()


def check_kernels(specs: Iterable[RunSpec]) -> None:
    """Raise one ConfigError for all runs whose model is unsupported by the requested scan kernel."""
    from msbench import models

    run_checks(*(partial(models.check_kernel, spec.model_name, spec.model) for spec in specs))


def describe_bucketed_norms(specs: Iterable[RunSpec]) -> list[str]:
    """Return a warning for each task on which batch norm would be trained on batches of similar length."""
    found: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        if spec.data.ragged and spec.model.norm == "batch" and spec.train.bucketing:
            names = found.setdefault((spec.suite, spec.task), [])
            if spec.model_name not in names:
                names.append(spec.model_name)
    return [
        f"{task}: {', '.join(names)}: model.norm: batch on batches of similar length lowers accuracy, more"
        " for some models than for others; set train.bucketing=false for random batches, as in the paper"
        for (_, task), names in found.items()
    ]


def describe_unread_runs(
    spec: RunSpec, digests: Sequence[str], stored: StoredRuns, results: Path, data_digest: str | None
) -> tuple[str, ...]:
    """Return a line for each run that the present code started and that left no readable record.

    They are of the task and model of `spec`, with the specs of these `digests`. A run is the present code's
    if its folder has the id that it would have now; if data are not set up (`data_digest` is None), on any
    data that its neighbours have.
    """
    place = results / spec.suite / spec.task / spec.model_name
    found = [
        str(error) for path, error in stored.unreadable.items() if path == place or path in place.parents
    ]
    texts = {path: str(error) for path, error in stored.unreadable.items() if path.parent == place}
    texts |= {path: f"{path}: {NO_RECORD}" for path in stored.incomplete if path.parent == place}
    known = {record.data_digest for record in stored.records if record.task == spec.task}
    data_digests = known if data_digest is None else {data_digest}
    source = identify(spec, "").source_digest
    present = {place / compute_run_id(each, on, source) for each in digests for on in data_digests if texts}
    # Without known data, it is undecidable which of them are the present code's.
    return (*found, *(text for path, text in texts.items() if not data_digests or path in present))


def plan_runs(
    specs: Sequence[RunSpec], results: Path, data_root: Path, *, fresh: bool = False
) -> list[PlannedRun]:
    """Return an entry per spec, in order; `fresh` as ``run --fresh``. Writes nothing; opens data once."""
    opened: dict[str, Dataset | str] = {}
    earlier: dict[str, list[RunRecord]] = {}
    entries = []
    for spec in specs:
        key = spec.data.model_dump_json()
        if key not in opened:
            opened[key] = open_dataset(spec, data_root)
        if spec.suite not in earlier:
            earlier[spec.suite] = store.read_records(results, spec.suite)[0]
        dataset = opened[key]
        if isinstance(dataset, str):
            nearest, found = _find_nearest(spec, identify(spec, ""), earlier[spec.suite])
            entries.append(PlannedRun(spec, "set up", dataset, None, None, nearest=nearest, changes=found))
        else:
            entries.append(_plan_run(spec, dataset, results, earlier[spec.suite], fresh=fresh))
    return entries


def open_dataset(spec: RunSpec, data_root: Path) -> Dataset | str:
    """Return the dataset of a run, or the reason why it cannot be opened."""
    if not datasets.is_ready(spec.data, data_root):
        return f"{spec.data.dataset} is not set up yet: {datasets.command(spec.data)}"
    try:
        return datasets.open_dataset(spec.data, data_root)
    except DataError as error:
        return str(error)


def _plan_run(
    spec: RunSpec, dataset: Dataset, results: Path, earlier: list[RunRecord], *, fresh: bool
) -> PlannedRun:
    identity = identify(spec, dataset.digest)
    directory = store.get_run_folder(results, spec, identity.run_id)
    action: Action
    nearest: RunRecord | None = None
    found: tuple[Change, ...] = ()
    try:
        record = store.read_run(directory)
    except DamagedRecord as error:
        action, text = ("train", "--fresh") if fresh else ("damaged", str(error))
        return PlannedRun(spec, action, text, identity.run_id, directory, None, dataset)
    if record is None:
        resumable = any((directory / "checkpoint" / f"{name}.safetensors").exists() for name in RESUMABLE)
        action, reason = ("resume", "stopped before its end") if resumable else ("train", "no run yet")
        if not resumable:
            nearest, found = _find_nearest(spec, identity, earlier)
            reason = _explain_difference(nearest, found) if nearest else reason
    else:
        action, reason = _choose_action(record)
        if fresh and action == "keep":
            action, reason = "train", f"{reason}; --fresh"
    return PlannedRun(spec, action, reason, identity.run_id, directory, record, dataset, nearest, found)


def _choose_action(record: RunRecord) -> tuple[Action, str]:
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


def _find_nearest(
    spec: RunSpec, identity: Identity, earlier: Iterable[RunRecord]
) -> tuple[RunRecord | None, tuple[Change, ...]]:
    """Return the run of this task, model and seed with the fewest changes, and these changes.

    Of equally similar runs it is the newest, whatever their order. Without a digest of the data, data are not
    compared.
    """
    wanted = (spec.task, spec.model_name, spec.seed)
    alike = [record for record in earlier if (record.task, record.model, record.seed) == wanted]
    unlike = {record.run_id: list_changes(record, spec, identity) for record in alike}
    alike.sort(key=lambda record: (record.ended, record.run_id), reverse=True)
    nearest = min(alike, key=lambda record: _count_changes(unlike[record.run_id]), default=None)
    return nearest, () if nearest is None else unlike[nearest.run_id]


def list_changes(record: RunRecord, spec: RunSpec, identity: Identity) -> tuple[Change, ...]:
    """Return the differences of a stored run from what this spec and this identity would give now."""
    found: tuple[Change, ...] = ()
    if record.spec_digest != spec.digest:
        found += compare_settings(record.spec, spec.model_dump(mode="json"))
    if identity.data_digest:
        found += compare_data(record.data_digest, identity.data_digest)
    digests = (record.source_digest, identity.source_digest)
    return found + compare_sources(record.sources, identity.files, digests)


def _count_changes(found: Iterable[Change]) -> tuple[int, int, int]:
    """Count changes: settings first, as a user chose them; then data, then source files."""
    kinds = Counter(change.kind for change in found)
    return kinds["setting"], kinds["data"], kinds["source"]


def _explain_difference(record: RunRecord, found: Sequence[Change]) -> str:
    """Return why a run does not count, in one line; of many source files only the first are named."""
    settings = [str(change) for change in found if change.kind == "setting"]
    digests = [f"{change.before_text} → {change.now_text}" for change in found if change.kind == "data"]
    files = [change.name for change in found if change.kind == "source"]
    more = [f"and {len(files) - NAMED} more files"] if len(files) > NAMED else []
    kinds = {
        "settings differ": settings,
        "data differs": digests,
        "source differs": [*files[:NAMED], *more],
    }
    reasons = [f"{kind}: {', '.join(listed)}" for kind, listed in kinds.items() if listed]
    return f"unlike run {record.run_id}: {'; '.join(reasons)}"


def describe_run(entry: PlannedRun) -> dict[str, Any]:
    """Return a row of the plan: the run, the action and its reason."""
    spec = entry.spec
    row: dict[str, Any] = {"task": spec.task, "model": spec.model_name, "seed": spec.seed}
    return row | {"run": entry.run_id, "action": entry.action, "why": entry.reason}


def name_run(spec: RunSpec) -> str:
    """Return the name of a run in messages."""
    return f"{spec.task} · {spec.model_name} · seed {spec.seed}"
