"""Results on disk: plain files, one folder per run, ``run.json`` written last.

::

    results/<suite>/<task>/<model>/<run-id>/
        run.json             the record; its presence means that the run has ended
        metrics.csv          a row per epoch
        predictions.parquet  a row per test example
        checkpoint/          best-<epoch>.safetensors, last.safetensors, previous.safetensors
        run.lock             held while a process works here

Readers take no lock, as every file is replaced atomically. Results of two machines merge with rsync.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msbench.config import RunSpec
from msbench.config.run import Label, compute_spec_digest
from msbench.console import encodable
from msbench.errors import ConfigError, DamagedRecord, MsbenchError
from msbench.results.locks import hold_file
from msbench.results.record_fields import (
    RUN_ID,
    Count,
    Duration,
    Environment,
    Fraction,
    Number,
    RunId,
    Size,
    Spec,
)
from msbench.results.safe_reads import parse_json, read_bytes

SCHEMA_VERSION = 1
"""Schema version of records. It is raised when a field changes its meaning, not when one is added."""
Status = Literal["finished", "diverged", "out-of-memory", "interrupted", "failed"]
Metric = Literal["accuracy", "macro-auroc"]
"""The metric that is the result of a run, set by its task."""


class Failure(BaseModel):
    """The reason why a run has no result: exception name, message and, where known, step and tensor."""

    type: str
    message: str
    step: int | None = None
    name: str | None = None


class RunRecord(BaseModel):
    """The contents of ``run.json``. Accuracies and AUROCs are fractions; only a finished run has any.

    `metric` names the one that is the result, `chance` is its chance level, `baselines` are the results of
    trivial rules on the test split; `classes` are the names of the classes in the order of the predictions,
    where they have names. `data_notes` are the notes of the data setup, such as differences from the
    published data.

    Read tolerantly: fields added by a later version are ignored, and fields missing in an earlier one take
    their default, so that old records stay in the tables. A record of a higher `schema_version` is not read:
    its fields may have another meaning. Names are valid folder names: none leads out of the results folder.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    schema_version: Annotated[int, Field(ge=1, le=SCHEMA_VERSION)] = SCHEMA_VERSION
    run_id: RunId
    status: Status
    suite: Label
    task: Label
    model: Label
    seed: Count
    spec: Spec
    spec_digest: str
    data_digest: str
    data_notes: tuple[str, ...] = ()
    source_digest: str
    sources: dict[str, str] = {}
    metric: Metric = "accuracy"
    metrics: dict[str, Number] = {}
    n_test: Size | None = None
    chance: Fraction | None = None
    baselines: dict[str, Fraction] = {}
    classes: tuple[str, ...] = ()
    parameters: Count | None = None
    states_per_channel: Count | None = None
    kernel: str | None = None
    steps: Count = 0
    timing: dict[str, Duration] = {}
    failure: Failure | None = None
    environment: Environment = {}
    started: str = ""
    ended: str = ""
    resumed: Count = 0
    attempts: list[dict[str, str]] = []

    @property
    def finished(self) -> bool:
        """True where the run has a result."""
        return self.status == "finished"

    @property
    def hardware(self) -> str:
        """The class of device that it ran on: ``cpu``, or the name of the GPU; empty where unknown."""
        device = str(self.environment.get("device", ""))
        gpus = self.environment.get("gpus") or [device]
        return str(gpus[0]) if device == "cuda" else device

    @property
    def result(self) -> float | None:
        """The metric on the test split; None where the run has none."""
        return self.metrics.get(metric_key("test", self.metric))


def metric_key(split: str, metric: Metric) -> str:
    """Return the key of a metric on a split in records and logs, such as ``test_macro_auroc``."""
    return f"{split}_{metric.replace('-', '_')}"


def run_id(spec_digest: str, data_digest: str, source_digest: str) -> str:
    """Return the run id: twelve hex digits of a hash of the spec, data and source digests."""
    joined = "\n".join((spec_digest, data_digest, source_digest))
    return hashlib.sha256(joined.encode()).hexdigest()[:12]


