"""The command ``msbench report``: its tables, and the files that it writes."""

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from msbench.errors import ConfigError
from msbench.reporting.render import csv as csv_renderer
from msbench.reporting.render import latex as latex_renderer
from msbench.reporting.render.formatting import make_stem
from msbench.reporting.tables.breakdown import UNASKED, list_breakdowns
from msbench.reporting.tables.cells import Report, Table
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.results.files import encode_csv, refuse_file, write_files

if TYPE_CHECKING:
    from msbench.reporting.figures import FigureFile


@dataclass(frozen=True)
class ReportResult:
    """The tables, the files that were written, and notes on figures that could not be drawn."""

    tables: tuple[Table, ...]
    written: list[Path]
    notes: list[str]


def run_report(options: ReportOptions) -> ReportResult:
    """Load the report and write its files, each atomically.

    Raises what `load_report` does, and ConfigError where the output folder is no folder or cannot be written
    to, or results were asked for with validation scores.
    """
    refuse_file(options.out)
    if options.validation:
        _refuse_results(options)
    report = load_report(options)
    written = write_tables(report.tables, options.out, csv=options.csv, latex=options.latex)
    if options.by_run:
        written += write_runs(report, options.out)
    drawn = _draw_figures(report, options)
    wanted = options.figures or options.initialisation
    if wanted:
        from msbench.reporting import figures

        written += figures.write_figures(drawn, options.out)
    if options.html:
        written += write_page(report, options.out, options.names, drawn)
    # A page has the notes next to its figures.
    return ReportResult(report.tables, written, describe_figures(drawn) if wanted else [])


def _refuse_results(options: ReportOptions) -> None:
    """Raise ConfigError for options that show or judge test results: not allowed with validation scores."""
    given = {
        "--against": options.judge is not None,
        "--by": options.by is not None,
        "--by-run": options.by_run,
        "--html": options.html,
        "--figures": options.figures,
        "--initialisation": options.initialisation,
    }
    if wrong := [option for option, on in given.items() if on]:
        raise ConfigError(f"{', '.join(wrong)}: shows test results, so it is not allowed with --validation")


def write_tables(tables: Iterable[Table], out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """Write the files of `tables` to `out`, each whole or not at all, and return their paths.

    CSV: ``<id>.csv`` (long), ``<id>-wide.csv``. LaTeX: ``<id>.tex``, its notes in ``<id>-legend.tex``,
    ``<id>-report.tex`` to show both, and, for several tables, ``all-report.tex`` to show them all. `out` is a
    folder: it is created if absent, and other files in it are left unchanged. Raises ConfigError where it is
    a file, is named like one, or cannot be written to.
    """
    tables = list(tables)
    files: dict[str, bytes] = {}
    for table in tables:
        name = make_stem(table.id)
        if csv:
            files[f"{name}.csv"] = csv_renderer.render_long(table)
            files[f"{name}-wide.csv"] = csv_renderer.render_wide(table)
        if latex:
            files[f"{name}.tex"] = latex_renderer.render_fragment(table).encode()
            files[f"{name}-legend.tex"] = latex_renderer.render_legend(table).encode()
            files[f"{name}-report.tex"] = latex_renderer.render_document([table], name).encode()
    if latex and len(tables) > 1:
        files["all-report.tex"] = latex_renderer.render_document(tables, "all").encode()
    return write_files(files, out)


def write_runs(report: Report, out: Path) -> list[Path]:
    """Write ``runs.csv``: a row for each run of the report's suites; `shown` is true if a table has it."""
    from msbench.results.frame import build_frame

    used = {identity for table in report.tables for row in table.rows for identity in row.run_ids}
    frame = build_frame(record for records in report.records.values() for record in records)
    frame.insert(1, "shown", frame["run_id"].isin(used))
    plain = frame.astype(object).where(frame.notna(), None)
    rows = plain.itertuples(index=False, name=None)
    return write_files({"runs.csv": encode_csv(list(frame.columns), rows)}, out)


def write_page(
    report: Report, out: Path, names: Sequence[str] = (), drawn: "Sequence[FigureFile]" = ()
) -> list[Path]:
    """Write the page ``report.html`` of a report to `out`; `names` are the suites and files as typed."""
    from msbench.reporting.render.html.page import PAGE_NAME, render_page
    from msbench.reporting.render.html.runs import gather_runs

    # The page has its own plots of results, which fit any screen.
    pictures = [each for each in drawn if not each.reason and each.kind != "results"]
    page = render_page(report, gather_runs(report, names), made=datetime.now(UTC), figures=pictures)
    return write_files({PAGE_NAME: page}, out)


def describe_figures(drawn: "Sequence[FigureFile]") -> list[str]:
    """Return a line for each note on a figure, and one for each reason why figures are not drawn."""
    notes = list(dict.fromkeys(f"{each.stem}: {note}" for each in drawn for note in each.notes))
    missing: dict[str, list[str]] = {}
    for each in drawn:
        if each.reason:
            missing.setdefault(each.reason, []).append(each.stem)
    return [*notes, *(f"no figure {', '.join(stems)}: {reason}" for reason, stems in missing.items())]


def _draw_figures(report: Report, options: ReportOptions) -> "list[FigureFile]":
    if not (options.figures or options.initialisation or options.html):
        return []
    figures = import_figures()
    kinds = tuple(figures.KINDS) if options.initialisation else figures.WITHOUT_MODELS
    # A table without runs has nothing to draw; one of claims repeats the numbers of its suite's own table.
    measured = tuple(table for table in report.tables if table.measured and not table.base)
    report = replace(report, tables=measured)
    names = [name for name in UNASKED if name != options.by]
    unasked = list(list_breakdowns(report, names))
    report = replace(report, tables=(*measured, *(part for _, part in unasked)))
    drawn: list[FigureFile] = figures.make_figures(report, kinds)
    # Their tables are not shown, so the figures stand with the table of the whole test split.
    wholes = {part.id: whole.id for whole, part in unasked}
    return [replace(each, table=wholes.get(each.table, each.table)) for each in drawn]


def import_figures() -> ModuleType:
    """Import the package of figures, and with it matplotlib, which is slow to import.

    The backend that a notebook leaves in ``MPLBACKEND`` is not looked at, as figures are drawn without one.
    Raises ConfigError for a matplotlibrc that is not UTF-8, which matplotlib reads on import.
    """
    messages: list[str] = []
    logger, backend = logging.getLogger("matplotlib"), os.environ.pop("MPLBACKEND", None)

    def collect(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False

    logger.addFilter(collect)
    try:
        return import_module("msbench.reporting.figures")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"figures: {' '.join(messages) or error} Correct that file, or move it away"
        ) from None
    finally:
        logger.removeFilter(collect)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend
