"""The paper's tables with reported and measured numbers: one `Table` of `Cell`s feeds every renderer.

::

    names -> load -> Report of Tables -> terminal, csv, latex, html
             definitions.PAPER_TABLES defines each table of the paper
"""

from msbench.reporting.command import ReportOptions, ReportResult, carry_out
from msbench.reporting.render.files import write_all, write_files
from msbench.reporting.render.terminal import print_table, print_tables
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Cell, Column, Note, Row, Table
from msbench.reporting.tables.definitions import ColumnDefinition, TableDefinition, own_table
from msbench.reporting.tables.load import Judge, Report, load, run_folder
from msbench.reporting.tables.pool import SuiteRuns
from msbench.results.reported import ReportedCell, find_reported, read_all_reported, read_reported

__all__ = [
    "Cell",
    "Column",
    "ColumnDefinition",
    "Judge",
    "Note",
    "Report",
    "ReportOptions",
    "ReportResult",
    "ReportedCell",
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
    "read_all_reported",
    "read_reported",
    "run_folder",
    "write_all",
    "write_files",
]
