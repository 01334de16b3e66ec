"""A cell in words, before any renderer escapes or styles them."""

from dataclasses import dataclass

from msbench.report.cells import UNITS, Cell, Column, Row, Table

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


@dataclass(frozen=True)
class Words:
    """The parts of a number: `value`, `sd` (empty where there is none), `count` such as (2/3), and marks."""

    value: str
    sd: str = ""
    count: str = ""
    marks: tuple[str, ...] = ()
    best: bool = False


def numbers(table: Table, row: Row) -> list[Words]:
    """The row's numbers in the order in which they are shown: for each column what `table.kinds` says."""
    show = {"reported": reported, "measured": measured}
    pairs = zip(row.cells, table.columns, strict=True)
    return [show[kind](cell, column) for cell, column in pairs for kind in table.kinds]


def reported(cell: Cell, _column: Column) -> Words:
    """What the paper prints, or ``--``."""
    return Words(cell.reported or STATUS["missing"], cell.reported_sd, marks=cell.reported_marks)


def measured(cell: Cell, column: Column) -> Words:
    """What was measured, to the decimals of the paper, or the mark of what came instead."""
    if cell.measured is None:
        return Words(STATUS[cell.status], marks=cell.marks)
    digits = UNITS[column.unit].digits
    count = f"({cell.n}/{cell.n_planned})" if cell.n < cell.n_planned else ""
    sd = "" if cell.sd is None else f"{cell.sd:.{digits}f}"
    return Words(f"{cell.measured:.{digits}f}", sd, count, cell.marks, cell.best)


def footnotes(table: Table) -> list[tuple[str, str]]:
    """Mark and text of every line below the table: its notes, then the legend of the states that it shows."""
    shown = {cell.status for row in table.rows for cell in row.cells}
    legend = [("", text) for status, text in LEGEND.items() if status in shown]
    return [*((note.mark, note.text) for note in table.notes), *legend]
