"""The input of figures: the cells of a table with the records of their runs, and names as drawn."""

import textwrap
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from msbench.reporting.render.formatting import number_repeats
from msbench.reporting.tables.cells import UNITS, Cell, Column, Report, Table
from msbench.results.record import RunRecord

Key = TypeVar("Key")
Value = TypeVar("Value")
LONGEST = 34
"""The most characters of a name in a legend, which is as wide as a column of a paper."""


@dataclass(frozen=True)
class FigureRow:
    """The first columns of the CSV of a figure: a model on a task, with the label and unit of its column."""

    table: str
    task: str
    label: str
    unit: str
    name: str
    model: str


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
    def is_drawable(self) -> bool:
        """True if a figure may show it: not for trivial rules and numbers that are only reported."""
        return bool(self.cell.run_ids or (self.cell.reported and self.cell.measured is not None))

    @property
    def labels(self) -> tuple[str, str, str, str, str, str]:
        """The values of the fields of a `FigureRow`."""
        column = self.column
        return self.table, column.task, column.label, column.unit, self.name, self.model

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


def collect_series(report: Report, table: Table) -> list[Series]:
    """Return every cell of the table, row by row."""
    names = number_repeats(row.name for row in table.rows)
    return [
        Series(table.id, name, row.model, column, row.cells[index], runs)
        for name, row in zip(names, table.rows, strict=True)
        for index, column in enumerate(table.columns)
        for runs in [() if column.of else report.list_runs(table, row, index)]
    ]


def group(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Group values by key, both in their order."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def clean(text: str) -> str:
    """Return one line without control characters and lone surrogates, which SVG and fonts cannot hold."""
    kept = (" " if unicodedata.category(mark).startswith("C") else mark for mark in text)
    return " ".join("".join(kept).split()) or "(no name)"


def shorten(text: str, longest: int = LONGEST) -> str:
    """Apply `clean` and shorten with an ellipsis in the middle, as names often differ at their ends."""
    line = clean(text)
    if len(line) <= longest:
        return line
    head = (longest - 1) * 2 // 3
    return f"{line[:head]}…{line[head + 1 - longest :]}"


def fold(text: str, width: int, lines: int = 2) -> str:
    """Apply `shorten` to about `lines` lines of `width` characters, and wrap to those."""
    # A word that does not fit leaves the end of its line empty, so keep a margin of a few characters.
    short = shorten(text, lines * width - width // 3)
    return "\n".join(textwrap.wrap(short, width, max_lines=lines, placeholder="…"))


def name_in_legend(names: Iterable[str]) -> dict[str, str]:
    """Return the legend entry of each name; all are distinct."""
    each = list(dict.fromkeys(names))
    return dict(zip(each, number_repeats(map(shorten, each)), strict=True))
