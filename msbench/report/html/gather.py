"""What a page shows beside its tables: the runs behind their cells, each with its log and its command."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msbench import store
from msbench.again import Again, Commands
from msbench.report.load import Report
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
    again: Again
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
