"""Results on disk: plain files, one folder a run, ``run.json`` written last.

::

    results/<suite>/<task>/<model>/<run-id>/
        run.json             the record; its presence means that the run has ended
        metrics.csv          a row per epoch
        predictions.parquet  a row per test example
        checkpoint/          best-<epoch>.safetensors, last.safetensors, previous.safetensors
        run.lock             held while a process works here

Readers take no lock: every file is replaced whole. Two machines merge with rsync.
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
from msbench.config.run import Label, spec_digest
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
"""Of records. It goes up where a field comes to mean something else, not where one is added."""
Status = Literal["finished", "diverged", "out-of-memory", "interrupted", "failed"]
Metric = Literal["accuracy", "macro-auroc"]
"""What the result of a run is, as its task has it."""


class Failure(BaseModel):
    """Why a run has no result: the exception's name, its message and, where known, the step and tensor."""

    type: str
    message: str
    step: int | None = None
    name: str | None = None


class RunRecord(BaseModel):
    """What ``run.json`` holds. Accuracies and AUROCs are fractions; only a finished run has any.

    `metric` says which of them is the result, `chance` what it is without a model, `baselines` what trivial
    rules reach on the test split; `classes` are the names of the classes in the order of the
    predictions, where they have names. `data_notes` are what set-up told of the data, such as in which ways
    they are not the published ones.

    Read tolerantly: fields that a later version added are ignored, fields that an earlier one lacked take
    their default, so that old records stay in the tables. Of a higher `schema_version` nothing is read: its
    fields may mean something else. Names are those that folders have: none leads out of the results.
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
        """The class of device that it ran on: ``cpu``, or the name of the GPU; empty where it is not told."""
        device = str(self.environment.get("device", ""))
        gpus = self.environment.get("gpus") or [device]
        return str(gpus[0]) if device == "cuda" else device

    @property
    def result(self) -> float | None:
        """The metric on the test split; None where the run has none."""
        return self.metrics.get(metric_key("test", self.metric))


def metric_key(split: str, metric: Metric) -> str:
    """What the metric on a split is called in records and logs, such as ``test_macro_auroc``."""
    return f"{split}_{metric.replace('-', '_')}"


def run_id(spec_digest: str, data_digest: str, source_digest: str) -> str:
    """Twelve hex digits that depend on nothing but what decides the outcome."""
    joined = "\n".join((spec_digest, data_digest, source_digest))
    return hashlib.sha256(joined.encode()).hexdigest()[:12]


def run_directory(results: Path, spec: RunSpec, identity: str) -> Path:
    """Where the run of this spec and id is filed."""
    return results / spec.suite / spec.task / spec.model_name / identity


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` under a temporary name, flush it to disk, then take the name: whole or not at all.

    Its mode is what the user's umask grants. Raises OSError with the name of `path`, where the older file
    stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name that nobody can guess and O_EXCL: a link that somebody laid there is never followed.
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
    """The bytes of ``run.json``: sorted keys, two spaces, no NaN, a newline at the end."""
    values = encodable(record.model_dump(mode="json", exclude_none=True))
    text = json.dumps(values, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return (text + "\n").encode()


def read_record(directory: Path) -> RunRecord | None:
    """The record of this folder, or None where the run has not ended.

    Raises DamagedRecord, naming the file, where ``run.json`` is no record, one of a later schema, or
    contradicts itself: its id is not that of its digests, or its digest not that of its settings. Raises
    ConfigError where it cannot be read.
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
    """Why this is no record, and what to do."""
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
    """The record of a folder in the results: as `read_record`, and it is of the run whose place this is.

    DamagedRecord where it is another one's: folders were renamed, or files copied from one to another.
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
    """The first part of a record that does not agree with another; empty where all agree.

    A run id is a hash, and so an edit of the settings, the seed or a digest cannot pass for a run.
    """
    labels = {"suite": record.suite, "task": record.task, "model_name": record.model, "seed": record.seed}
    for key, value in labels.items():
        if (given := record.spec.get(key)) != value or isinstance(given, bool):
            return f"{key} is {value!r}, in its settings {given!r:.80}"
    if (found := spec_digest(record.spec)) != record.spec_digest:
        return f"its settings have the digest {found[:12]}, not {record.spec_digest[:12]}"
    if (found := run_id(record.spec_digest, record.data_digest, record.source_digest)) != record.run_id:
        return f"its digests give the run id {found}, not {record.run_id}"
    return ""


@dataclass(frozen=True)
class FolderListing:
    """Folders found, and by path why a folder or link could not be looked into."""

    folders: list[Path] = field(default_factory=list)
    unreadable: dict[Path, str] = field(default_factory=dict)

    @property
    def warnings(self) -> list[str]:
        """A line for each path that could not be looked into."""
        return [f"{path}: cannot be looked into: {reason}" for path, reason in self.unreadable.items()]


def list_run_folders(results: Path, suite: str | None = None) -> FolderListing:
    """Every run folder, in the order of its path; those that ``--fresh`` archived are left out."""
    found = FolderListing()
    level = [results / suite] if suite is not None else _list_folders(results, found.unreadable)
    for _ in ("task", "model", "run"):
        level = [inner for folder in level for inner in _list_folders(folder, found.unreadable)]
    found.folders.extend(folder for folder in level if RUN_ID.fullmatch(folder.name))
    return found


def list_suites_with_runs(results: Path) -> FolderListing:
    """The folders of suites that have a run folder, and what could not be looked into on the way."""
    found = FolderListing()
    for folder in _list_folders(results, found.unreadable):
        runs = list_run_folders(results, folder.name)
        found.unreadable.update(runs.unreadable)
        found.folders.extend([folder] if runs.folders else [])
    return found


def _list_folders(folder: Path, unreadable: dict[Path, str]) -> list[Path]:
    """The folders in this one, sorted; none where it is absent. What fails is added to `unreadable`.

    Each entry is asked by itself: a link to itself must not hide its neighbours.
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
    """The records of a folder of results, and the runs of which there is none.

    `unreadable` says by path, of a run folder or of a folder above such, why it could not be read; `unended`
    are run folders without a record: their runs are in progress, or were stopped.
    """

    records: list[RunRecord]
    unreadable: dict[Path, MsbenchError]
    unended: list[Path]

    @property
    def warnings(self) -> list[str]:
        """A line for each path that could not be read."""
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
    """All records, and a warning for each folder or ``run.json`` that could not be read."""
    found = read_runs(results, suite)
    return found.records, found.warnings


@contextmanager
def locked(directory: Path, *, wait: bool, between: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the run's lock; yields False, at once, where another process has it and `wait` is off.

    The operating system drops the lock with the process that held it, so a dead one blocks nobody. While
    waiting, `between` is called every second and may raise. Raises ConfigError where nothing can be written.
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
    """Remove what a process that died in the middle of a write left behind."""
    for leftover in directory.glob(".*.tmp"):
        leftover.unlink(missing_ok=True)


def set_aside(directory: Path) -> Path | None:
    """Move a run's files into ``<run-id>.old-<k>`` beside it, for ``--fresh``; None where there were none."""
    contents = [path for path in directory.glob("*") if path.name != "run.lock"]
    if not contents:
        return None
    # The record first: without it, a stop in the middle leaves a run that is not finished, not a false one.
    contents.sort(key=lambda path: path.name != "run.json")
    number = 1
    while (target := directory.with_name(f"{directory.name}.old-{number}")).exists():
        number += 1
    target.mkdir()
    for path in contents:
        path.rename(target / path.name)
    return target
