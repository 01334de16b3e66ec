"""A cell in words, before any renderer escapes or styles them."""

from dataclasses import dataclass

from msbench.reporting.render.digits import shown
from msbench.reporting.tables.cells import UNITS, Cell, ClaimVerdict, Column, Row, Table
from msbench.reporting.tables.judgement import Verdict

STATUS = {
    "missing": "--",
    "diverged": "div.",
    "out-of-memory": "OOM",
    "interrupted": "int.",
    "failed": "fail",
}
LEGEND = {
    "diverged": "div.: diverged, a loss or a parameter stopped being finite",
    "out-of-memory": "OOM: out of memory",
    "interrupted": "int.: interrupted, not resumed yet",
    "failed": "fail: the run failed",
}
VERDICTS: dict[Verdict | ClaimVerdict, str] = {
    "pass": "not below what was expected, less the margin",
    "improved": "above what was expected",
    "inconclusive": "the seeds do not decide yet",
    "fail": "below what was expected, less the margin",
    "chance-level": "not told from guessing",
    "trivial-rule": "not told from a trivial rule",
    "invalid": "no accuracy that can be",
    "other-data": "measured on other data than what was expected",
    "xfail": "below, as is known and expected",
    "diverged": "a loss or a parameter of a seed stopped being finite",
    "missing": "no result, or nothing to hold it against",
    "agrees": "above or below the base row as in the paper",
    "contradicts": "below the base row where the paper has it above, or the reverse",
    "undecided": "not told apart from the base row over seeds",
}
SAID_BY_CELL: tuple[Verdict, ...] = ("missing", "diverged")
"""Verdicts that are omitted for a cell without a mean, whose status implies them."""


@dataclass(frozen=True)
class Words:
    """The parts of a number: `value`, `sd` (empty where there is none), `count` such as (2/3), and marks.

    `verdict` is None where none was requested or the value implies it.
    """

    value: str
    sd: str = ""
    count: str = ""
    marks: tuple[str, ...] = ()
    best: bool = False
    verdict: Verdict | ClaimVerdict | None = None


def numbers(table: Table, row: Row) -> list[Words]:
    """Return the row's numbers in display order: for each column those of `table.kinds`."""
    show = {"reported": reported, "measured": measured}
    pairs = enumerate(zip(row.cells, table.columns, strict=True))
    return [show[kind](cell, column) for index, (cell, column) in pairs for kind in table.kinds[index]]


def reported(cell: Cell, _column: Column) -> Words:
    """Return the paper's value, or ``--``."""
    return Words(cell.reported or STATUS["missing"], cell.reported_sd, marks=cell.reported_marks)


def measured(cell: Cell, column: Column) -> Words:
    """Return the measured value, to the decimals that its spread allows, or the sign of its status."""
    verdict = verdict_of(cell)
    if cell.measured is None:
        said = None if verdict in SAID_BY_CELL else verdict
        return Words(STATUS[cell.status], marks=cell.marks, verdict=said)
    value, sd = shown(cell.measured, cell.sd, UNITS[column.unit].digits)
    count = f"({cell.n}/{cell.n_planned})" if cell.n < cell.n_planned else ""
    return Words(value, sd, count, cell.marks, cell.best, verdict)


def footnotes(table: Table, *, counts: bool = True) -> list[tuple[str, str]]:
    """Return mark and text of every line below the table: its notes, then the legend.

    `counts` is False if seeds are not shown as ``(2/3)``.
    """
    cells = [cell for row in table.rows for cell in row.cells]
    statuses = {cell.status for cell in cells}
    legend = [text for status, text in LEGEND.items() if status in statuses]
    fewer = sorted({(cell.n, cell.n_planned) for cell in cells if counts and 0 < cell.n < cell.n_planned})
    legend += [f"({n}/{planned}): the mean of {n} of {planned} seeds" for n, planned in fewer]
    return [*((note.mark, note.text) for note in table.notes), *(("", text) for text in legend)]


def verdict_of(cell: Cell) -> Verdict | ClaimVerdict | None:
    """Return the verdict on the cell: of the gate, or on a claim; a table has one kind."""
    given = cell.judgement or cell.standing
    return given.verdict if given else None


def verdicts(table: Table) -> list[tuple[Verdict | ClaimVerdict, str]]:
    """Return the verdicts that the table shows, and their meanings."""
    shown = {number.verdict for row in table.rows for number in numbers(table, row)}
    return [(verdict, meaning) for verdict, meaning in VERDICTS.items() if verdict in shown]
