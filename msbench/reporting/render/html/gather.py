"""Collection of the runs behind the cells of a page's tables, each with its log and its command."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msbench.reporting.render.formatting import number_repeats
from msbench.reporting.tables.cells import Report
from msbench.results import store
from msbench.results.metrics_log import Epochs, read_log
from msbench.results.record import RUN_ID, RunRecord
from msbench.runs.reproduce import Again, Commands

MOST_RUNS = 1000
"""The most runs with a section of their own; a page with more would load slowly."""

Key = tuple[str, str, str, str]
"""Suite, task, model and id: suites with the same settings have runs of the same id."""


@dataclass(frozen=True)
class RunSection:
    """A run behind a cell. `anchor` is the id of its section, `epochs` are the rows of ``metrics.csv``."""

    anchor: str
    record: RunRecord
    again: Again
    epochs: Epochs = ()


@dataclass(frozen=True)
class Gathered:
    """The runs behind shown cells, in the order of the cells, and counts of what is left out.

    `others` counts run folders that no shown cell uses, `beyond` the runs behind cells after the first
    `MOST_RUNS`.
    """

    runs: Mapping[Key, RunSection] = field(default_factory=dict)
    others: int = 0
    beyond: int = 0


def key(record: RunRecord) -> Key:
    """Return the key that identifies the record within a results folder."""
    return record.suite, record.task, record.model, record.run_id


def gather(report: Report, names: Sequence[str] = (), most: int = MOST_RUNS) -> Gathered:
    """Collect at most `most` runs behind the cells of `report`; `names` are suites and files as typed."""
    wanted = {key(record): record for record in _behind(report)}
    folders = len(store.list_run_folders(report.results).folders)
    commands = Commands(names)
    kept = list(wanted.values())[:most]
    anchors = number_repeats((f"run-{record.run_id}" for record in kept), "{}.{}")
    runs = {
        key(record): RunSection(anchor, record, commands(record), read_log(report.find_folder(record))[0])
        for record, anchor in zip(kept, anchors, strict=True)
    }
    return Gathered(runs, max(0, folders - len(wanted)), len(wanted) - len(runs))


def _behind(report: Report) -> Iterator[RunRecord]:
    """Yield every run behind a cell; one with an invalid id, unusable as an anchor, is left out."""
    for table in report.tables:
        for row in table.rows:
            for index in range(len(table.columns)):
                for record in report.list_runs(table, row, index):
                    if RUN_ID.fullmatch(record.run_id):
                        yield record
