"""Rendering of tables, runs and figures as one well-formed page that loads nothing else.

Everything that comes from files passes `printable` and jinja's escaping. The page's content security policy
allows a browser to run its one script and to load nothing.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from msbench import __version__
from msbench.console import printable
from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import make_stem, number_repeats
from msbench.reporting.render.html.runs import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    GatheredRuns,
    RunSection,
    SharedFacts,
    get_run_key,
)
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
from msbench.reporting.tables.notes import format_run_count
from msbench.reporting.tables.ranking import Ranking, rank_models

if TYPE_CHECKING:
    from msbench.reporting.figures import FigureFile

PAGE_NAME = "report.html"
NAMED = 3
"""The most rows that an outcome names."""


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
    figures: tuple["FigureView", ...] = ()

    @property
    def rankings(self) -> list[Ranking]:
        """The contents of its accuracy plots."""
        return rank_models(self.table)

    @property
    def seeds(self) -> tuple[int, int]:
        """The number of seeds with a result, and that of planned ones, of most cells: said in the caption."""
        cells = (cell for row in self.table.rows for cell in row.cells)
        counts = Counter((cell.n, cell.n_planned) for cell in cells if cell.n == cell.n_planned > 0)
        return counts.most_common(1)[0][0] if counts else (0, 0)

    @property
    def outcome(self) -> str:
        """One sentence on what came out."""
        return describe_outcome(self.table)

    @property
    def groups(self) -> list[tuple[str, list[tuple[int, Row]]]]:
        """Groups of rows under a common heading, which may be empty; rows with their number, from 1."""
        grouped = groupby(enumerate(self.table.rows, 1), key=lambda pair: pair[1].group)
        return [(name, list(rows)) for name, rows in grouped]


@dataclass(frozen=True)
class FigureView:
    """A figure as an element of the page; `anchor` is the id of its title."""

    anchor: str
    table: str
    title: str
    caption: str
    svg: Markup


def render_page(
    report: Report, gathered: GatheredRuns, *, made: datetime, figures: "Sequence[FigureFile]" = ()
) -> bytes:
    """Return the page of `report` as UTF-8, with sections for the runs `gathered`.

    `made` is the time shown on it; all else is determined by the report, the runs and the figures.
    """
    drawn = [_view_figure(figure, at) for at, figure in enumerate(figures, 1)]
    views = _add_figures(view_tables(report, gathered), drawn)
    shown = {figure.anchor for view in views for figure in view.figures}
    runs = _add_cells(list(gathered.runs.values()), views)
    statuses = Counter(run.record.status for run in runs)
    made = made.astimezone(UTC)
    context = {
        "title": _find_title(report.tables),
        "made": f"{made:%Y-%m-%d %H:%M} UTC",
        "made_iso": made.isoformat(timespec="seconds"),
        "results": str(report.results),
        "views": views,
        "verdicts": count_verdicts(report.tables),
        "evidence": any(view.evidence for view in views),
        "figures": [figure for figure in drawn if figure.anchor not in shown],
        "runs": runs,
        "statuses": statuses.most_common(),
        "shared": _list_shared(runs),
        "left_out": _describe_left_out(gathered),
    }
    text = _load_templates().get_template("page.html.j2").render(context)
    return (text.strip() + "\n").encode()


def render_notebook_table(table: Table) -> str:
    """Return a table as HTML for a notebook, in the notebook's own style."""
    view = TableView("", table, ())
    return _load_templates().get_template("notebook.html.j2").render(view=view).strip()


def _view_figure(figure: "FigureFile", at: int) -> FigureView:
    svg = Markup(figure.svg(f"drawing-{at}-"))
    # Below its table it does not repeat the heading.
    title = figure.title.rpartition(": ")[2]
    return FigureView(f"figure-{at}", figure.table, title[:1].upper() + title[1:], figure.caption, svg)


def _add_figures(views: Sequence[TableView], figures: Sequence[FigureView]) -> list[TableView]:
    """Return the views with the figures of their tables; of tables of one id the first has them."""
    first = {view.table.id: view.anchor for view in reversed(views)}
    return [
        replace(view, figures=tuple(each for each in figures if first.get(each.table) == view.anchor))
        for view in views
    ]


def describe_outcome(table: Table) -> str:
    """Return one sentence on the verdicts of a table, or on its best models; empty without results."""
    found: dict[str, list[str]] = {}
    for row in table.rows:
        for cell in row.cells:
            if verdict := formatting.find_verdict(cell):
                found.setdefault(verdict, []).append(row.name)
    if found:
        counted = [(key, found[key]) for key in formatting.VERDICTS if key in found]
        said = [f"{len(names)} {_word_verdict(key, len(names))}{_name_few(names)}" for key, names in counted]
        total = sum(map(len, found.values()))
        compared = f"{f'of {total} ' if total > 1 else ''}compared with {table.base}, " if table.base else ""
        return f"{compared}{', '.join(said)}."
    best = [
        f"{ranking.rows[0].name} with {ranking.format(ranking.rows[0].measured)} on {ranking.label}"
        for ranking in rank_models(replace(table, rows=tuple(map(_drop_reported, table.rows))))
    ]
    return f"highest mean{'s' * (len(best) > 1)}: {', '.join(best)}." if best else ""


