"""Origin of a table's number (``trace``): its reported value, its runs, the commands that reproduce it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msbench import datasets
from msbench.config import RunSpec
from msbench.config.differences import compare_settings
from msbench.config.run import SECTIONS
from msbench.console import command_line
from msbench.errors import ConfigError, Undecided
from msbench.reporting.compare.lookup import CellAddress
from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.compare.show import RunStanding, compare_with_present, describe_standing
from msbench.reporting.tables.cells import UNITS, Column
from msbench.reporting.tables.definitions import define_suite_table
from msbench.reporting.tables.load import ReportOptions, find_more_seeds, load_report
from msbench.reporting.tables.selection import is_usable
from msbench.results.mixing_documents import find_comparable
from msbench.results.record import RunRecord
from msbench.results.reported import ReportedCell, find_reported, read_reported_lines
from msbench.runs import suite
from msbench.runs.reproduce import ExecutionOptions, build_command, dump_spec, list_execution_options

ADDED = 5
"""The most values that are written out as a sum."""


@dataclass(frozen=True)
class PrintedCell:
    """A cell of the paper, with its file and line."""

    cell: ReportedCell
    path: Path
    line: int


@dataclass(frozen=True)
class CellSource:
    """The runs of one task behind a cell; an average has several of these.

    `used` are the runs in the mean and `values` theirs, in the unit of the column. `unused` are the other
    runs of this task and model, each with the reason. `commands` reproduce the number, each with a label;
    `problem` is the reason if there are none. `now` is the standing of the first run in use.
    """

    suite: str
    task: str
    used: tuple[RunRecord, ...] = ()
    values: tuple[float, ...] = ()
    unused: tuple[tuple[RunRecord, str], ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    now: RunStanding | None = None


@dataclass(frozen=True)
class Trace:
    """A cell with everything that it is computed from."""

    place: CellAddress
    printed: PrintedCell | None
    sources: tuple[CellSource, ...]


def trace_cell(place: CellAddress, results: Path, data_root: Path) -> Trace:
    """Follow a cell back to its reported number and to its runs. Reads, never writes."""
    sources = (
        [_trace_source(part, results, data_root) for part in _list_parts(place, results)]
        if place.row.model
        else []
    )
    return Trace(place, _find_printed(place, results), tuple(sources))


def _find_printed(place: CellAddress, results: Path) -> PrintedCell | None:
    """Return the reported cell, also where the paper prints a dash; None where it has no such cell."""
    path = find_reported(results) / f"{_name_reported_table(place)}.csv"
    here = (place.row.group, place.row.name, place.column.label)
    if not path.is_file():
        return None
    for line, cell in read_reported_lines(path).items():
        if (cell.group, cell.row, cell.column) == here:
            return PrintedCell(cell, path, line)
    return None


def _name_reported_table(place: CellAddress) -> str:
    if place.table.number is not None:
        return place.table.id
    return define_suite_table(suite.load_suite(place.name)).reported


def _list_parts(place: CellAddress, results: Path) -> Iterator[CellAddress]:
    """Yield the cells that this one is computed from: itself, or those of the tasks of an average."""
    if place.column.source != "average":
        yield place
        return
    for each in place.column.places:
        found = _find_in_table(place, each) or _find_elsewhere(place, each, results)
        if found is not None:
            yield found


def _find_in_table(place: CellAddress, where: tuple[str, str]) -> CellAddress | None:
    for number, column in enumerate(place.table.columns):
        if column.source == "run" and column.places == (where,):
            return replace(place, number=number)
    return None


def _find_elsewhere(place: CellAddress, where: tuple[str, str], results: Path) -> CellAddress | None:
    """Return the cell of a task that the table itself does not show, from the table of its suite."""
    try:
        found = load_report(ReportOptions(names=[where[0]], results=results, claims=False))
    except Undecided:
        return None
    (table,) = found.tables
    rows = (row for row in table.rows if row.model == place.row.model)
    row = next(rows, None)
    return None if row is None else _find_in_table(CellAddress(where[0], found, table, row, 0), where)


def _trace_source(place: CellAddress, results: Path, data_root: Path) -> CellSource:
    model = place.row.model
    ((suite_name, task),) = place.column.places
    every = (each for records in place.report.records.values() for each in records)
    mine = [each for each in every if (each.suite, each.task, each.model) == (suite_name, task, model)]
    behind = (
        (each, _read_value(place, each))
        for each in place.report.list_runs(place.table, place.row, place.number)
    )
    used = [(each, value) for each, value in behind if value is not None]
    runs = tuple(each for each, _ in used)
    unused = sorted((each for each in mine if each not in runs), key=_sort_key)
    problem = ""
    name = place.name if place.table.number is None else suite_name
    try:
        specs = suite.resolve_specs(suite.load_suite(name), [model], [task])
        specs += find_more_seeds(specs, mine).values()
    except ConfigError as error:
        specs, problem = [], str(error)
    return CellSource(
        suite_name,
        task,
        runs,
        tuple(value for _, value in used),
        tuple((each, _explain_unused(each, runs, specs)) for each in unused),
        tuple(_list_commands(name, place.column, runs, specs, results, data_root)),
        problem,
        compare_with_present(runs[0], data_root) if runs else None,
    )


def _sort_key(record: RunRecord) -> tuple[int, str, str]:
    return record.seed, record.ended, record.run_id


def _read_value(place: CellAddress, record: RunRecord) -> float | None:
    """Return the value of this run in the unit of the column; None where it has none for the cell."""
    unit, value = UNITS[place.column.unit], None
    if place.column.source == "run":
        value = record.metrics.get(unit.metric)
    elif measured := find_comparable(place.report.distances.get(record.run_id, ())):
        value = measured.mean
    return unit.scale * value if is_usable(value) else None


def _explain_unused(record: RunRecord, used: Sequence[RunRecord], specs: Sequence[RunSpec]) -> str:
    """Return the reason why a run of this task and model is not in the mean."""
    if record.spec_digest not in {spec.digest for spec in specs}:
        if not specs:
            return "the suite as it is here plans no such run"
        nearest = min(specs, key=lambda spec: spec.seed != record.seed)
        found = compare_settings(dump_spec(nearest), record.spec)
        departures = [str(each) for each in found if each.name.partition(".")[0] in SECTIONS]
        return f"modified: {', '.join(departures) or 'another version of the spec'}"
    if not record.finished:
        return f"{record.status}: {record.failure.message if record.failure else 'no detail'}"
    if not used:
        return "has no such value"
    newest = used[0]
    if record.data_digest != newest.data_digest:
        return f"on other data: {record.data_digest[:8]}, not {newest.data_digest[:8]}"
    if record.source_digest != newest.source_digest:
        return f"from other source code: {record.source_digest[:8]}, not {newest.source_digest[:8]}"
    return (
        "has no such value" if record.seed not in {each.seed for each in used} else "an older run of its seed"
    )


def _list_commands(
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
    where = {"model": specs[0].model_name, "task": specs[0].task}
    if not datasets.is_ready(specs[0].data, data_root):
        yield "data", datasets.command(specs[0].data)

    def write(verb: str, seeds: Sequence[int], executed: ExecutionOptions = ((), ())) -> str:
        overrides, options = executed
        words = build_command(verb, name, **where, seeds=seeds, overrides=overrides, results=results)
        return command_line((*words, *options))

    # Exact numbers depend on the execution of a run.
    ways: dict[ExecutionOptions, list[int]] = {}
    for record in used:
        ways.setdefault(list_execution_options(record.environment), []).append(record.seed)
    for executed, seeds in ways.items():
        yield "runs", write("run", seeds, executed)
    done = [record.seed for record in used]
    lacking = [spec.seed for spec in specs if spec.seed not in done]
    if lacking:
        # Execute them as the others were, where those agree.
        yield "missing seeds" if done else "runs", write("run", lacking, *(ways if len(ways) == 1 else ()))
    if column.source == "mixing":
        yield "distances", write("mixing", [*done, *lacking])


def build_document(found: Trace) -> dict[str, Any]:
    """Return plain values for JSON: numbers in the column's unit, measured ones unrounded."""
    place, cell, printed = found.place, found.place.cell, found.printed
    return {
        "table": place.table.id,
        "number": place.table.number,
        "row": place.row.name,
        "model": place.row.model or None,
        "column": place.column.label,
        "unit": UNITS[place.column.unit].words,
        "reported": printed
        and {
            **printed.cell.model_dump(),
            "value": float(printed.cell.value) if printed.cell.value else None,
            "sd": float(printed.cell.sd) if printed.cell.sd else None,
            "file": str(printed.path),
            "line": printed.line,
        },
        "measured": {
            "status": cell.status,
            "value": cell.measured,
            "sd": cell.sd,
            "n": cell.n,
            "n_planned": cell.n_planned,
            "how": explain_value(found),
            "notes": _list_notes(found),
        },
        "sources": [_describe_source(found, each) for each in found.sources],
    }


