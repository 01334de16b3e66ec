"""A table as the template shows it: rows in groups, numbers with links, cells with their evidence."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import FormattedNumber, make_stem, number_repeats
from msbench.reporting.render.html.runs import GatheredRuns, get_run_key
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

Tone = Literal["good", "bad", "unsure", "absent"]


@dataclass(frozen=True)
class VerdictStyle:
    """The tone and the shape of a verdict, so that none is shown by colour alone.

    `shape` is the id of a symbol of the page, without its prefix.
    """

    tone: Tone
    shape: str


VERDICT_STYLES: Mapping[Verdict | ClaimVerdict, VerdictStyle] = {
    "pass": VerdictStyle("good", "tick"),
    "improved": VerdictStyle("good", "up"),
    "inconclusive": VerdictStyle("unsure", "question"),
    "fail": VerdictStyle("bad", "cross"),
    "chance-level": VerdictStyle("bad", "dice"),
    "trivial-rule": VerdictStyle("bad", "equals"),
    "diverged": VerdictStyle("bad", "burst"),
    "missing": VerdictStyle("absent", "ring"),
    "invalid": VerdictStyle("bad", "bar"),
    "other-data": VerdictStyle("unsure", "pair"),
    "xfail": VerdictStyle("absent", "known"),
    "agrees": VerdictStyle("good", "same-order"),
    "contradicts": VerdictStyle("bad", "other-order"),
    "undecided": VerdictStyle("unsure", "wave"),
}


@dataclass(frozen=True)
class LinkedNumber:
    """A number of the table; `link` is the id of its evidence, empty where it has none.

    `marks` are pairs of a mark and the id of its note. `state` is ``reported``, or the status of the cell.
    `seeds` is the number of seeds in the mean, and of planned seeds. `has_runs` is True where runs are behind
    it, and `first` for the first number of a column.
    """

    formatted: FormattedNumber
    state: str
    marks: tuple[tuple[str, str], ...]
    first: bool
    link: str = ""
    verdict: Verdict | ClaimVerdict | None = None
    seeds: str = ""
    has_runs: bool = False


@dataclass(frozen=True)
class RowGroup:
    """Rows under a common heading, which may be empty: pairs of a name and its numbers."""

    name: str
    rows: tuple[tuple[str, tuple[LinkedNumber, ...]], ...]


@dataclass(frozen=True)
class EvidenceView:
    """The evidence of a cell, in the unit of its column: its runs, the test, and the verdict.

    `runs` are their names, values and the ids of their sections, empty for runs without one.
    """

    anchor: str
    row: str
    column: str
    measured: str
    reported: str
    difference: str
    runs: tuple[tuple[str, str, str], ...]
    judgement: Judgement | None
    standing: ClaimStanding | None
    expected: str
    interval: str


@dataclass(frozen=True)
class TableView:
    """A `Table`, ready to be shown. `anchor` begins every id of it.

    `notes` are id (empty for those without a mark), mark and text.
    """

    anchor: str
    table: Table
    verdicts: Sequence[tuple[Verdict | ClaimVerdict, int]]
    groups: tuple[RowGroup, ...]
    notes: tuple[tuple[str, str, str], ...]
    evidence: tuple[EvidenceView, ...]

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


def view_tables(report: Report, gathered: GatheredRuns) -> list[TableView]:
    """Return the views of the tables, with ids ``table-<suite>``; `gathered` runs have sections."""
    anchors = number_repeats((f"table-{make_stem(table.id)}" for table in report.tables), "{}.{}")
    return [
        TableView(
            anchor,
            table,
            count_verdicts([table]),
            tuple(
                RowGroup(
                    name, tuple((row.name, tuple(_link_row(table, at, row, anchor))) for at, row in rows)
                )
                for name, rows in groupby(enumerate(table.rows), key=lambda pair: pair[1].group)
            ),
            tuple(
                (_note_id(anchor, mark) if mark else "", mark, text)
                for mark, text in formatting.list_footnotes(table, counts=False)
            ),
            tuple(_list_evidence(report, table, anchor, gathered)),
        )
        for table, anchor in zip(report.tables, anchors, strict=True)
    ]


def count_verdicts(tables: Iterable[Table]) -> list[tuple[Verdict | ClaimVerdict, int]]:
    """Return the number of cells with each verdict, in the order of `VERDICT_STYLES`, without zeros."""
    cells = (cell for table in tables for row in table.rows for cell in row.cells)
    found = Counter(map(formatting.find_verdict, cells))
    return [(verdict, found[verdict]) for verdict in VERDICT_STYLES if found[verdict]]


def _note_id(anchor: str, mark: str) -> str:
    return f"{anchor}.note-{mark}"


def _cell_id(anchor: str, row: int, column: int) -> str:
    return f"{anchor}.cell-{row + 1}-{column + 1}"


def _link_row(table: Table, at: int, row: Row, anchor: str) -> Iterator[LinkedNumber]:
    """Yield the numbers of row `at`, in display order."""
    numbers = iter(formatting.format_row(table, row))
    for column, (cell, kinds) in enumerate(zip(row.cells, table.kinds, strict=True)):
        for kind in kinds:
            number, first = next(numbers), kind == kinds[0]
            marks = tuple((mark, _note_id(anchor, mark)) for mark in number.marks)
            if kind == "reported":
                yield LinkedNumber(number, kind, marks, first)
            else:
                link = _cell_id(anchor, at, column) if _has_evidence(cell) else ""
                verdict, has_runs = formatting.find_verdict(cell), bool(cell.run_ids)
                yield LinkedNumber(
                    number, cell.status, marks, first, link, verdict, _format_seeds(cell), has_runs
                )


def _format_seeds(cell: Cell) -> str:
    """Return text such as ``3 seeds``, or ``2 of 3 seeds`` where some planned ones have no result."""
    if not cell.n:
        return ""
    count = f"{cell.n} of {cell.n_planned}" if cell.n < cell.n_planned else f"{cell.n}"
    return f"{count} seed{'' if count == '1' else 's'}"


def _has_evidence(cell: Cell) -> bool:
    """Return True for a cell that has a row of evidence."""
    return bool(cell.run_ids) or cell.judgement is not None


def _list_evidence(
    report: Report, table: Table, anchor: str, gathered: GatheredRuns
) -> Iterator[EvidenceView]:
    for at, row in enumerate(table.rows):
        for index, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if _has_evidence(cell):
                number, judgement = formatting.format_measured(cell, column), cell.judgement
                yield EvidenceView(
                    anchor=_cell_id(anchor, at, index),
                    row=row.name,
                    column=column.label,
                    measured=" ± ".join(filter(None, (number.value, number.sd))),
                    reported=" ± ".join(filter(None, (cell.reported, cell.reported_sd))),
                    difference=_format_difference(cell, column),
                    runs=tuple(_list_runs(report, table, row, index, gathered)),
                    judgement=judgement,
                    standing=cell.standing,
                    expected=_format_expected(judgement, column) if judgement else "",
                    interval=_format_interval(judgement, column) if judgement else "",
                )


def _format_rate(value: float | None, column: Column) -> str:
    """Return a fraction in the unit of the column; empty for None."""
    unit = UNITS[column.unit]
    return "" if value is None else f"{value * unit.scale:.{unit.digits}f}"


def _format_difference(cell: Cell, column: Column) -> str:
    """Return measured - reported as text with a sign; empty where either is missing."""
    if cell.measured is None or not cell.reported:
        return ""
    difference = cell.measured - float(cell.reported)
    return f"{difference:+.{UNITS[column.unit].digits}f}".replace("-", "−")


def _format_expected(judgement: Judgement, column: Column) -> str:
    expected, margin = _format_rate(judgement.expected, column), _format_rate(judgement.margin, column)
    return f"{expected} − {margin}" if expected and margin else expected


def _format_interval(judgement: Judgement, column: Column) -> str:
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
