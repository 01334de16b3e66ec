"""A table with a verdict in every cell that has an expectation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from msbench.gate.expectations import Expectations, Question
from msbench.gate.judge import crashed, judge
from msbench.reporting.tables.cells import MODIFIED_GROUP, RESULTS, UNITS, Cell, Column, Judgement, Row, Table


@dataclass(frozen=True)
class Judged:
    """One cell's verdict, with its suite, task and model.

    `crashed` counts the seeds whose run broke; `stale`: the results are of other source code than the present
    one.
    """

    suite: str
    task: str
    model: str
    judgement: Judgement
    crashed: int = 0
    stale: bool = False


def judged(table: Table, expectations: Expectations) -> Table:
    """Fill `Cell.judgement` of `table` wherever a model of the suite has an expectation."""
    rows = [
        replace(
            row,
            cells=tuple(
                _judged(cell, column, row, expectations)
                for cell, column in zip(row.cells, table.columns, strict=True)
            ),
        )
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows))


def judgements(table: Table) -> Iterator[Judged]:
    """Yield every verdict of a judged table, in the order of its tasks, each once."""
    cells = ((column, row, row.cells[at]) for at, column in enumerate(table.columns) for row in table.rows)
    found = (
        Judged(
            column.suite,
            column.task,
            row.model,
            cell.judgement,
            crashed(cell.evidence) if cell.evidence else 0,
            cell.evidence is not None and cell.evidence.stale,
        )
        for column, row, cell in cells
        if cell.judgement
    )
    yield from dict.fromkeys(found)


def _judged(cell: Cell, column: Column, row: Row, expectations: Expectations) -> Cell:
    unit = UNITS[column.unit]
    # Rows of trivial rules, and of models that nobody ran or planned, have no evidence.
    if cell.evidence is None or not cell.evidence.n_planned:
        return cell
    if unit.metric not in RESULTS or row.group == MODIFIED_GROUP:
        return cell
    question = Question(
        column.suite, column.task, row.model, cell.evidence, cell.reported, unit.scale, unit.metric
    )
    found = expectations.of(question)
    if found is None or isinstance(found, Judgement):
        return replace(cell, judgement=found)
    return replace(cell, judgement=judge(cell.evidence, found))