def _describe_source(found: Trace, source: CellSource) -> dict[str, Any]:
    return {
        "suite": source.suite,
        "task": source.task,
        "runs": [
            _describe_run(found, record) | {"value": value}
            for record, value in zip(source.used, source.values, strict=True)
        ],
        "set_aside": [_describe_run(found, record) | {"reason": reason} for record, reason in source.unused],
        "commands": [{"what": what, "command": command} for what, command in source.commands],
        "problem": source.problem or None,
        "same_id_now": None if source.now is None else source.now.run_id == source.used[0].run_id,
    }


def _describe_run(found: Trace, record: RunRecord) -> dict[str, Any]:
    names = ("run_id", "seed", "status", "hardware", "started", "ended", "data_digest", "source_digest")
    folder = found.place.report.find_folder(record)
    return {name: getattr(record, name) for name in names} | {"folder": str(folder)}


def _list_notes(found: Trace) -> list[str]:
    """Return the notes of the cell, in the order of their letters."""
    cell = found.place.cell
    return [text for text in found.place.table.letters if text in (*cell.notes, *cell.reported_notes)]


def build_page(found: Trace) -> Iterable[Part]:
    """Yield the parts to print, in order."""
    place = found.place
    number = "" if place.table.number is None else f" (Table {place.table.number})"
    title = f"{place.table.id}{number} · {place.row.name} · {place.column.label}"
    notes = [("note", text) for text in _list_notes(found)]
    measured = [("measured", _format_number(found)), ("how", explain_value(found))]
    yield Facts(title, [*_list_paper_facts(found), *measured, *notes])
    for source in found.sources:
        yield from _lay_out_source(found, source)


