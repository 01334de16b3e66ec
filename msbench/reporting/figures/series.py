"""What figures are made of: the cells of a table with the records of their runs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from msbench.reporting.figures.names import clean
from msbench.reporting.tables.cells import UNITS, Cell, Column, Table
from msbench.reporting.tables.load import Report
from msbench.reporting.tables.names import unique
from msbench.results.store import RunRecord

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True)
class Series:
    """One model on one task. `name` is its row's; where rows of a table share one, the later have a number.

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
        """Whether any figure may show it: trivial rules, and numbers that are reported alone, are in none."""
        return bool(self.cell.run_ids or (self.cell.reported and self.cell.measured is not None))

    @property
    def place(self) -> str:
        """What a note calls it."""
        return f"{clean(self.name)} on {clean(self.column.label)}"

    @property
    def scale(self) -> float:
        """From what a record holds to the unit of the column."""
        return UNITS[self.column.unit].scale

    @property
    def metric(self) -> str:
        """What the result is called in a record."""
        return UNITS[self.column.unit].metric


def series_of(report: Report, table: Table) -> list[Series]:
    """Every cell of the table, row by row."""
    names = unique(row.name for row in table.rows)
    return [
        Series(table.id, name, row.model, column, row.cells[index], runs)
        for name, row in zip(names, table.rows, strict=True)
        for index, column in enumerate(table.columns)
        for runs in [() if column.of else report.behind(table, row, index)]
    ]


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Values by key, both in their order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
