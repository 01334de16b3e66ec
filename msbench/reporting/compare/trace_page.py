"""Display of a trace as text and as a JSON document."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from msbench.reporting.compare.page import Facts, Grid, Part
from msbench.reporting.compare.show import verdict
from msbench.reporting.compare.trace import Source, Trace
from msbench.reporting.tables.cells import UNITS
from msbench.results.record import RunRecord
from msbench.runs.reproduce import KEPT

ADDED = 5
"""The most values that are written out as a sum."""


def as_dict(found: Trace) -> dict[str, Any]:
    """Return plain values for JSON: numbers in the column's unit, unrounded; reported ones as printed."""
    place = found.place
    return {
        "table": place.table.id,
        "number": place.table.number,
        "row": place.row.name,
        "model": place.row.model or None,
        "column": place.column.label,
        "unit": UNITS[place.column.unit].words,
        "reported": _reported(found),
        "measured": _measured(found),
        "sources": [_source(found, each) for each in found.sources],
    }


def _reported(found: Trace) -> dict[str, Any] | None:
    if found.printed is None:
        return None
    return {**asdict(found.printed.cell), "file": str(found.printed.path), "line": found.printed.line}


def _measured(found: Trace) -> dict[str, Any]:
    cell = found.place.cell
    names = ("status", "n", "n_planned")
    numbers = {"value": cell.measured, "sd": cell.sd, "how": how(found), "notes": _notes(found)}
    return {name: getattr(cell, name) for name in names} | numbers


def _source(found: Trace, source: Source) -> dict[str, Any]:
    return {
        "suite": source.suite,
        "task": source.task,
        "runs": [
            _run(found, record) | {"value": value}
            for record, value in zip(source.used, source.values, strict=True)
        ],
        "set_aside": [_run(found, record) | {"reason": reason} for record, reason in source.aside],
        "commands": [{"what": what, "command": command} for what, command in source.commands],
        "problem": source.problem or None,
        "same_id_now": None if source.now is None else source.now.run_id == source.used[0].run_id,
    }


def _run(found: Trace, record: RunRecord) -> dict[str, Any]:
    names = ("run_id", "seed", "status", "hardware", "started", "ended", "data_digest", "source_digest")
    folder = found.place.report.find_folder(record)
    return {name: getattr(record, name) for name in names} | {"folder": str(folder)}


def _notes(found: Trace) -> list[str]:
    """Return the notes of the cell, in the order of their letters."""
    cell = found.place.cell
    return [text for text in found.place.table.letters if text in (*cell.notes, *cell.reported_notes)]


def pages(found: Trace) -> Iterable[Part]:
    """Yield the parts to print, in order."""
    place = found.place
    number = "" if place.table.number is None else f" (Table {place.table.number})"
    title = f"{place.table.id}{number} · {place.row.name} · {place.column.label}"
    notes = [("note", text) for text in _notes(found)]
    yield Facts(title, [*_paper_facts(found), ("measured", _number(found)), ("how", how(found)), *notes])
    for source in found.sources:
        yield from _source_pages(found, source)


def _paper_facts(found: Trace) -> Iterable[tuple[str, str]]:
    if found.printed is None:
        yield "reported", "the paper has no such cell"
        return
    cell = found.printed.cell
    spread = f" ± {cell.sd}" if cell.sd else ""
    yield "reported", f"{cell.value or '--'}{spread} ({UNITS[found.place.column.unit].words})"
    yield "in the paper", f"{cell.label}, row {cell.row}, column {cell.column}"
    yield "in the file", f"{found.printed.path}:{found.printed.line}"
    yield "source", cell.source


def _number(found: Trace) -> str:
    cell = found.place.cell
    if cell.measured is None:
        return cell.status
    digits = UNITS[found.place.column.unit].digits
    spread = "" if cell.sd is None else f" ± {cell.sd:.{digits}f}"
    seeds = "" if cell.status == "trivial-rule" else f" (seeds: {cell.n} of {cell.n_planned})"
    return f"{cell.measured:.{digits}f}{spread}{seeds}"


def how(found: Trace) -> str:
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
    return f"{_mean(values, cell.measured, UNITS[place.column.unit].digits)}; ±: {spread}"


def _mean(values: Sequence[float], mean: float, digits: int) -> str:
    if len(values) > ADDED:
        return f"mean of {len(values)} seeds"
    added = " + ".join(f"{value:.{digits}f}" for value in values)
    return f"({added}) / {len(values)} = {mean:.{digits}f}"


def _source_pages(found: Trace, source: Source) -> Iterable[Part]:
    where = f"{source.suite} · {source.task} · {found.place.row.model}"
    digits = UNITS[found.place.column.unit].digits
    rows = [
        (record.run_id, record.seed, f"{value:.{digits}f}", record.status, record.hardware, _minute(record))
        for record, value in zip(source.used, source.values, strict=True)
    ]
    yield Grid(f"runs in use: {where}", ("run", "seed", "value", "status", "hardware", "ended"), rows)
    yield Facts("on", list(_digests(source)))
    yield Facts(
        f"runs set aside: {where}",
        [(f"{record.run_id} seed {record.seed}", reason) for record, reason in source.aside],
    )
    again = "to make it again" if source.used else "to make it"
    commands = [*source.commands, *([("", f"no command: {source.problem}")] if source.problem else [])]
    if source.used and not source.problem:
        commands.append(("", f"(what has ended: {KEPT})"))
    yield Facts(f"{again}: {where}", commands, frozenset(what for what, _ in source.commands))


def _minute(record: RunRecord) -> str:
    """Return the end time of a run to the minute."""
    return record.ended[:16].replace("T", " ")


def _digests(source: Source) -> Iterable[tuple[str, str]]:
    for first in source.used[:1]:
        yield "data", first.data_digest
        yield "source", first.source_digest
        if source.now is not None:
            yield "id now", verdict(first, source.now)
