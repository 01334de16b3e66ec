"""Comparison of a table's models with one of them, column by column, with marks and notes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from msbench.errors import ConfigError, DamagedRecord, DataError, UnknownName
from msbench.reporting.tables.cells import COMPARED, UNITS, Cell, Column, Row, Table, lettered
from msbench.reporting.tables.significance import LEVEL, ComparedRun, Comparison, compare
from msbench.results import store
from msbench.results.record import get_metric_key
from msbench.stats import holm

Place = tuple[int, int]
"""Row and column of a table, counted from 0."""
NAMED = 3
"""The most rows that a note names, of those not compared for one reason."""


@dataclass(frozen=True)
class Versus:
    """All comparisons of a table with one reference model; `notes` give the missing ones with reasons."""

    reference: str
    comparisons: Mapping[Place, Comparison]
    notes: tuple[str, ...] = ()


def compare_table(table: Table, results: Path, reference: str) -> Versus:
    """Compare every measured cell of `table` with that of the model or row `reference` in its column.

    Holm's correction is over all of them; rows that show the same runs count once. Runs are looked up in
    `results` by task, model and id. Cells that cannot be compared are left out, with a note.
    """
    index = _reference_row(table, reference)
    if index is None:
        return Versus(reference, {}, (f"no measured {reference} in this table: nothing is compared with it",))
    found: dict[Place, Comparison] = {}
    same: dict[Place, tuple[str, ...]] = {}
    refused: dict[tuple[str, str], list[str]] = {}
    for place, row, column in _places(table, index):
        try:
            theirs = _runs(results, column, table.rows[index], table.rows[index].cells[place[1]])
            found[place] = compare(_runs(results, column, row, row.cells[place[1]]), theirs)
            same[place] = row.cells[place[1]].run_ids
        except (DataError, DamagedRecord, ConfigError) as error:
            refused.setdefault((column.label, str(error)), []).append(row.name)
    adjusted = holm({(place[1], same[place]): each.p for place, each in found.items()})
    comparisons = {
        place: replace(each, reference=reference, p_holm=adjusted[place[1], same[place]])
        for place, each in found.items()
    }
    notes = (
        f"{_listed(rows)} on {column} {_be(rows)} not compared with {reference}: {why}"
        for (column, why), rows in refused.items()
    )
    return Versus(reference, comparisons, (*summary(comparisons, len(adjusted)), *notes))


def _be(rows: list[str]) -> str:
    return "is" if len(rows) == 1 else "are"


def _listed(rows: list[str]) -> str:
    return ", ".join(rows[:NAMED]) + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else "")


def with_comparisons(table: Table, versus: Versus) -> Table:
    """Return the table with a mark and note for each compared cell, and notes on the method."""
    texts = {note.mark: note.text for note in table.notes if note.mark}

    def spelled(cell: Cell, place: Place) -> Cell:
        marks = tuple(texts[mark] for mark in cell.marks)
        compared = (versus.comparisons[place].mark,) if place in versus.comparisons else ()
        reported = tuple(texts[mark] for mark in cell.reported_marks)
        return replace(cell, marks=(*marks, *compared), reported_marks=reported)

    rows = [
        replace(row, cells=tuple(spelled(cell, (i, j)) for j, cell in enumerate(row.cells)))
        for i, row in enumerate(table.rows)
    ]
    general = [note.text for note in table.notes if not note.mark]
    again, notes = lettered(rows, [*general, *versus.notes])
    return replace(table, rows=again, notes=notes)


def versus(tables: Iterable[Table], results: Path, reference: str) -> list[Table]:
    """Return the tables with their comparisons; tables of claims have their own and stay unchanged.

    Raises UnknownName where none of them has the reference model.
    """
    given = list(tables)
    if all(_reference_row(table, reference) is None for table in given):
        known = {row.model for table in given for row in table.rows if _measured(row)}
        raise UnknownName("model", reference, known, "--versus")
    return [
        table if table.base else with_comparisons(table, compare_table(table, results, reference))
        for table in given
    ]


def _reference_row(table: Table, reference: str) -> int | None:
    """Return the index of the first row with results of this model, or of this name; None if none has."""
    rows = enumerate(table.rows)
    return next((i for i, row in rows if reference in (row.model, row.name) and _measured(row)), None)


def _measured(row: Row) -> bool:
    return any(_has_runs(cell) for cell in row.cells)


def _has_runs(cell: Cell) -> bool:
    """Return True for means of results of one task: not for averages of tasks, nor for trivial rules."""
    return cell.status == "measured" and cell.evidence is not None and cell.evidence.metric in COMPARED


def _places(table: Table, reference: int) -> list[tuple[Place, Row, Column]]:
    """Return the cells to compare: with results, and with other runs than those of the reference."""
    against = table.rows[reference].cells
    return [
        ((i, j), row, column)
        for i, row in enumerate(table.rows)
        for j, column in enumerate(table.columns)
        if _has_runs(row.cells[j]) and _has_runs(against[j]) and row.cells[j].run_ids != against[j].run_ids
    ]


def _runs(results: Path, column: Column, row: Row, cell: Cell) -> list[ComparedRun]:
    """Return the runs behind a cell, from the folder of any suite.

    Raises DataError where one is not in `results`, or its result is not what the column shows.
    """
    suites = sorted(results.iterdir()) if results.is_dir() else []
    runs: list[ComparedRun] = []
    for identity in cell.run_ids:
        places = (suite / column.task / row.model / identity for suite in suites)
        folder = next((place for place in places if place.is_dir()), results)
        record = store.read_run(folder)
        if record is None:
            raise DataError(f"{results}: no finished run {identity} of {row.model} on {column.task}")
        metric = UNITS[column.unit].metric
        if get_metric_key("test", record.metric) == metric:
            runs.append(ComparedRun(record, folder))
        elif get_metric_key("validation", record.metric) == metric:
            runs.append(ComparedRun(record, folder, metric))
        else:
            raise DataError(f"{folder}: its result, {record.metric}, is not what the column shows")
    return runs


def summary(comparisons: Mapping[Place, Comparison], number: int) -> tuple[str, ...]:
    """Return notes that apply to all comparisons of a table."""
    if not comparisons:
        return ()
    reference = next(iter(comparisons.values())).reference
    plural = "s" if number > 1 else ""
    lines = [
        f"compared with {reference} by two-sided tests at {LEVEL:.0%}, Holm over {number} comparison{plural}"
    ]
    if not all(each.over_seeds for each in comparisons.values()):
        lines.append(
            "comparisons over examples are of two trained models: they know nothing of the spread of seeds,"
            " and another seed may turn them"
        )
    return tuple(lines)