def run_directory(results: Path, spec: RunSpec, identity: str) -> Path:
    """Return the folder of the run of this spec and id."""
    return results / spec.suite / spec.task / spec.model_name / identity


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary file, flush it to disk, then rename it to `path`.

    Its mode follows the user's umask. Raises OSError with the name of `path`; an older file is then left
    unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # An unpredictable name and O_EXCL: a link planted by another user is never followed.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def write_record(directory: Path, record: RunRecord) -> None:
    """Write ``run.json``."""
    write_atomically(directory / "run.json", packed(record))


def packed(record: RunRecord) -> bytes:
    """Return the bytes of ``run.json``: sorted keys, two spaces, no NaN, a newline at the end."""
    values = encodable(record.model_dump(mode="json", exclude_none=True))
    text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return (text + "\n").encode()


def read_record(directory: Path) -> RunRecord | None:
    """Return the record of this folder, or None if the run has not ended.

    Raises DamagedRecord, naming the file, where ``run.json`` is no record, has a later schema, or
    contradicts itself: its id does not match its digests, or its digest its settings. Raises ConfigError
    where it cannot be read.
    """
    path = directory / "run.json"
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; choose another --results") from None
    try:
        record = RunRecord.model_validate_json(data)
    except ValidationError as error:
        raise DamagedRecord(f"{path}: {_fault(data, error)}") from None
    if problem := _contradiction(record):
        raise DamagedRecord(f"{path}: contradicts itself: {problem}; train again with --fresh")
    return record


def _fault(data: bytes, error: ValidationError) -> str:
    """Return the reason why this is no valid record, and the remedy."""
    try:
        version = parse_json(data)["schema_version"]
    except (ValueError, KeyError, TypeError):
        version = None
    if isinstance(version, int) and version > SCHEMA_VERSION:
        known = f"has schema version {version!s:.20}, and this msbench reads up to {SCHEMA_VERSION}"
        return f"{known}: use a newer one, or train again with --fresh, which keeps it beside"
    detail = error.errors()[0]
    key = ".".join(str(part) for part in detail["loc"]) or "the file"
    return f"not a run record: {key:.200}: {detail['msg']:.200}; delete it, or train again with --fresh"


def read_filed(directory: Path) -> RunRecord | None:
    """Return the record of a run folder in the results, checked to belong to that folder.

    Raises as `read_record` does, and DamagedRecord where it belongs to another folder: folders were renamed,
    or files copied from one to another.
    """
    record = read_record(directory)
    if record is None:
        return None
    place = (record.suite, record.task, record.model, record.run_id)
    if place != directory.parts[-4:]:
        other = f"is of {'/'.join(place)}, which is another folder"
        raise DamagedRecord(f"{directory}/run.json: {other}: move it there, or train again with --fresh")
    return record


def _contradiction(record: RunRecord) -> str:
    """Return a message on the first inconsistency within a record; empty if there is none.

    A run id is a hash, so an edit of the settings, the seed or a digest is detected.
    """
    labels = {"suite": record.suite, "task": record.task, "model_name": record.model, "seed": record.seed}
    for key, value in labels.items():
        if (given := record.spec.get(key)) != value or isinstance(given, bool):
            return f"{key} is {value!r}, in its settings {given!r:.80}"
    if (found := compute_spec_digest(record.spec)) != record.spec_digest:
        return f"its settings have the digest {found[:12]}, not {record.spec_digest[:12]}"
    if (found := run_id(record.spec_digest, record.data_digest, record.source_digest)) != record.run_id:
        return f"its digests give the run id {found}, not {record.run_id}"
    return ""


@dataclass(frozen=True)
class FolderListing:
    """Folders found, and by path the reason why a folder or link could not be read."""

    folders: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """A warning for each path that could not be read."""
        return [f"{path}: cannot be looked into: {reason}" for path, reason in self.unreadable.items()]


