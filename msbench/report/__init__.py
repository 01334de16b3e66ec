"""The paper's tables, reported beside measured: one `Table` of `Cell`s feeds every renderer.

::

    names -> load -> Report of Tables -> terminal, csv, latex, html
             definitions.PAPER_TABLES says what each table of the paper shows
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from msbench.report.cells import Cell, Column, Note, Row, Table
from msbench.report.definitions import ColumnDefinition, TableDefinition, own_table
from msbench.report.files import refuse_file, write, write_all, write_files
from msbench.report.load import Judge, Report, load, run_folder
from msbench.report.pool import SuiteRuns
from msbench.report.reported import ReportedCell, find_reported, read_all, read_reported
from msbench.report.tables import build_table
from msbench.report.terminal import print_table, print_tables

if TYPE_CHECKING:
    from msbench.report.html import Figure

__all__ = [
    "Cell",
    "Column",
    "ColumnDefinition",
    "Judge",
    "Note",
    "Report",
    "ReportedCell",
    "Row",
    "SuiteRuns",
    "Table",
    "TableDefinition",
    "build_table",
    "find_reported",
    "load",
    "load_tables",
    "own_table",
    "print_table",
    "print_tables",
    "read_all",
    "read_reported",
    "run_folder",
    "write",
    "write_all",
    "write_files",
    "write_page",
]


def load_tables(
    names: Sequence[str], results: Path, *, include_modified: bool = False, judge: Judge | None = None
) -> list[Table]:
    """The tables of `load`."""
    return list(load(names, results, include_modified=include_modified, judge=judge).tables)


def write_page(
    report: Report, out: Path, names: Sequence[str] = (), figures: "Sequence[Figure]" = ()
) -> list[Path]:
    """Write the page ``report.html`` of a report to `out`, as `write_all` writes files.

    `names` are the suites and files as typed; without `figures` the page has no section of them.
    """
    from msbench.report import html

    refuse_file(out)
    page = html.page(report, made=datetime.now(UTC), names=names, figures=figures)
    return write_files({html.NAME: html.render(page)}, out)