def _list_paper_facts(found: Trace) -> Iterable[tuple[str, str]]:
    if found.printed is None:
        yield "reported", "the paper has no such cell"
        return
    cell = found.printed.cell
    spread = f" ± {cell.sd}" if cell.sd else ""
    yield "reported", f"{cell.value or '--'}{spread} ({UNITS[found.place.column.unit].words})"
    yield "in the paper", f"{cell.label}, row {cell.row}, column {cell.column}"
    yield "in the file", f"{found.printed.path}:{found.printed.line}"
    yield "source", cell.source


def _format_number(found: Trace) -> str:
    cell = found.place.cell
    if cell.measured is None:
        return cell.status
    digits = UNITS[found.place.column.unit].digits
    spread = "" if cell.sd is None else f" ± {cell.sd:.{digits}f}"
    seeds = "" if cell.status == "trivial-rule" else f" (seeds: {cell.n} of {cell.n_planned})"
    return f"{cell.measured:.{digits}f}{spread}{seeds}"


def explain_value(found: Trace) -> str:
    """Return a text on how the cell is computed from its runs."""
    place, cell = found.place, found.place.cell
    if cell.status == "trivial-rule":
        return "counted on the test split; records of runs have it"
    if cell.measured is None:
        return "no value to take a mean of"
    if place.column.source == "average":
        tasks = ", ".join(source.task for source in found.sources)
        return f"mean of the means of {tasks}; ±: the root of the sum of their squared ± over their number"
    values = [value for source in found.sources for value in source.values]
    if len(values) == 1 and place.column.source == "run":
        return "one run, so no ±"
    over = "root mean square of their own, over layers, channels and examples"
    spread = (
        over if place.column.source == "mixing" else "sample standard deviation over seeds (divisor n - 1)"
    )
    return f"{_format_mean(values, cell.measured, UNITS[place.column.unit].digits)}; ±: {spread}"


def _format_mean(values: Sequence[float], mean: float, digits: int) -> str:
    if len(values) > ADDED:
        return f"mean of {len(values)} seeds"
    added = " + ".join(f"{value:.{digits}f}" for value in values)
    return f"({added}) / {len(values)} = {mean:.{digits}f}"


def _lay_out_source(found: Trace, source: CellSource) -> Iterable[Part]:
    where = f"{source.suite} · {source.task} · {found.place.row.model}"
    digits = UNITS[found.place.column.unit].digits
    header = ("run", "seed", "value", "status", "hardware", "ended")
    rows = [
        (
            each.run_id,
            each.seed,
            f"{value:.{digits}f}",
            each.status,
            each.hardware,
            each.ended[:16].replace("T", " "),
        )
        for each, value in zip(source.used, source.values, strict=True)
    ]
    yield Grid(f"runs in use: {where}", header, rows)
    yield Facts("on", list(_list_digests(source)))
    yield Facts(
        f"runs not used: {where}",
        [(f"{record.run_id} seed {record.seed}", reason) for record, reason in source.unused],
    )
    purpose = "to reproduce it" if source.used else "to run it"
    commands = [*source.commands, *([("", f"no command: {source.problem}")] if source.problem else [])]
    if source.used and not source.problem:
        commands.append(("", "(completed runs are kept where they are; --fresh trains them anew)"))
    yield Facts(f"{purpose}: {where}", commands, frozenset(what for what, _ in source.commands))


def _list_digests(source: CellSource) -> Iterable[tuple[str, str]]:
    for first in source.used[:1]:
        yield "data", first.data_digest
        yield "source", first.source_digest
        if source.now is not None:
            yield "id now", describe_standing(first, source.now)
