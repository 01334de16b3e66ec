"""A table as the template shows it: rows in groups, and cells with the runs behind them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import make_stem, number_repeats
from msbench.reporting.render.html.runs import GatheredRuns, get_run_key
from msbench.reporting.tables.cells import (
    UNITS,
    Cell,
    ClaimVerdict,
    Column,
    Judgement,
    Report,
    Row,
    Table,
    Verdict,
)


@dataclass(frozen=True)
class EvidenceView:
    """A cell with its place and its runs; `anchor` is the id of its evidence.

    `runs` are their names, values and the ids of their sections, empty for runs without one.
    """

    anchor: str
    row: Row
    column: Column
    cell: Cell
    runs: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class TableView:
    """A `Table`, ready to be shown. `anchor` begins every id of it, and `evidence` is that of its cells."""

    anchor: str
    table: Table
    evidence: tuple[EvidenceView, ...]

    @property
    def groups(self) -> list[tuple[str, list[tuple[int, Row]]]]:
        """Groups of rows under a common heading, which may be empty; rows with their number, from 1."""
        grouped = groupby(enumerate(self.table.rows, 1), key=lambda pair: pair[1].group)
        return [(name, list(rows)) for name, rows in grouped]


def view_tables(report: Report, gathered: GatheredRuns) -> list[TableView]:
    """Return the views of the tables, with ids ``table-<suite>``; `gathered` runs have sections."""
    anchors = number_repeats((f"table-{make_stem(table.id)}" for table in report.tables), "{}.{}")
    return [
        TableView(anchor, table, tuple(_list_evidence(report, table, anchor, gathered)))
        for table, anchor in zip(report.tables, anchors, strict=True)
    ]


def count_verdicts(tables: Iterable[Table]) -> list[tuple[Verdict | ClaimVerdict, int]]:
    """Return the number of cells with each verdict, in the order of `formatting.VERDICTS`, without zeros."""
    cells = (cell for table in tables for row in table.rows for cell in row.cells)
    found = Counter(map(formatting.find_verdict, cells))
    return [(verdict, found[verdict]) for verdict in formatting.VERDICTS if found[verdict]]


def format_seeds(cell: Cell) -> str:
    """Return text such as ``3 seeds``, or ``2 of 3 seeds`` where some planned ones have no result."""
    if not cell.n:
        return ""
    count = f"{cell.n} of {cell.n_planned}" if cell.n < cell.n_planned else f"{cell.n}"
    return f"{count} seed{'' if count == '1' else 's'}"


def _list_evidence(
    report: Report, table: Table, anchor: str, gathered: GatheredRuns
) -> Iterator[EvidenceView]:
    """Yield the evidence of each cell that has runs or a verdict of the gate."""
    for at, row in enumerate(table.rows, 1):
        for index, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if cell.run_ids or cell.judgement is not None:
                runs = tuple(_list_runs(report, table, row, index, gathered))
                yield EvidenceView(f"{anchor}.cell-{at}-{index + 1}", row, column, cell, runs)


def _format_rate(value: float | None, column: Column) -> str:
    """Return a fraction in the unit of the column; empty for None."""
    unit = UNITS[column.unit]
    return "" if value is None else f"{value * unit.scale:.{unit.digits}f}"


def format_difference(cell: Cell, column: Column) -> str:
    """Return measured - reported as text with a sign; empty where either is missing."""
    if cell.measured is None or not cell.reported:
        return ""
    difference = cell.measured - float(cell.reported)
    return f"{difference:+.{UNITS[column.unit].digits}f}".replace("-", "−")


def format_expected(judgement: Judgement, column: Column) -> str:
    """Return what was expected and its margin, in the unit of the column."""
    expected, margin = _format_rate(judgement.expected, column), _format_rate(judgement.margin, column)
    return f"{expected} − {margin}" if expected and margin else expected


def format_interval(judgement: Judgement, column: Column) -> str:
    """Return the bounds of the mean, in the unit of the column; empty where it has none."""
    low, high = _format_rate(judgement.low, column), _format_rate(judgement.high, column)
    return f"{low or '−∞'} to {high or '∞'}" if low or high else ""


def _list_runs(
    report: Report, table: Table, row: Row, index: int, gathered: GatheredRuns
) -> Iterator[tuple[str, str, str]]:
    """Yield the runs of a cell, then ids without a record."""
    column, records = table.columns[index], report.list_runs(table, row, index)
    for record in records:
        run = gathered.runs.get(get_run_key(record))
        value = record.metrics.get(UNITS[column.unit].metric)
        where = f"{record.task}, seed" if len(column.places) > 1 else "seed"
        shown = _format_rate(value, column) if record.finished else record.status
        yield f"{where} {record.seed}", shown, run.anchor if run else ""
    known = {record.run_id for record in records}
    yield from ((identity, "", "") for identity in row.cells[index].run_ids if identity not in known)
