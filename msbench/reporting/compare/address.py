"""Lookup of a table's cell by ``TABLE:ROW:COLUMN``, tolerant of case and of alternative names."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msbench.errors import ConfigError, UnknownName
from msbench.reporting.tables.cells import Cell, Column, Report, Row, Table
from msbench.reporting.tables.load import ReportOptions, load_report

T = TypeVar("T")
FORM = "TABLE:ROW:COLUMN, or TABLE ROW COLUMN where a name has a colon in it"


@dataclass(frozen=True)
class CellAddress:
    """A cell: its table, its row, and the number of its column; `name` is the table's name as typed."""

    name: str
    report: Report
    table: Table
    row: Row
    number: int

    @property
    def column(self) -> Column:
        """The column of the cell."""
        return self.table.columns[self.number]

    @property
    def cell(self) -> Cell:
        """The cell itself."""
        return self.row.cells[self.number]


def split(words: Sequence[str]) -> tuple[str, str, str]:
    """Split one word with colons, or two or three words, into table, row and column (may be empty).

    Raises ConfigError for anything else.
    """
    parts = words[0].split(":") if len(words) == 1 else list(words)
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(f"{' '.join(words)!r} is no cell: name it as {FORM}")
    return parts[0], parts[1], parts[2] if len(parts) == 3 else ""


def locate(words: Sequence[str], results: Path) -> CellAddress:
    """Find the cell that `words` name: a table of ``msbench report``, a row or model, a heading or task.

    The column may be omitted where there is only one. Raises UnknownName, which suggests a similar name, and
    ConfigError where the name is ambiguous.
    """
    name, row, column = split(words)
    found = load_report(ReportOptions(names=[name], results=results, claims=False))
    if len(found.tables) > 1:
        raise ConfigError(f"{name!r} is more than one table: {', '.join(each.id for each in found.tables)}")
    (table,) = found.tables
    return CellAddress(name, found, table, _row(table, row), _column(table, column))


def _row(table: Table, name: str) -> Row:
    return _named("row", name, table, table.rows, [lambda row: row.name, lambda row: row.model])


def _column(table: Table, name: str) -> int:
    columns = range(len(table.columns))
    if not name:
        if len(columns) > 1:
            listed = ", ".join(column.label for column in table.columns)
            raise ConfigError(f"table {table.id} has more than one column; name one of {listed}")
        return 0
    names: list[Callable[[int], str]] = [
        lambda number: table.columns[number].label,
        lambda number: table.columns[number].task,
    ]
    return _named("column", name, table, columns, names)


def _plain(name: str) -> str:
    """Return only letters and digits, in lower case: avg finds AVG., and pathx Path-X."""
    return "".join(filter(str.isalnum, name.casefold()))


def _named(kind: str, name: str, table: Table, among: Iterable[T], names: Sequence[Callable[[T], str]]) -> T:
    """Return the item of this name: exact matches before similar ones, earlier `names` before later."""
    listed = list(among)
    for same in (str, str.casefold, _plain):
        for named in names:
            found = [each for each in listed if named(each) and same(named(each)) == same(name)]
            if len(found) > 1:
                raise ConfigError(
                    f"table {table.id}: {kind} {name!r} is more than one: {', '.join(map(names[0], found))}"
                )
            if found:
                return found[0]
    known = {named(each) for each in listed for named in names} - {""}
    raise UnknownName(kind, name, known, f"table {table.id}")
