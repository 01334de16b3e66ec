"""The files of tables, named after them."""

from collections.abc import Iterable
from pathlib import Path

from msbench.files import refuse_file, write_files
from msbench.report import csv as csv_renderer
from msbench.report import latex as latex_renderer
from msbench.report.cells import Table

__all__ = ["refuse_file", "write", "write_all", "write_files"]


def write(table: Table, out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """The files of one table, as `write_all` writes them."""
    return write_all([table], out, csv=csv, latex=latex)


def write_all(tables: Iterable[Table], out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """Write the files of `tables` to `out`, each whole or not at all, and return their paths.

    CSV: ``<id>.csv`` (long), ``<id>-wide.csv``. LaTeX: ``<id>.tex``, ``<id>-report.tex`` to show it, and,
    for several tables, ``all-report.tex`` to show them all. `out` is a folder, never a file: it is made where
    absent, and other files in it are left alone. Raises ConfigError where it is a file, is named like one, or
    cannot be written to.
    """
    tables = list(tables)
    files: dict[str, bytes] = {}
    for table in tables:
        files |= _files(table, csv=csv, latex=latex)
    if latex and len(tables) > 1:
        files["all-report.tex"] = latex_renderer.document(tables, "all").encode()
    return write_files(files, out)


def _files(table: Table, *, csv: bool, latex: bool) -> dict[str, bytes]:
    stem = latex_renderer.stem(table)
    files: dict[str, bytes] = {}
    if csv:
        files[f"{stem}.csv"] = csv_renderer.long(table)
        files[f"{stem}-wide.csv"] = csv_renderer.wide(table)
    if latex:
        files[f"{stem}.tex"] = latex_renderer.fragment(table).encode()
        files[f"{stem}-report.tex"] = latex_renderer.document([table], stem).encode()
    return files
