"""Lookup of a stored run by the start of its id, by suite, task and model, or by its folder."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msbench.errors import ConfigError, DamagedRecord, MsbenchError, UnknownName
from msbench.reporting.tables.selection import find_newest, parse_end_time
from msbench.results import store
from msbench.results.record import RunRecord, read_record

LISTED = 8
"""The most runs that a message names."""


@dataclass(frozen=True)
class FoundRun:
    """A run and its folder; `note` names which of several it is, and others that could not be read."""

    record: RunRecord
    folder: Path
    note: str = ""


def title(record: RunRecord) -> str:
    """Return suite, task, model, seed and id of the run as a title."""
    return f"{record.suite} · {record.task} · {record.model} · seed {record.seed} · run {record.run_id}"


def find(results: Path, name: str) -> FoundRun:
    """Find the run of this `name`: the start of its id, ``suite:task:model[:seed]``, or its folder.

    Of several runs of one suite, task, model and seed it is the newest, which the note reports. Raises
    ConfigError where there is none, where it has not ended, or where the name is ambiguous, and
    DamagedRecord where it is not readable.
    """
    if (Path(name) / "run.json").is_file():
        folder = Path(name)
        return FoundRun(_ended(folder), folder)
    folders = store.list_run_folders(results).folders
    if ":" in name:
        return _at_place(name, _placed(results, folders, name))
    return _by_id(results, name, [folder for folder in folders if folder.name.startswith(name)])


def _ended(folder: Path) -> RunRecord:
    record = read_record(folder)
    if record is None:
        raise ConfigError(f"{folder}: has not ended: no run.json yet; the command that began it resumes it")
    return record


def _by_id(results: Path, name: str, folders: Sequence[Path]) -> FoundRun:
    if not folders:
        raise ConfigError(f"{results}: no run {name!r}; `msbench list runs` shows what there is")
    identities = sorted({folder.name for folder in folders})
    if len(identities) > 1:
        raise ConfigError(f"{name!r} is more than one run: {_listed(identities)}")
    others = ", ".join(map(str, folders[1:]))
    note = f"run {identities[0]} is filed in {others} too" if others else ""
    return FoundRun(_ended(folders[0]), folders[0], note)


def _placed(results: Path, folders: Sequence[Path], name: str) -> list[FoundRun]:
    """Return the runs at ``suite:task:model[:seed]`` that have ended."""
    parts = name.split(":")
    if len(parts) not in (3, 4) or (len(parts) == 4 and not parts[3].isdecimal()):
        raise ConfigError(f"{name!r}: a place is suite:task:model or suite:task:model:seed")
    for depth, kind in enumerate(("suite", "task", "model")):
        known = {folder.parts[-4 + depth] for folder in folders}
        if not known:
            raise ConfigError(f"{results}: nothing has been run; 'msbench run SUITE' makes runs")
        if parts[depth] not in known:
            raise UnknownName(f"{kind} with runs in {results}", parts[depth], known)
        folders = [folder for folder in folders if folder.parts[-4 + depth] == parts[depth]]
    found, damaged = _read(folders)
    seeds = [each for each in found if len(parts) == 3 or each.record.seed == int(parts[3])]
    if not seeds and damaged:
        raise damaged[0]
    if not seeds:
        listed = _listed(sorted({str(each.record.seed) for each in found}))
        raise ConfigError(f"{name}: no run that has ended{f'; there are seeds {listed}' if found else ''}")
    return [replace(each, note="\n".join(map(str, damaged))) for each in seeds]


def _read(folders: Iterable[Path]) -> tuple[list[FoundRun], list[MsbenchError]]:
    """Return the runs that have ended, and the errors of unreadable ones, which do not hide others."""
    found: list[FoundRun] = []
    damaged: list[MsbenchError] = []
    for folder in folders:
        try:
            record = store.read_run(folder)
        except (ConfigError, DamagedRecord) as error:
            damaged.append(error)
        else:
            found += [FoundRun(record, folder)] if record else []
    return found, damaged


def _at_place(name: str, found: Sequence[FoundRun]) -> FoundRun:
    seeds = sorted({each.record.seed for each in found})
    if len(seeds) > 1:
        listed = _listed(list(map(str, seeds)))
        raise ConfigError(f"{name!r} has runs of seeds {listed}; add one: {name}:{seeds[0]}")
    record = find_newest(each.record for each in found)
    chosen = next(each for each in found if each.record is record)
    others = [each.record for each in found if each is not chosen]
    if not others:
        return chosen
    ids = _listed([each.run_id for each in sorted(others, key=parse_end_time, reverse=True)])
    note = f"{name} is run {record.run_id}, the newest; older ones: {ids}"
    return replace(chosen, note="\n".join(filter(None, (note, chosen.note))))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
