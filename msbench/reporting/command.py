"""The command ``msbench report``: its options, its steps and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msbench.errors import ConfigError
from msbench.reporting.render.files import refuse_file, write_all, write_files
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.load import Judge, Report, load

if TYPE_CHECKING:
    from msbench.reporting.figures import FigureFile


@dataclass(frozen=True)
class ReportOptions:
    """The options of the command.

    `names` are suites, tables or files as typed; `judge`, if given, sets verdicts, and `versus`, if given, is
    the model that others are compared with; `validation` shows that split instead.
    """

    names: Sequence[str]
    results: Path
    out: Path
    csv: bool = False
    latex: bool = False
    html: bool = False
    figures: bool = False
    initialisation: bool = False
    modified: bool = False
    judge: Judge | None = None
    versus: str | None = None
    validation: bool = False


@dataclass(frozen=True)
class ReportResult:
    """The tables, the files that were written, and notes on figures that could not be drawn."""

    tables: tuple[Table, ...]
    written: list[Path]
    notes: list[str]


def carry_out(request: ReportOptions) -> ReportResult:
    """Load the tables, judge and compare them, and write the files, each atomically.

    Raises what `load` does, UnknownName where no table has the model to compare with, and ConfigError where
    the output folder is no folder or cannot be written to.
    """
    refuse_file(request.out)
    if request.validation:
        _refuse_results(request)
    report = load(
        request.names,
        request.results,
        include_modified=request.modified,
        judge=request.judge,
        show="validation" if request.validation else "claims",
    )
    if request.versus is not None:
        from msbench.reporting.tables.versus import versus

        report = replace(report, tables=tuple(versus(report.tables, request.results, request.versus)))
    written = write_all(report.tables, request.out, csv=request.csv, latex=request.latex)
    drawn = _figures(report, request)
    asked = request.figures or request.initialisation
    if asked:
        from msbench.reporting import figures

        written += figures.write(drawn, request.out)
    if request.html:
        written += write_page(report, request.out, request.names, drawn)
    # A page has the notes next to its figures.
    return ReportResult(report.tables, written, told(drawn) if asked else [])


def _refuse_results(request: ReportOptions) -> None:
    """Raise ConfigError for options that show or judge test results: not allowed with validation scores."""
    given = {
        "--against": request.judge is not None,
        "--html": request.html,
        "--figures": request.figures,
        "--initialisation": request.initialisation,
    }
    if wrong := [option for option, on in given.items() if on]:
        raise ConfigError(f"{', '.join(wrong)}: of results, so not with --validation")


def write_page(
    report: Report, out: Path, names: Sequence[str] = (), drawn: "Sequence[FigureFile]" = ()
) -> list[Path]:
    """Write the page ``report.html`` of a report to `out`; `names` are the suites and files as typed."""
    from msbench.reporting.render import html

    pictures = [html.Figure(each.title, each.caption, each.svg()) for each in drawn if not each.reason]
    page = html.page(report, made=datetime.now(UTC), names=names, figures=pictures)
    return write_files({html.NAME: html.render(page)}, out)


def told(drawn: "Sequence[FigureFile]") -> list[str]:
    """Return a line for each note on a figure, and one for each reason why figures are not drawn."""
    notes = list(dict.fromkeys(f"{each.stem}: {note}" for each in drawn for note in each.notes))
    missing: dict[str, list[str]] = {}
    for each in drawn:
        if each.reason:
            missing.setdefault(each.reason, []).append(each.stem)
    return [*notes, *(f"no figure {', '.join(stems)}: {reason}" for reason, stems in missing.items())]


def _figures(report: Report, request: ReportOptions) -> "list[FigureFile]":
    if not (request.figures or request.initialisation or request.html):
        return []
    # matplotlib is slow to import, so it is imported only for figures.
    from msbench.reporting import figures

    kinds = tuple(figures.KINDS) if request.initialisation else figures.WITHOUT_MODELS
    # A table without runs has nothing to draw; one of claims repeats the numbers of its suite's own table.
    measured = tuple(table for table in report.tables if table.measured and not table.base)
    return figures.figures(replace(report, tables=measured), kinds)
