"""Rendering of tables, runs and figures as one well-formed page that loads nothing else.

Everything that comes from files passes `printable` and jinja's escaping. The page's content security policy
allows a browser to run its one script and to load nothing.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from msbench import __version__
from msbench.console import printable
from msbench.reporting.render import formatting
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
)
from msbench.reporting.render.html.tables import (
    TableView,
    count_verdicts,
    format_difference,
    format_expected,
    format_interval,
    format_seeds,
    view_tables,
)
from msbench.reporting.tables.cells import Report, Table
from msbench.reporting.tables.notes import format_run_count

if TYPE_CHECKING:
    from msbench.reporting.figures import FigureFile

PAGE_NAME = "report.html"


def render_page(
    report: Report, gathered: GatheredRuns, *, made: datetime, figures: "Sequence[FigureFile]" = ()
) -> bytes:
    """Return the page of `report` as UTF-8, with sections for the runs `gathered`.

    `made` is the time shown on it; all else is determined by the report, the runs and the figures.
    """
    views = view_tables(report, gathered)
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
        "figures": [(figure, Markup(figure.svg(f"drawing-{at}-"))) for at, figure in enumerate(figures, 1)],
        "runs": runs,
        "statuses": statuses.most_common(),
        "shared": _list_shared(runs),
        "left_out": _describe_left_out(gathered),
    }
    text = _load_templates().get_template("page.html.j2").render(context)
    return (text.strip() + "\n").encode()


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
    return list({each.anchor: each for each in found if each}.values())


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
