"""The texts of numbers, notes, verdicts and names, before any renderer escapes or styles them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from msbench.reporting.tables.cells import UNITS, Cell, ClaimVerdict, Column, Row, Table, Verdict

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
    "chance-level": "not distinguishable from guessing",
    "trivial-rule": "not distinguishable from a trivial rule",
    "invalid": "not a possible accuracy",
    "other-data": "measured on other data than what was expected",
    "xfail": "below, as known and expected",
    "diverged": "a loss or a parameter of a seed stopped being finite",
    "missing": "no result, or nothing to compare it with",
    "agrees": "above or below the base row as in the paper",
    "contradicts": "below the base row where the paper has it above, or the reverse",
    "undecided": "not distinguishable from the base row over seeds",
}
IMPLIED_BY_STATUS: tuple[Verdict, ...] = ("missing", "diverged")
"""Verdicts that are omitted for a cell without a mean, whose status implies them."""


@dataclass(frozen=True)
class FormattedNumber:
    """The parts of a number: `value`, `sd` (empty where there is none), `count` such as (2/3), and marks.

    `verdict` is None where none was requested or the value implies it.
    """

    value: str
    sd: str = ""
    count: str = ""
    marks: tuple[str, ...] = ()
    best: bool = False
    verdict: Verdict | ClaimVerdict | None = None


def format_row(table: Table, row: Row) -> list[FormattedNumber]:
    """Return the row's numbers in display order: for each column those of `table.kinds`."""
    numbers = []
    for cell, column, kinds in zip(row.cells, table.columns, table.kinds, strict=True):
        if "reported" in kinds:
            value, marks = cell.reported or STATUS["missing"], table.mark(cell.reported_notes)
            numbers.append(FormattedNumber(value, cell.reported_sd, marks=marks))
        numbers.append(replace(format_measured(cell, column), marks=table.mark(cell.notes)))
    return numbers


def format_measured(cell: Cell, column: Column) -> FormattedNumber:
    """Return the measured value, to the decimals that its spread allows, or the sign of its status."""
    verdict = find_verdict(cell)
    if cell.measured is None:
        shown = None if verdict in IMPLIED_BY_STATUS else verdict
        return FormattedNumber(STATUS[cell.status], verdict=shown)
    value, sd = UNITS[column.unit].format_mean(cell.measured, cell.sd)
    count = f"({cell.n}/{cell.n_planned})" if cell.n < cell.n_planned else ""
    return FormattedNumber(value, sd, count, best=cell.best, verdict=verdict)


def list_footnotes(table: Table, *, counts: bool = True) -> list[tuple[str, str]]:
    """Return mark and text of every line below the table: its notes, then the legend.

    `counts` is False if seeds are not shown as ``(2/3)``.
    """
    cells = [cell for row in table.rows for cell in row.cells]
    statuses = {cell.status for cell in cells}
    legend = [text for status, text in LEGEND.items() if status in statuses]
    fewer = sorted({(cell.n, cell.n_planned) for cell in cells if counts and 0 < cell.n < cell.n_planned})
    legend += [f"({n}/{planned}): the mean of {n} of {planned} seeds" for n, planned in fewer]
    return [*table.footnotes, *(("", text) for text in legend)]


def find_verdict(cell: Cell) -> Verdict | ClaimVerdict | None:
    """Return the verdict on the cell: of the gate, or on a claim; a table has one kind."""
    given = cell.judgement or cell.standing
    return given.verdict if given else None


def list_verdicts(table: Table) -> list[tuple[Verdict | ClaimVerdict, str]]:
    """Return the verdicts that the table shows, and their meanings."""
    shown = {number.verdict for row in table.rows for number in format_row(table, row)}
    return [(verdict, meaning) for verdict, meaning in VERDICTS.items() if verdict in shown]


def make_safe(text: str) -> str:
    """Return `text` with hyphens for characters that are unsafe in a file name or an HTML id."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


def make_stem(text: str) -> str:
    """Return the id of a table as the name of its files, without a suffix."""
    return make_safe(text).strip("-") or "table"


def number_repeats(texts: Iterable[str], pattern: str = "{} ({})") -> list[str]:
    """Return the texts in the same order, all different: repeated ones are numbered by `pattern`."""
    taken: set[str] = set()
    found = []
    for text in texts:
        number, candidate = 1, text
        while candidate in taken:
            number += 1
            candidate = pattern.format(text, number)
        taken.add(candidate)
        found.append(candidate)
    return found
