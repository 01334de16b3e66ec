"""The paper's tables, reported beside measured: one `Table` of `Cell`s feeds every renderer.

::

    names -> load -> Report of Tables -> terminal, csv, latex, html
             definitions.PAPER_TABLES says what each table of the paper shows
"""

from msbench.report.cells import Cell, Column, Note, Row, Table
from msbench.report.command import Outcome, Request, carry_out
from msbench.report.definitions import ColumnDefinition, TableDefinition, own_table
from msbench.report.files import write_all, write_files
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
    "Outcome",
    "Report",
    "ReportedCell",
    "Request",
    "Row",
    "SuiteRuns",
    "Table",
    "TableDefinition",
    "build_table",
    "carry_out",
    "find_reported",
    "load",
    "own_table",
    "print_table",
    "print_tables",
    "read_all",
    "read_reported",
    "run_folder",
    "write_all",
    "write_files",
]
