"""The input of figures: the cells of a table with the records of their runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from msbench.reporting.figures.names import clean
from msbench.reporting.render.formatting import number_repeats
from msbench.reporting.tables.cells import UNITS, Cell, Column, Report, Table
from msbench.results.record import RunRecord

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Series:
    """One model on one task. `name` is its row's, numbered where rows of a table share one.

    `runs` are those behind the cell, none behind an average over tasks.
    """

    table: str
    name: str
    model: str
    column: Column
    cell: Cell
    runs: tuple[RunRecord, ...] = ()

    @property
    def shown(self) -> bool:
        """True if a figure may show it: not for trivial rules and numbers that are only reported."""
        return bool(self.cell.run_ids or (self.cell.reported and self.cell.measured is not None))

    @property
    def place(self) -> str:
        """The name of the series in notes."""
        return f"{clean(self.name)} on {clean(self.column.label)}"

    @property
    def scale(self) -> float:
        """The factor from the value in a record to the unit of the column."""
        return UNITS[self.column.unit].scale

    @property
    def metric(self) -> str:
        """The key of the result in a record."""
        return UNITS[self.column.unit].metric


def series_of(report: Report, table: Table) -> list[Series]:
    """Return every cell of the table, row by row."""
    names = number_repeats(row.name for row in table.rows)
    return [
        Series(table.id, name, row.model, column, row.cells[index], runs)
        for name, row in zip(names, table.rows, strict=True)
        for index, column in enumerate(table.columns)
        for runs in [() if column.of else report.list_runs(table, row, index)]
    ]


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group values by key, both in their order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