def _word_verdict(verdict: str, count: int) -> str:
    one, several = {
        "agrees": ("agrees with the paper", "agree with the paper"),
        "contradicts": ("contradicts the paper", "contradict the paper"),
        "undecided": ("is undecided", "are undecided"),
    }.get(verdict, (verdict, verdict))
    return one if count == 1 else several


def _drop_reported(row: Row) -> Row:
    return replace(row, cells=tuple(replace(cell, reported="") for cell in row.cells))


def _name_few(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if len(names) <= NAMED else ""


def _find_title(tables: Sequence[Table]) -> str:
    if len(tables) == 1 and tables[0].title:
        return f"{tables[0].heading}: reported next to measured"
    return "MS-SSM: reported next to measured"


def _add_cells(runs: Sequence[RunSection], views: Sequence[TableView]) -> list[RunSection]:
    """Return the runs by suite and task, each with the anchors and labels of the cells that use it."""
    cells: dict[str, list[tuple[str, str]]] = {}
    for view in views:
        for cell in view.evidence:
            for _, _, link in cell.runs:
                said = f"{view.table.heading or view.table.id}, {cell.column.label}, {cell.row.name}"
                cells.setdefault(link, []).append((cell.anchor, said))
    places = list(dict.fromkeys(run.place for run in runs))
    ordered = sorted(runs, key=lambda run: places.index(run.place))
    return [replace(run, cells=tuple(cells.get(run.anchor, ()))) for run in ordered]


def _list_shared(runs: Sequence[RunSection]) -> list[SharedFacts]:
    """Return environments, then sources, each once, in the order of their numbers."""
    found = [*(run.environment for run in runs), *(run.sources for run in runs)]
    return list({each.anchor: each for each in found}.values())


def _describe_left_out(gathered: GatheredRuns) -> list[str]:
    """Return notes on the runs of the results folder without a section on this page."""
    lines = []
    if not gathered.runs:
        lines.append("No number of this page has a run.")
    if gathered.beyond:
        lines.append(
            f"{format_run_count(gathered.beyond)} more behind these numbers without a section, to keep the "
            "page small; 'msbench show RUN' prints one, and a report of fewer suites shows all."
        )
    if gathered.others:
        lines.append(
            f"{format_run_count(gathered.others)} of the results folder not shown, as no number here is "
            "computed from them: without a result, under overrides, on other data, of other source code, or "
            "of other suites; 'msbench list runs' lists them."
        )
    return lines


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
    column, cell, records = table.columns[index], row.cells[index], report.list_runs(table, row, index)
    # In a table by a property the result of a run is on some examples, and no metric of its record.
    parts = dict(zip(cell.run_ids, cell.evidence.values, strict=True)) if table.by and cell.evidence else {}
    for record in records:
        run = gathered.runs.get(get_run_key(record))
        value = parts.get(record.run_id, record.metrics.get(UNITS[column.unit].metric))
        where = f"{record.task}, seed" if len(column.places) > 1 else "seed"
        shown = _format_rate(value, column) if record.finished else record.status
        yield f"{where} {record.seed}", shown, run.anchor if run else ""
    known = {record.run_id for record in records}
    yield from ((identity, "", "") for identity in cell.run_ids if identity not in known)


@cache
def _load_templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("msbench.reporting.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_make_printable,
    )
    environment.globals.update(_list_constants())
    return environment


def _make_printable(value: object) -> object:
    """Return trusted markup unchanged, other text without characters that hide or reorder it."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _list_constants() -> Mapping[str, Any]:
    script, right = _read_template("script.js"), WIDTH - RIGHT
    return {
        "version": __version__,
        "looks": formatting.VERDICTS,
        "units": UNITS,
        "count_verdicts": count_verdicts,
        "find_verdict": formatting.find_verdict,
        "format_difference": format_difference,
        "format_expected": format_expected,
        "format_interval": format_interval,
        "format_measured": formatting.format_measured,
        "format_row": formatting.format_row,
        "format_seeds": format_seeds,
        "list_footnotes": formatting.list_footnotes,
        "style": Markup(_read_template("colours.css") + _read_template("style.css")),
        "script": Markup(script),
        "policy": write_policy(script),
        "shapes": Markup(_read_template("shapes.svg")),
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "axes": f"M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{right}",
    }


def write_policy(script: str) -> str:
    """Return the content security policy of a page whose only script is `script`: no requests allowed."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _read_template(name: str) -> str:
    return (resources.files("msbench.reporting.render.html") / "templates" / name).read_text(encoding="utf-8")
