"""What a page shows beside its tables: the runs behind their cells, each with its log and its command."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msbench import store, suite
from msbench.errors import MsbenchError
from msbench.report.html.command import command, overrides
from msbench.report.load import Report
from msbench.specs.run import LABEL
from msbench.store import RUN_ID, RunRecord

MOST_RUNS = 1000
"""Runs that get a section of their own; a page of more would open slowly and be read by nobody."""

Epoch = Mapping[str, float]
Key = tuple[str, str, str, str]
"""Suite, task, model and id: suites with the same settings have runs of the same id."""


@dataclass(frozen=True)
class Run:
    """A run behind a cell. `anchor` is the id of its section, `epochs` are the rows of ``metrics.csv``."""

    anchor: str
    record: RunRecord
    command: str
    epochs: tuple[Epoch, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """The runs behind shown cells, in the order of the cells, and counts of what is left out.

    `others` are run folders that no shown cell rests on, `beyond` runs behind cells that came after
    `MOST_RUNS`.
    """

    runs: Mapping[Key, Run] = field(default_factory=dict)
    others: int = 0
    beyond: int = 0


def key(record: RunRecord) -> Key:
    """What tells the record from all others of a results folder."""
    return record.suite, record.task, record.model, record.run_id


def gather(report: Report, names: Sequence[str] = (), most: int = MOST_RUNS) -> Gathered:
    """The runs behind the cells of `report`, at most `most`; `names` are suites and files as typed."""
    wanted = {key(record): record for record in _behind(report)}
    folders = sum(1 for _ in store.run_folders(report.results))
    commands = Commands(names)
    runs: dict[Key, Run] = {}
    taken: dict[str, int] = {}
    for each, record in list(wanted.items())[:most]:
        number = taken[record.run_id] = taken.get(record.run_id, 0) + 1
        anchor = f"run-{record.run_id}" + (f".{number}" if number > 1 else "")
        runs[each] = Run(anchor, record, commands(record), _epochs(report.folder(record) / "metrics.csv"))
    return Gathered(runs, max(0, folders - len(wanted)), len(wanted) - len(runs))


def _behind(report: Report) -> Iterator[RunRecord]:
    """Every run behind a cell; one whose id is none, and could be no anchor, is left out."""
    for table in report.tables:
        for row in table.rows:
            for index in range(len(table.columns)):
                for record in report.behind(table, row, index):
                    if RUN_ID.fullmatch(record.run_id):
                        yield record


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
            # A name may be that of a table of the paper, which is no suite.
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
            if record.suite not in self.suites and LABEL.fullmatch(record.suite):
                self.suites[record.suite] = (record.suite, suite.load(record.suite))
            if record.suite in self.suites:
                _, found = self.suites[record.suite]
                listed = found.planned.get((record.task, record.model))
                spec = listed or suite.plan(found, [record.model], [record.task])[0]
                return spec.model_dump(mode="json")
        return {}
