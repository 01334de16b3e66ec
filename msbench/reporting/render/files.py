"""Output files of tables, named after their ids."""

from collections.abc import Iterable
from pathlib import Path

from msbench.reporting.render import csv as csv_renderer
from msbench.reporting.render import latex as latex_renderer
from msbench.reporting.tables.cells import Table
from msbench.reporting.tables.names import stem
from msbench.results.files import refuse_file, write_files

__all__ = ["refuse_file", "write_all", "write_files"]


def write_all(tables: Iterable[Table], out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """Write the files of `tables` to `out`, each whole or not at all, and return their paths.

    CSV: ``<id>.csv`` (long), ``<id>-wide.csv``. LaTeX: ``<id>.tex``, ``<id>-report.tex`` to show it, and,
    for several tables, ``all-report.tex`` to show them all. `out` is a folder: it is created if absent, and
    other files in it are left unchanged. Raises ConfigError where it is a file, is named like one, or cannot
    be written to.
    """
    tables = list(tables)
    files: dict[str, bytes] = {}
    for table in tables:
        files |= _files(table, csv=csv, latex=latex)
    if latex and len(tables) > 1:
        files["all-report.tex"] = latex_renderer.document(tables, "all").encode()
    return write_files(files, out)


def _files(table: Table, *, csv: bool, latex: bool) -> dict[str, bytes]:
    name = stem(table.id)
    files: dict[str, bytes] = {}
    if csv:
        files[f"{name}.csv"] = csv_renderer.long(table)
        files[f"{name}-wide.csv"] = csv_renderer.wide(table)
    if latex:
        files[f"{name}.tex"] = latex_renderer.fragment(table).encode()
        files[f"{name}-report.tex"] = latex_renderer.document([table], name).encode()
    return files