def list_run_folders(results: Path, suite: str | None = None) -> FolderListing:
    """Return every run folder, sorted by path; those archived by ``--fresh`` are left out."""
    found = FolderListing()
    level = [results / suite] if suite is not None else _list_folders(results, found.unreadable)
    for _ in ("task", "model", "run"):
        level = [inner for folder in level for inner in _list_folders(folder, found.unreadable)]
    found.folders.extend(folder for folder in level if RUN_ID.fullmatch(folder.name))
    return found


def list_suites_with_runs(results: Path) -> FolderListing:
    """Return the folders of suites that have a run folder, and the paths that could not be read."""
    found = FolderListing()
    for folder in _list_folders(results, found.unreadable):
        runs = list_run_folders(results, folder.name)
        found.unreadable.update(runs.unreadable)
        found.folders.extend([folder] if runs.folders else [])
    return found


def _list_folders(folder: Path, unreadable: dict[Path, str]) -> list[Path]:
    """Return the folders in this one, sorted; none where it is absent. Failures are added to `unreadable`.

    Each entry is checked separately, so that a link to itself does not hide its neighbours.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unreadable[folder] = error.strerror or str(error)
        return []
    return [folder / entry.name for entry in found if _is_folder(entry, folder, unreadable)]


def _is_folder(entry: "os.DirEntry[str]", parent: Path, unreadable: dict[Path, str]) -> bool:
    try:
        if entry.is_dir():
            return True
        if entry.is_symlink():
            os.stat(entry.path)
    except OSError as error:
        unreadable[parent / entry.name] = error.strerror or str(error)
    return False


@dataclass(frozen=True)
class StoredRuns:
    """The records of a results folder, and the runs without a record.

    `unreadable` has by path, of a run folder or a folder above one, the error in reading it; `unended` are
    run folders without a record: their runs are in progress, or were stopped.
    """

    records: list[RunRecord]
    unreadable: dict[Path, MsbenchError]
    unended: list[Path]

    @property
    def warnings(self) -> list[str]:
        """A warning for each path that could not be read."""
        return list(map(str, self.unreadable.values()))


def read_runs(results: Path, suite: str | None = None) -> StoredRuns:
    """Read all records of `results`, or of one suite in it."""
    listing = list_run_folders(results, suite)
    failed: dict[Path, MsbenchError] = {
        path: ConfigError(text) for path, text in zip(listing.unreadable, listing.warnings, strict=True)
    }
    found = StoredRuns([], failed, [])
    for folder in listing.folders:
        try:
            record = read_filed(folder)
        except (ConfigError, DamagedRecord) as error:
            found.unreadable[folder] = error
        else:
            found.records.extend([record] if record else [])
            found.unended.extend([] if record else [folder])
    return found


def records(results: Path, suite: str | None = None) -> tuple[list[RunRecord], list[str]]:
    """Return all records, and a warning for each folder or ``run.json`` that could not be read."""
    found = read_runs(results, suite)
    return found.records, found.warnings


@contextmanager
def locked(directory: Path, *, wait: bool, between: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the run's lock; yields False at once if another process holds it and `wait` is off.

    The operating system releases the lock when the process ends, so a dead one blocks nobody. While waiting,
    `between` is called every second and may raise. Raises ConfigError where nothing can be written.
    """
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            lock = hold_file(directory / "run.lock", "--results", wait=wait, between=between)
            mine = stack.enter_context(lock)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(f"{directory}: cannot work here: {reason}; choose another --results") from None
        if mine:
            _sweep(directory)
        yield mine


def _sweep(directory: Path) -> None:
    """Remove temporary files left by a process that died during a write."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def set_aside(directory: Path) -> Path | None:
    """Move a run's files to ``<run-id>.old-<k>`` next to it, for ``--fresh``; return None if it had none."""
    contents = [path for path in directory.glob("*") if path.name != "run.lock"]
    if not contents:
        return None
    # The record first: an interruption then leaves an unfinished run, not a corrupt one.
    contents.sort(key=lambda path: path.name != "run.json")
    number = 1
    while (target := directory.with_name(f"{directory.name}.old-{number}")).exists():
        number += 1
    target.mkdir()
    for path in contents:
        path.rename(target / path.name)
    return target
