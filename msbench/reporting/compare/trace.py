"""Origin of a number of a table: its reported value, its runs, and the commands that reproduce it."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from msbench import datasets as data
from msbench.config import RunSpec
from msbench.config.differences import compare_settings
from msbench.config.run import SECTIONS
from msbench.console import command_line
from msbench.errors import ConfigError, Undecided
from msbench.reporting.compare.address import CellAddress
from msbench.reporting.compare.standing import RunStanding, standing
from msbench.reporting.tables.cells import UNITS, Column
from msbench.reporting.tables.definitions import define_suite_table
from msbench.reporting.tables.load import ReportOptions, find_more_seeds, load_report
from msbench.reporting.tables.selection import is_usable
from msbench.results import reported
from msbench.results.mixing_documents import find_comparable, read_distances
from msbench.results.record import RunRecord
from msbench.results.reported import ReportedCell
from msbench.runs import suite
from msbench.runs.reproduce import Executed, how, words_of


@dataclass(frozen=True)
class Printed:
    """A cell of the paper, with its file and line."""

    cell: ReportedCell
    path: Path
    line: int


@dataclass(frozen=True)
class Source:
    """The runs of one task behind a cell; an average has several of these.

    `used` are the runs in the mean and `values` theirs, in the unit of the column. `aside` are the other runs
    of this task and model, each with the reason. `commands` reproduce the number, each with a label;
    `problem` is the reason if there are none. `now` is the standing of the first run in use.
    """

    suite: str
    task: str
    used: tuple[RunRecord, ...] = ()
    values: tuple[float, ...] = ()
    aside: tuple[tuple[RunRecord, str], ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    now: RunStanding | None = None


@dataclass(frozen=True)
class Trace:
    """A cell with everything that it is computed from."""

    place: CellAddress
    printed: Printed | None
    sources: tuple[Source, ...]


def trace(place: CellAddress, results: Path, data_root: Path) -> Trace:
    """Follow a cell back to its reported number and to its runs. Reads, never writes."""
    sources = (
        [_source(part, results, data_root) for part in _parts(place, results)] if place.row.model else []
    )
    return Trace(place, _printed(place, results), tuple(sources))


def _printed(place: CellAddress, results: Path) -> Printed | None:
    """Return the reported cell, also where the paper prints a dash; None where it has no such cell."""
    path = reported.find_reported(results) / f"{_reported_table(place)}.csv"
    here = (place.row.group, place.row.name, place.column.label)
    if not path.is_file():
        return None
    cells = [cell for cell in reported.read_reported(path) if (cell.group, cell.row, cell.column) == here]
    if not cells:
        return None
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream, strict=True)
        line = next(reader.line_num for row in reader if tuple(row) == astuple(cells[0]))
    return Printed(cells[0], path, line)


def _reported_table(place: CellAddress) -> str:
    if place.table.number is not None:
        return place.table.id
    return define_suite_table(suite.load(place.name)).reported


def _parts(place: CellAddress, results: Path) -> Iterator[CellAddress]:
    """Yield the cells that this one is computed from: itself, or those of the tasks of an average."""
    if place.column.source != "average":
        yield place
        return
    for each in place.column.places:
        found = _in_table(place, each) or _elsewhere(place, each, results)
        if found is not None:
            yield found


def _in_table(place: CellAddress, where: tuple[str, str]) -> CellAddress | None:
    for number, column in enumerate(place.table.columns):
        if column.source == "run" and column.places == (where,):
            return replace(place, number=number)
    return None


def _elsewhere(place: CellAddress, where: tuple[str, str], results: Path) -> CellAddress | None:
    """Return the cell of a task that the table itself does not show, from the table of its suite."""
    try:
        found = load_report(ReportOptions(names=[where[0]], results=results, claims=False))
    except Undecided:
        return None
    (table,) = found.tables
    rows = (row for row in table.rows if row.model == place.row.model)
    row = next(rows, None)
    return None if row is None else _in_table(CellAddress(where[0], found, table, row, 0), where)


def _source(place: CellAddress, results: Path, data_root: Path) -> Source:
    column, model = place.column, place.row.model
    ((suite_name, task),) = column.places
    every = [each for records in place.report.records.values() for each in records]
    mine = [each for each in every if (each.suite, each.task, each.model) == (suite_name, task, model)]
    behind = place.report.list_runs(place.table, place.row, place.number)
    found = {each.run_id: _value(place, column, each) for each in behind}
    used = [each for each in behind if found[each.run_id] is not None]
    name = place.name if place.table.number is None else suite_name
    try:
        specs = suite.plan(suite.load(name), [model], [task])
        specs += find_more_seeds(specs, mine).values()
    except ConfigError as error:
        specs, problem = [], str(error)
    else:
        problem = ""
    return Source(
        suite_name,
        task,
        tuple(used),
        tuple(value for each in used if (value := found[each.run_id]) is not None),
        tuple((each, _why_not(each, used, specs)) for each in sorted(mine, key=_order) if each not in used),
        tuple(_commands(name, column, used, specs, results, data_root)),
        problem,
        standing(used[0], data_root) if used else None,
    )


def _order(record: RunRecord) -> tuple[int, str, str]:
    return record.seed, record.ended, record.run_id


def _value(place: CellAddress, column: Column, record: RunRecord) -> float | None:
    """Return the value of this run in the unit of the column; None where it has none for the cell."""
    unit = UNITS[column.unit]
    if column.source == "mixing":
        measured = find_comparable(read_distances(place.report.find_folder(record))[0])
        return None if measured is None or measured.mean is None else unit.scale * measured.mean
    value = record.metrics.get(unit.metric)
    return unit.scale * value if is_usable(value) else None


def _why_not(record: RunRecord, used: Iterable[RunRecord], specs: Iterable[RunSpec]) -> str:
    """Return the reason why a run of this task and model is not in the mean."""
    planned = list(specs)
    if record.spec_digest not in {spec.digest for spec in planned}:
        near = sorted(planned, key=lambda spec: spec.seed != record.seed)
        return _unplanned(record, near[0]) if near else "the suite as it is here plans no such run"
    if not record.finished:
        return f"{record.status}: {record.failure.message if record.failure else 'no detail'}"
    newest = next(iter(used), None)
    if newest is None:
        return "has no such value"
    if record.data_digest != newest.data_digest:
        return f"on other data: {record.data_digest[:8]}, not {newest.data_digest[:8]}"
    if record.source_digest != newest.source_digest:
        return f"from other source code: {record.source_digest[:8]}, not {newest.source_digest[:8]}"
    return (
        "has no such value" if record.seed not in {each.seed for each in used} else "an older run of its seed"
    )


def _unplanned(record: RunRecord, planned: RunSpec) -> str:
    """Return a text on how the settings of a run differ from the planned ones."""
    found = compare_settings(planned.model_dump(mode="json"), record.spec)
    departures = [str(each) for each in found if each.name.partition(".")[0] in SECTIONS]
    return f"modified: {', '.join(departures) or 'another version of the spec'}"


def _commands(
    name: str,
    column: Column,
    used: Iterable[RunRecord],
    specs: list[RunSpec],
    results: Path,
    data_root: Path,
) -> Iterator[tuple[str, str]]:
    """Yield the commands in order: set-up of absent data, runs in use or all planned, missing seeds."""
    if not specs:
        return
    task, model = specs[0].task, specs[0].model_name
    if not data.is_ready(specs[0].data, data_root):
        yield "data", data.command(specs[0].data)
    done = [record.seed for record in used]
    lacking = [spec.seed for spec in specs if spec.seed not in done]

    def run(seeds: Sequence[int], executed: Executed = ((), ())) -> str:
        overrides, options = executed
        return command_line((*words_of("run", name, model, task, seeds, overrides, results), *options))

    ways = _executed(used)
    for executed, seeds in ways.items():
        yield "runs", run(seeds, executed)
    if lacking:
        # Execute them as the others were, where those agree.
        yield "missing seeds" if done else "runs", run(lacking, *(ways if len(ways) == 1 else ()))
    if column.source == "mixing":
        yield "distances", command_line(words_of("mixing", name, model, task, [*done, *lacking], (), results))


def _executed(used: Iterable[RunRecord]) -> dict[Executed, list[int]]:
    """Return the seeds of runs by execution settings, on which exact numbers depend."""
    found: dict[Executed, list[int]] = {}
    for record in used:
        found.setdefault(how(record.environment), []).append(record.seed)
    return found
