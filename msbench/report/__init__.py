"""The paper's tables, reported beside measured: one `Table` of `Cell`s feeds every renderer."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msbench import console, store, suite
from msbench.errors import ConfigError, Undecided
from msbench.report import csv as csv_renderer
from msbench.report import latex as latex_renderer
from msbench.report.cells import Cell, Column, Note, Row, Table
from msbench.report.reported import ReportedCell, find_reported, read_all, read_reported
from msbench.report.tables import build_table
from msbench.report.terminal import print_table

__all__ = [
    "Cell",
    "Column",
    "Note",
    "ReportedCell",
    "Row",
    "Table",
    "build_table",
    "find_reported",
    "load_tables",
    "print_table",
    "read_all",
    "read_reported",
    "write",
    "write_all",
    "write_page",
]

FILE_SUFFIXES = (".csv", ".tex", ".html", ".json", ".md", ".txt", ".pdf")


def load_tables(names: Sequence[str], results: Path, *, include_modified: bool = False) -> list[Table]:
    """The tables of these suites (names or files), or of every suite that has a run in `results`.

    Records that cannot be read are named on stderr and left out. Raises Undecided where nothing has been run.
    """
    suites = [suite.load(name) for name in names] or _suites_with_runs(results)
    reported = read_all(find_reported(results))
    return [_table(each, results, reported, include_modified) for each in suites]


def write(table: Table, out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """Write the files of `table` to `out`, each whole or not at all, and return their paths.

    CSV: ``<id>.csv`` (long), ``<id>-wide.csv``. LaTeX: ``<id>.tex``, and ``<id>-report.tex`` to show it.
    `out` is a folder, never a file: it is made where absent, and other files in it are left alone. Raises
    ConfigError where it is a file, is named like one, or cannot be written to.
    """
    _refuse_file(out)
    stem = latex_renderer.stem(table)
    files: dict[str, bytes] = {}
    if csv:
        files[f"{stem}.csv"] = csv_renderer.long(table)
        files[f"{stem}-wide.csv"] = csv_renderer.wide(table)
    if latex:
        files[f"{stem}.tex"] = latex_renderer.fragment(table).encode()
        files[f"{stem}-report.tex"] = latex_renderer.document(table).encode()
    for name, data in files.items():
        try:
            store.write_atomically(out / name, data)
        except OSError as error:
            raise ConfigError(f"{out / name}: cannot be written: {error.strerror}") from None
    return [out / name for name in files]


def write_all(tables: Iterable[Table], out: Path, *, csv: bool = False, latex: bool = False) -> list[Path]:
    """The files of all `tables`."""
    return [path for table in tables for path in write(table, out, csv=csv, latex=latex)]


def write_page(tables: Sequence[Table], out: Path, results: Path, suites: Sequence[str] = ()) -> Path:
    """The page ``report.html`` of all `tables` with the runs of `results` behind them; `suites` as typed."""
    from msbench.report import html

    _refuse_file(out)
    return html.write(tables, out, results, made=datetime.now(UTC), suites=suites)


def _refuse_file(out: Path) -> None:
    # A folder called table.tex is what nobody means.
    if out.is_file() or (out.suffix in FILE_SUFFIXES and not out.is_dir()):
        raise ConfigError(f"--out {out}: names a file, and must be a folder; files are named after the suite")


def _table(each: suite.Suite, results: Path, reported: list[ReportedCell], include_modified: bool) -> Table:
    records, warnings = store.records(results, each.name)
    for warning in warnings:
        console.say(f"msbench: {warning}")
    return build_table(each, suite.plan(each), records, reported, include_modified=include_modified)


def _suites_with_runs(results: Path) -> list[suite.Suite]:
    found = dict.fromkeys(path.parents[2].name for path in store.run_folders(results))
    if not found:
        raise Undecided(f"{results}: nothing has been run; 'msbench run SUITE' makes runs")
    known = {each.name: each for each in suite.available(on_error=_passed_over)}
    for name in found:
        if name not in known:
            console.say(f"msbench: {results / name}: no suite of this name here; name its file to report it")
    chosen = [known[name] for name in found if name in known]
    if not chosen:
        raise Undecided(f"{results}: no run of a suite that is known here")
    return chosen


def _passed_over(error: ConfigError) -> None:
    console.say(f"msbench: passed over, as it is no suite: {error}")
