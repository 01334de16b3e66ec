"""Marking of the best measured cell of each column."""

from collections.abc import Sequence
from dataclasses import replace

from msbench.reporting.render.digits import decimals
from msbench.reporting.tables.cells import UNITS, Cell, Column, Row, Unit


def mark_best(rows: list[Row], columns: Sequence[Column]) -> list[Row]:
    """Return the rows with the best measured cell of each column marked, and all that print the same.

    Two cells are compared at the fewer of their decimals. A unit that is not ranked has no best.
    """
    best = [_best([row.cells[index] for row in rows], column) for index, column in enumerate(columns)]
    return [replace(row, cells=tuple(map(_marked, row.cells, columns, best))) for row in rows]


def _best(cells: Sequence[Cell], column: Column) -> Cell | None:
    if not UNITS[column.unit].ranked:
        return None
    return max((cell for cell in cells if cell.n), key=lambda cell: cell.measured or 0.0, default=None)


def _marked(cell: Cell, column: Column, top: Cell | None) -> Cell:
    return replace(cell, best=top is not None and bool(cell.n) and _same(cell, top, UNITS[column.unit]))


def _same(cell: Cell, top: Cell, unit: Unit) -> bool:
    digits = min(decimals(each.sd, unit.digits) for each in (cell, top))
    return f"{cell.measured or 0.0:.{digits}f}" == f"{top.measured or 0.0:.{digits}f}"
