"""A table as the template shows it: rows in groups, numbers with links, cells with their evidence."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import FormattedNumber, make_stem, number_repeats
from msbench.reporting.render.html.gather import Gathered, key
from msbench.reporting.render.html.verdicts import count
from msbench.reporting.tables.cells import (
    UNITS,
    Cell,
    ClaimStanding,
    ClaimVerdict,
    Column,
    Judgement,
    Report,
    Row,
    Table,
    Verdict,
)
from msbench.results.record import RunRecord


@dataclass(frozen=True)
class Number:
    """A number of the table; `link` is the id of its evidence, empty where it has none.

    `marks` are pairs of a mark and the id of its note. `state` is ``reported``, or the status of the cell.
    """

    words: FormattedNumber
    state: str
    link: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    verdict: Verdict | ClaimVerdict | None = None
    seeds: str = ""
    """The number of seeds in the mean, and of planned seeds."""
    rests: bool = False
    """True where runs are behind it."""
    first: bool = False
    """True for the first number of a column."""


@dataclass(frozen=True)
class RowGroup:
    """Rows under a common heading, which may be empty: pairs of a name and its numbers."""

    name: str
    rows: tuple[tuple[str, tuple[Number, ...]], ...]


@dataclass(frozen=True)
class RunOfCell:
    """A run behind a cell: its `name` and `value` as texts, and the id of its section, if it has one."""

    name: str
    value: str
    link: str = ""


@dataclass(frozen=True)
class EvidenceView:
    """The evidence of a cell, in the unit of its column: its runs, the test, and the verdict."""

    anchor: str
    row: str
    column: str
    measured: str
    reported: str
    difference: str
    runs: tuple[RunOfCell, ...]
    judgement: Judgement | None = None
    standing: ClaimStanding | None = None
    expected: str = ""
    interval: str = ""


@dataclass(frozen=True)
class TableView:
    """A `Table`, ready to be shown. `anchor` begins every id of it; `width` counts its columns of numbers."""

    anchor: str
    table: Table
    verdicts: Sequence[tuple[Verdict | ClaimVerdict, int]]
    groups: tuple[RowGroup, ...]
    notes: tuple[tuple[str, str, str], ...]
    """Id (empty for those without a mark), mark and text."""
    evidence: tuple[EvidenceView, ...]
    sources: tuple[tuple[str, str], ...]

    @property
    def width(self) -> int:
        """The number of columns of numbers."""
        return sum(map(len, self.table.kinds))

    @property
    def reported(self) -> bool:
        """True where some measured cell has a reported number to compare with."""
        return any(each.reported for each in self.evidence)

    @property
    def claims(self) -> bool:
        """True where verdicts are on claims of the paper, not the gate's."""
        return any(each.standing for each in self.evidence)

    @property
    def judged(self) -> bool:
        """True where some cell has a verdict."""
        return bool(self.verdicts)


def table_view(report: Report, table: Table, anchor: str, gathered: Gathered) -> TableView:
    """Return the view of a table, its ids prefixed with `anchor`; `gathered` runs have sections."""
    found = formatting.list_footnotes(table, counts=False)
    notes = tuple((_note(anchor, mark) if mark else "", mark, text) for mark, text in found)
    groups = [
        RowGroup(name, tuple((row.name, _numbers(table, at, row, anchor)) for at, row in rows))
        for name, rows in groupby(enumerate(table.rows), key=lambda pair: pair[1].group)
    ]
    sources = tuple((row.name, row.provenance) for row in table.rows if row.provenance)
    evidence = tuple(_evidence(report, table, anchor, gathered))
    return TableView(anchor, table, count([table]), tuple(groups), notes, evidence, sources)


def anchors(tables: Sequence[Table]) -> list[str]:
    """Return an id for each table, ``table-<suite>``, numbered where two would be equal."""
    return number_repeats((f"table-{make_stem(table.id)}" for table in tables), "{}.{}")


def _note(anchor: str, mark: str) -> str:
    return f"{anchor}.note-{mark}"


def _cell(anchor: str, row: int, column: int) -> str:
    return f"{anchor}.cell-{row + 1}-{column + 1}"


