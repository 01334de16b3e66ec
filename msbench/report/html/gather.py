"""What a page needs beside its tables, read from the results: the runs behind cells, and their logs."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msbench import store, suite
from msbench.errors import ConfigError, DamagedRecord, MsbenchError
from msbench.report.cells import Table
from msbench.report.html.command import command, overrides
from msbench.store import RUN_ID, RunRecord

MOST_RUNS = 2000
"""Runs that get a section of their own; a page of more would open slowly and be read by nobody."""

Epoch = Mapping[str, float]


@dataclass(frozen=True)
class Run:
    """A run behind a cell. `folder` is relative to the results; `epochs` are the rows of ``metrics.csv``.

    `elsewhere` are other folders with a run of the same id, as made by another suite of the same settings.
    """

    record: RunRecord
    folder: str
    command: str
    epochs: tuple[Epoch, ...] = ()
    elsewhere: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """The runs behind shown cells by id, in the order of the cells, and counts of what is left out.

    `others` are run folders that no shown cell rests on, `beyond` runs behind cells that came after
    `MOST_RUNS`, `unread` ids that no readable record has.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    others: int = 0
    beyond: int = 0
    unread: tuple[str, ...] = ()


def gather(
    tables: Iterable[Table], results: Path, suites: Sequence[str] = (), most: int = MOST_RUNS
) -> Gathered:
    """Read the runs behind the cells of `tables`, at most `most`; `suites` are names or files as typed."""
    wanted = list(dict.fromkeys(each for table in tables for row in table.rows for each in row.run_ids))
    folders: dict[str, list[Path]] = {}
    for folder in store.run_folders(results):
        folders.setdefault(folder.name, []).append(folder)
    asked = set(wanted)
    others = sum(len(found) for name, found in folders.items() if name not in asked)
    commands = Commands(suites)
    runs: dict[str, Run] = {}
    for identity in wanted[:most]:
        if run := _read(identity, folders.get(identity, ()), results, commands):
            runs[identity] = run
    unread = tuple(identity for identity in wanted[:most] if identity not in runs)
    return Gathered(runs, others, len(wanted[most:]), unread)


def _read(
    identity: str, folders: Sequence[Path], results: Path, commands: Callable[[RunRecord], str]
) -> Run | None:
    """The run of this id in the first of its folders that has a record of it."""
    for folder in folders:
        with suppress(ConfigError, DamagedRecord):
            record = store.read_record(folder)
            if record is not None and record.run_id == identity and RUN_ID.fullmatch(identity):
                places = [each.relative_to(results).as_posix() for each in folders]
                here = folder.relative_to(results).as_posix()
                elsewhere = tuple(place for place in places if place != here)
                return Run(record, here, commands(record), _epochs(folder / "metrics.csv"), elsewhere)
    return None


def _epochs(path: Path) -> tuple[Epoch, ...]:
    """The rows of a log, as far as they are numbers; none where there is no log: a chart is no result."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return tuple(_numbers(row) for row in csv.DictReader(stream))
    except (OSError, UnicodeDecodeError, csv.Error):
        return ()


def _numbers(row: Mapping[str | None, Any]) -> dict[str, float]:
    found = {}
    for name, text in row.items():
        with suppress(TypeError, ValueError):
            found[str(name)] = float(text)
    return found


class Commands:
    """Record -> the command that makes it again. Reads a suite once, and plans a model on a task once."""

    def __init__(self, typed: Sequence[str]) -> None:
        self.suites: dict[str, tuple[str, suite.Suite]] = {}
        self.planned: dict[tuple[str, str, str], Mapping[str, Any]] = {}
        for name in typed:
            with suppress(MsbenchError):
                found = suite.load(name)
                self.suites[found.name] = (name, found)

    def __call__(self, record: RunRecord) -> str:
        """Without its suite at hand, the command has no ``--set``: what it departs from is not known."""
        place = (record.suite, record.task, record.model)
        if place not in self.planned:
            self.planned[place] = self._plan(record)
        planned = self.planned[place]
        sets = overrides(record.spec, planned) if planned else ()
        typed, _ = self.suites.get(record.suite, (record.suite, None))
        return command(record, typed, sets)

    def _plan(self, record: RunRecord) -> Mapping[str, Any]:
        """The settings that the suite gives this model on this task; empty where that cannot be told."""
        with suppress(MsbenchError):
            if record.suite not in self.suites:
                self.suites[record.suite] = (record.suite, suite.load(record.suite))
            _, found = self.suites[record.suite]
            return suite.plan(found, [record.model], [record.task])[0].model_dump(mode="json")
        return {}
