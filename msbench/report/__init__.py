"""The paper's tables, reported beside measured: one `Table` of `Cell`s feeds every renderer.

::

    names -> load -> Report of Tables -> terminal, csv, latex
             definitions.PAPER_TABLES says what each table of the paper shows
"""

from collections.abc import Sequence
from pathlib import Path

from msbench.report.cells import Cell, Column, Note, Row, Table
from msbench.report.definitions import ColumnDefinition, TableDefinition, own_table
from msbench.report.files import refuse_file, write, write_all, write_files
from msbench.report.load import Judge, Report, load, run_folder
from msbench.report.pool import SuiteRuns
from msbench.report.reported import ReportedCell, find_reported, read_all, read_reported
from msbench.report.tables import build_table
from msbench.report.terminal import print_table, print_tables

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
    "write_figures",
    "write_files",
]


def load_tables(
    names: Sequence[str], results: Path, *, include_modified: bool = False, judge: Judge | None = None
) -> list[Table]:
    """The tables of `load`."""
    return list(load(names, results, include_modified=include_modified, judge=judge).tables)


def write_figures(report: Report, out: Path, *, initialisation: bool = False) -> tuple[list[Path], list[str]]:
    """Write the figures of a report to `out`; returns their paths, and lines on what is not drawn and why.

    `initialisation` adds where the states of MS-SSM start. Raises ConfigError as `write_all` does.
    """
    # matplotlib takes a while to import: only who asks for figures waits for it.
    from msbench.report import figures as drawn

    refuse_file(out)
    found = drawn.figures(report, tuple(drawn.KINDS) if initialisation else drawn.WITHOUT_MODELS)
    notes = [f"{each.stem}: {note}" for each in found for note in each.notes]
    missing: dict[str, list[str]] = {}
    for each in found:
        if each.reason:
            missing.setdefault(each.reason, []).append(each.stem)
    lines = [f"no figure {', '.join(stems)}: {reason}" for reason, stems in missing.items()]
    return drawn.write(found, out), [*notes, *lines]