def _numbers(table: Table, at: int, row: Row, anchor: str) -> tuple[Number, ...]:
    """Return the numbers of row `at`, in display order."""
    shown = iter(formatting.format_row(table, row))
    numbers = []
    for column, (cell, kinds) in enumerate(zip(row.cells, table.kinds, strict=True)):
        for kind in kinds:
            said, first = next(shown), kind == kinds[0]
            marks = tuple((mark, _note(anchor, mark)) for mark in said.marks)
            if kind == "reported":
                numbers.append(Number(said, kind, marks=marks, first=first))
            else:
                measured = _measured(said, cell, _cell(anchor, at, column))
                numbers.append(replace(measured, marks=marks, first=first))
    return tuple(numbers)


def _measured(said: FormattedNumber, cell: Cell, link: str) -> Number:
    return Number(
        words=said,
        state=cell.status,
        link=link if _shown_below(cell) else "",
        verdict=formatting.find_verdict(cell),
        seeds=_seeds(cell),
        rests=bool(cell.run_ids),
    )


def _seeds(cell: Cell) -> str:
    """Return text such as ``3 seeds``, or ``2 of 3 seeds`` where some planned ones have no result."""
    if not cell.n:
        return ""
    count = f"{cell.n} of {cell.n_planned}" if cell.n < cell.n_planned else f"{cell.n}"
    return f"{count} seed{'' if count == '1' else 's'}"


def _shown_below(cell: Cell) -> bool:
    """Return True for a cell that has a row of evidence."""
    return bool(cell.run_ids) or cell.judgement is not None


def _evidence(report: Report, table: Table, anchor: str, gathered: Gathered) -> Iterator[EvidenceView]:
    for at, row in enumerate(table.rows):
        for index, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if _shown_below(cell):
                runs = tuple(_runs(cell, report.list_runs(table, row, index), column, gathered))
                yield _of_cell(cell, column, row.name, _cell(anchor, at, index), runs)


def _of_cell(cell: Cell, column: Column, name: str, anchor: str, runs: tuple[RunOfCell, ...]) -> EvidenceView:
    said, judgement, shown = formatting.format_measured(cell, column), cell.judgement, _shown(column)
    expected = shown(judgement.expected) if judgement else ""
    if judgement and expected and judgement.margin is not None:
        expected += f" − {shown(judgement.margin)}"
    return EvidenceView(
        anchor=anchor,
        row=name,
        column=column.label,
        measured=" ± ".join(filter(None, (said.value, said.sd))),
        reported=" ± ".join(filter(None, (cell.reported, cell.reported_sd))),
        difference=_difference(cell, column),
        runs=runs,
        judgement=judgement,
        standing=cell.standing,
        expected=expected,
        interval=_interval(judgement, shown) if judgement else "",
    )


def _shown(column: Column) -> Callable[[float | None], str]:
    """Return a function from a fraction to its text in the unit of the column; empty for None."""
    unit = UNITS[column.unit]
    return lambda value: "" if value is None else f"{value * unit.scale:.{unit.digits}f}"


def _difference(cell: Cell, column: Column) -> str:
    """Return measured - reported as text with a sign; empty where either is missing."""
    if cell.measured is None or not cell.reported:
        return ""
    difference = cell.measured - float(cell.reported)
    return f"{difference:+.{UNITS[column.unit].digits}f}".replace("-", "−")


def _interval(judgement: Judgement, shown: Callable[[float | None], str]) -> str:
    low, high = shown(judgement.low), shown(judgement.high)
    return f"{low or '−∞'} to {high or '∞'}" if low or high else ""


def _runs(
    cell: Cell, records: Sequence[RunRecord], column: Column, gathered: Gathered
) -> Iterator[RunOfCell]:
    """Yield the runs of a cell, then ids without a record."""
    shown, metric = _shown(column), UNITS[column.unit].metric
    for record in records:
        run = gathered.runs.get(key(record))
        value = shown(record.metrics.get(metric)) if record.finished else record.status
        where = f"{record.task}, seed" if len(column.places) > 1 else "seed"
        yield RunOfCell(f"{where} {record.seed}", value, run.anchor if run else "")
    known = {record.run_id for record in records}
    yield from (RunOfCell(identity, "") for identity in cell.run_ids if identity not in known)
