"""Which measured cell of a column is the best."""

from collections.abc import Sequence
from dataclasses import replace

from msbench.report.cells import UNITS, Cell, Column, Row


def mark_best(rows: list[Row], columns: Sequence[Column]) -> list[Row]:
    """The rows, with the best measured cell of each column marked, and all that print the same."""
    best: list[float | None] = []
    for index, column in enumerate(columns):
        digits = UNITS[column.unit].digits
        shown = [round(row.cells[index].measured or 0.0, digits) for row in rows if row.cells[index].n]
        best.append(max(shown, default=None))
    return [replace(row, cells=_marked(row.cells, columns, best)) for row in rows]


def _marked(
    cells: Sequence[Cell], columns: Sequence[Column], best: Sequence[float | None]
) -> tuple[Cell, ...]:
    return tuple(
        replace(
            cell,
            best=bool(cell.n)
            and cell.measured is not None
            and round(cell.measured, UNITS[column.unit].digits) == top,
        )
        for cell, column, top in zip(cells, columns, best, strict=True)
    )
