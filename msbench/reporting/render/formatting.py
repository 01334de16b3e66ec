"""The texts of numbers, notes, verdicts and names, before any renderer escapes or styles them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple

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
Tone = Literal["good", "bad", "unsure", "absent"]


class VerdictStyle(NamedTuple):
    """The meaning of a verdict, its sign in LaTeX, which needs no package, and its tone and shape on a page.

    `shape` is the id of a symbol of the page, without its prefix: none is shown by colour alone.
    """

    meaning: str
    sign: str
    tone: Tone
    shape: str


VERDICTS: dict[Verdict | ClaimVerdict, VerdictStyle] = {
    "pass": VerdictStyle("not below what was expected, less the margin", r"$\bullet$", "good", "tick"),
    "improved": VerdictStyle("above what was expected", r"$\uparrow$", "good", "up"),
    "inconclusive": VerdictStyle("the seeds do not decide yet", "?", "unsure", "question"),
    "fail": VerdictStyle("below what was expected, less the margin", r"$\times$", "bad", "cross"),
    "chance-level": VerdictStyle("not distinguishable from guessing", r"$\circ$", "bad", "dice"),
    "trivial-rule": VerdictStyle("not distinguishable from a trivial rule", r"$\diamond$", "bad", "equals"),
    "invalid": VerdictStyle("not a possible accuracy", "!", "bad", "bar"),
    "other-data": VerdictStyle("measured on other data than what was expected", r"$\neq$", "unsure", "pair"),
    "xfail": VerdictStyle("below, as known and expected", r"($\times$)", "absent", "known"),
    "diverged": VerdictStyle(
        "a loss or a parameter of a seed stopped being finite", r"$\infty$", "bad", "burst"
    ),
    "missing": VerdictStyle("no result, or nothing to compare it with", r"$\emptyset$", "absent", "ring"),
    "agrees": VerdictStyle("above or below the base row as in the paper", r"$\oplus$", "good", "same-order"),
    "contradicts": VerdictStyle(
        "below the base row where the paper has it above, or the reverse", r"$\ominus$", "bad", "other-order"
    ),
    "undecided": VerdictStyle(
        "not distinguishable from the base row over seeds", r"$\approx$", "unsure", "wave"
    ),
}
IMPLIED_BY_STATUS: tuple[Verdict, ...] = ("missing", "diverged")
"""Verdicts that are omitted for a cell without a mean, whose status implies them."""


@dataclass(frozen=True)
class FormattedNumber:
    """The parts of a number: `value`, `sd` (empty where there is none), `count` such as (2/3), and marks.

    `interval` is that of the value, such as 51.3–57.1, where it is shown instead of the sd. `verdict` is None
    where none was requested or the value implies it.
    """

    value: str
    sd: str = ""
    count: str = ""
    marks: tuple[str, ...] = ()
    best: bool = False
    verdict: Verdict | ClaimVerdict | None = None
    interval: str = ""


def format_row(table: Table, row: Row) -> list[list[FormattedNumber]]:
    """Return the row's numbers: for each column those of `table.kinds`."""
    columns = []
    for cell, column, kinds in zip(row.cells, table.columns, table.kinds, strict=True):
        numbers = [replace(format_measured(cell, column), marks=table.mark(cell.notes))]
        if "reported" in kinds:
            value, marks = cell.reported or STATUS["missing"], table.mark(cell.reported_notes)
            numbers.insert(0, FormattedNumber(value, cell.reported_sd, marks=marks))
        columns.append(numbers)
    return columns


def format_measured(cell: Cell, column: Column) -> FormattedNumber:
    """Return the measured value, to the decimals that its spread allows, or the sign of its status."""
    verdict = find_verdict(cell)
    if cell.measured is None:
        shown = None if verdict in IMPLIED_BY_STATUS else verdict
        return FormattedNumber(STATUS[cell.status], verdict=shown)
    unit, ends = UNITS[column.unit], cell.interval
    spread = (ends[1] - ends[0]) / 2 if ends else cell.sd
    value, sd = unit.format_mean(cell.measured, spread)
    count = f"({cell.n}/{cell.n_planned})" if cell.n < cell.n_planned else ""
    number = FormattedNumber(value, sd, count, best=cell.best, verdict=verdict)
    if ends is None:
        return number
    texts = [unit.format_mean(end, spread)[0] for end in ends]
    # A dash between signed numbers would be read as another sign.
    return replace(number, sd="", interval=(" to " if unit.signed else "–").join(texts))


def list_footnotes(table: Table, *, counts: bool = True) -> list[tuple[str, str]]:
    """Return mark and text of every line below the table: its notes, then the legend.

    `counts` is False if seeds are not shown as ``(2/3)``.
    """
    cells = [cell for row in table.rows for cell in row.cells]
    statuses = {cell.status for cell in cells}
    legend = [text for status, text in LEGEND.items() if status in statuses]
    fewer = sorted({(cell.n, cell.n_planned) for cell in cells if counts and 0 < cell.n < cell.n_planned})
    if len(fewer) > 1:
        return [*table.footnotes, *(("", text) for text in (*legend, "(k/n): the mean of k of n seeds"))]
    legend += [f"({n}/{planned}): the mean of {n} of {planned} seeds" for n, planned in fewer]
    return [*table.footnotes, *(("", text) for text in legend)]


def find_verdict(cell: Cell) -> Verdict | ClaimVerdict | None:
    """Return the verdict on the cell: of the gate, or on a claim; a table has one kind."""
    given = cell.judgement or cell.standing
    return given.verdict if given else None


def list_verdicts(table: Table) -> list[tuple[Verdict | ClaimVerdict, VerdictStyle]]:
    """Return the verdicts that the table shows, and how they are shown."""
    numbers = chain.from_iterable(chain.from_iterable(format_row(table, row) for row in table.rows))
    shown = {number.verdict for number in numbers}
    return [(verdict, style) for verdict, style in VERDICTS.items() if verdict in shown]


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
