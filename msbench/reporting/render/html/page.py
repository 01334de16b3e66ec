"""Rendering of tables, runs and figures as one well-formed page that loads nothing else.

Everything that comes from files passes `printable` and jinja's escaping. The page's content security policy
allows a browser to run its one script and to load nothing.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from msbench import __version__
from msbench.console import printable
from msbench.reporting.render import formatting
from msbench.reporting.render.html import chart
from msbench.reporting.render.html.drawing import Figure, inlined
from msbench.reporting.render.html.gather import Gathered
from msbench.reporting.render.html.palette import DARK, LIGHT, SERIES_DARK, SERIES_LIGHT, variables
from msbench.reporting.render.html.run_view import RunView, Shared, run_views
from msbench.reporting.render.html.table_view import TableView, anchors, table_view
from msbench.reporting.render.html.verdicts import LOOKS, count
from msbench.reporting.tables.cells import Report, Table
from msbench.reporting.tables.notes import format_run_count

TERMS = (
    ("reported", "what the paper prints, as it prints it"),
    (
        "measured",
        "what runs of this code gave: the mean ± sample standard deviation over seeds; it links to its runs",
    ),
    ("bold", "the best measured value of its column"),
    ("2 of 3 seeds", "one of three planned seeds has no result; it is not in the mean"),
    ("--", "the paper has no number, or nothing was measured"),
    ("superior letters", "lead to the notes below the table"),
)
FOOTNOTES = (
    "Reported is what the paper prints; measured is what runs of this code gave. Nothing else is in a table.",
    "A run's id is a digest of its settings, its data and the source that trained it: the same id elsewhere "
    "is a replicate.",
    "This file is complete: it opens offline and asks no host for anything.",
)


@dataclass(frozen=True)
class Page:
    """The contents of a page; `made` is the time of its creation."""

    report: Report
    made: datetime
    gathered: Gathered = field(default_factory=Gathered)
    figures: Sequence[Figure] = ()


def render(page: Page) -> bytes:
    """Return the page as UTF-8; deterministic for the same `page`."""
    tables = page.report.tables
    views = [
        table_view(page.report, table, anchor, page.gathered)
        for table, anchor in zip(tables, anchors(tables), strict=True)
    ]
    text = _environment().get_template("page.html.j2").render(_context(page, views))
    return (text.strip() + "\n").encode()


def _context(page: Page, views: Sequence[TableView]) -> dict[str, Any]:
    runs = _with_cells(run_views(page.gathered.runs.values()), views)
    statuses = Counter(run.record.status for run in runs)
    made = page.made.astimezone(UTC)
    return {
        "title": _title(page.report.tables),
        "made": f"{made:%Y-%m-%d %H:%M} UTC",
        "made_iso": made.isoformat(timespec="seconds"),
        "results": str(page.report.results),
        "views": views,
        "verdicts": count(page.report.tables),
        "evidence": any(view.evidence for view in views),
        "figures": [
            replace(figure, svg=Markup(inlined(figure.svg, f"drawing-{at + 1}-")))
            for at, figure in enumerate(page.figures)
        ],
        "runs": runs,
        "statuses": statuses.most_common(),
        "shared": _shared(runs),
        "left_out": _left_out(page.gathered),
    }


def _title(tables: Sequence[Table]) -> str:
    if len(tables) == 1 and tables[0].title:
        return f"{tables[0].heading}: reported beside measured"
    return "MS-SSM: reported beside measured"


def _with_cells(runs: Sequence[RunView], views: Sequence[TableView]) -> list[RunView]:
    """Return the runs by suite and task, each with the anchors and labels of the cells that use it."""
    cells: dict[str, list[tuple[str, str]]] = {}
    for view in views:
        for cell in view.evidence:
            for run in cell.runs:
                said = f"{view.table.heading or view.table.id}, {cell.column}, {cell.row}"
                cells.setdefault(run.link, []).append((cell.anchor, said))
    places = list(dict.fromkeys(run.place for run in runs))
    ordered = sorted(runs, key=lambda run: places.index(run.place))
    return [replace(run, cells=tuple(cells.get(run.anchor, ()))) for run in ordered]


def _shared(runs: Sequence[RunView]) -> list[Shared]:
    """Return environments, then sources, each once, in the order of their numbers."""
    found = [*(run.environment for run in runs), *(run.sources for run in runs)]
    return list({each.anchor: each for each in found}.values())


def _left_out(gathered: Gathered) -> list[str]:
    """Return notes on the runs of the results folder without a section on this page."""
    lines = []
    if not gathered.runs:
        lines.append("No run stands behind a number of this page.")
    if gathered.beyond:
        lines.append(
            f"{format_run_count(gathered.beyond)} more behind these numbers without a section, to keep the "
            "page small; 'msbench show RUN' prints one, and a report of fewer suites shows all."
        )
    if gathered.others:
        lines.append(
            f"{format_run_count(gathered.others)} of the results folder not shown, as no number here rests "
            "on them: without a result, under overrides, on other data, from other source code, or of other "
            "suites; 'msbench list runs' lists them."
        )
    return lines


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("msbench.reporting.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals.update(_constants())
    return environment


def _shown(value: object) -> object:
    """Return trusted markup unchanged, other text without characters that hide or reorder it."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _constants() -> Mapping[str, Any]:
    script, right = _asset("script.js"), chart.WIDTH - chart.RIGHT
    return {
        "version": __version__,
        "looks": LOOKS,
        "meanings": formatting.VERDICTS,
        "terms": TERMS,
        "footnotes": FOOTNOTES,
        "style": Markup(_style()),
        "script": Markup(script),
        "policy": policy(script),
        "shapes": Markup(_asset("shapes.svg")),
        "width": chart.WIDTH,
        "height": chart.HEIGHT,
        "left": chart.LEFT,
        "axes": f"M{chart.LEFT} {chart.TOP}V{chart.HEIGHT - chart.BOTTOM}H{right}",
    }


def policy(script: str) -> str:
    """Return the content security policy of a page whose only script is `script`: no requests allowed."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _style() -> str:
    return (
        f":root {{ {variables(LIGHT, SERIES_LIGHT)} }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK, SERIES_DARK)} }} }}\n"
        f"{_asset('style.css')}"
    )


def _asset(name: str) -> str:
    return (resources.files("msbench.reporting.render.html") / "templates" / name).read_text(encoding="utf-8")
