"""Results on disk: plain files, one folder per run, ``run.json`` written last.

::

    results/<suite>/<task>/<model>/<run-id>/
        run.json             the record; its presence means that the run has ended
        metrics.csv          rows within epochs and a row after each
        predictions.parquet  a row per test example
        checkpoint/          best-<epoch>.safetensors, last.safetensors, previous.safetensors
        run.log              the attempts and their progress, in plain text
        run.lock             held while a process works here

Readers take no lock, as every file is replaced atomically. Results of two machines merge with rsync.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msbench.config import RunSpec
from msbench.errors import ConfigError, DamagedRecord, MsbenchError
from msbench.results.locks import hold_file
from msbench.results.record import RUN_ID, RunRecord, read_record

ARCHIVED = re.compile(rf"{RUN_ID.pattern}\.old-\d+")
"""The name of a folder of `archive_run`."""


def get_run_folder(results: Path, spec: RunSpec, identity: str) -> Path:
    """Return the folder of the run of this spec and id."""
    return results / spec.suite / spec.task / spec.model_name / identity


def read_run(directory: Path) -> RunRecord | None:
    """Return the record of a run folder in the results, checked to belong to that folder.

    Raises as `read_record` does, and DamagedRecord where it belongs to another folder: folders were renamed,
    or files copied from one to another.
    """
    record = read_record(directory)
    if record is None:
        return None
    place = (record.suite, record.task, record.model, record.run_id)
    if place != directory.parts[-4:]:
        other = f"belongs to {'/'.join(place)}, which is another folder"
        raise DamagedRecord(f"{directory}/run.json: {other}: move it there, or train again with --fresh")
    return record


@dataclass(frozen=True)
class FolderListing:
    """Folders found, and by path the error of each folder, link or record that could not be read.

    `misnamed` are folders with a record whose names are no run ids, such as copies that a file manager made.
    """

    folders: list[Path] = field(default_factory=list)
    unreadable: dict[Path, MsbenchError] = field(default_factory=dict)
    misnamed: list[Path] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """A warning for each path that could not be read, or is not read because of its name."""
        return [
            *map(str, self.unreadable.values()),
            *(f"{path}: not read: its name is no run id; rename or move it" for path in self.misnamed),
        ]


@dataclass(frozen=True)
class StoredRuns(FolderListing):
    """The records of a results folder.

    `incomplete` are run folders without a record: their runs are in progress, or were stopped.
    """

    records: list[RunRecord] = field(default_factory=list)
    incomplete: list[Path] = field(default_factory=list)


def list_run_folders(results: Path, suite: str | None = None) -> FolderListing:
    """Return every run folder, sorted by path; those archived by ``--fresh`` are left out."""
    found = FolderListing()
    level = [results / suite] if suite is not None else _list_folders(results, found.unreadable)
    for _ in ("task", "model", "run"):
        level = [inner for folder in level for inner in _list_folders(folder, found.unreadable)]
    for folder in level:
        if RUN_ID.fullmatch(folder.name):
            found.folders.append(folder)
        elif not ARCHIVED.fullmatch(folder.name) and (folder / "run.json").is_file():
            found.misnamed.append(folder)
    return found


def list_suites_with_runs(results: Path) -> FolderListing:
    """Return the folders of suites that have a run folder, and the paths that could not be read."""
    found = FolderListing()
    for folder in _list_folders(results, found.unreadable):
        runs = list_run_folders(results, folder.name)
        found.unreadable.update(runs.unreadable)
        found.misnamed.extend(runs.misnamed)
        found.folders.extend([folder] if runs.folders else [])
    return found


def _list_folders(folder: Path, unreadable: dict[Path, MsbenchError]) -> list[Path]:
    """Return the folders in this one, sorted; none where it is absent. Failures are added to `unreadable`.

    Each entry is checked separately, so that a link to itself does not hide its neighbours. No name of ours
    begins with a dot, as links and files of editors and systems do.
    """
    try:
        with os.scandir(folder) as entries:
            own = (entry for entry in entries if not entry.name.startswith("."))
            found = sorted(own, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        unreadable[folder] = _report_unreadable(folder, error)
        return []
    return [folder / entry.name for entry in found if _is_folder(entry, folder, unreadable)]


def _is_folder(entry: "os.DirEntry[str]", parent: Path, unreadable: dict[Path, MsbenchError]) -> bool:
    try:
        if entry.is_dir():
            return True
        if entry.is_symlink():
            os.stat(entry.path)
    except OSError as error:
        unreadable[parent / entry.name] = _report_unreadable(parent / entry.name, error)
    return False


def _report_unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}: cannot be listed: {error.strerror or error}")


def read_runs(results: Path, suite: str | None = None) -> StoredRuns:
    """Read all records of `results`, or of one suite in it."""
    return read_folders(list_run_folders(results, suite))


def read_folders(listing: FolderListing) -> StoredRuns:
    """Read the records of these run folders; unreadable ones do not hide others."""
    found = StoredRuns(listing.folders, listing.unreadable, listing.misnamed)
    for folder in listing.folders:
        try:
            record = read_run(folder)
        except (ConfigError, DamagedRecord) as error:
            found.unreadable[folder] = error
            continue
        if record is None:
            found.incomplete.append(folder)
        else:
            found.records.append(record)
    return found


def read_records(results: Path, suite: str | None = None) -> tuple[list[RunRecord], list[str]]:
    """Return all records, and a warning for each folder or ``run.json`` that could not be read."""
    found = read_runs(results, suite)
    return found.records, found.warnings


@contextmanager
def lock_run(directory: Path, *, wait: bool, between: Callable[[], None] = lambda: None) -> Iterator[bool]:
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
            where = error.filename or directory
            raise ConfigError(f"{where}: cannot be used: {reason}; choose another --results") from None
        if mine:
            for leftover in directory.glob(".*.tmp"):  # of a process that died during a write
                leftover.unlink(missing_ok=True)
        yield mine


def archive_run(directory: Path) -> Path | None:
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
