"""The files of tables: each is replaced whole, so that whatever ends a report leaves the old file or the new.

Files of one report are replaced one after another: where it is killed between two of them, they are of
different ages, and the next report makes them one again.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msbench import store
from msbench.errors import ConfigError
from msbench.report import csv as csv_renderer
from msbench.report import latex as latex_renderer
from msbench.report.cells import Table
from msbench.report.names import stem

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

FILE_SUFFIXES = (".csv", ".tex", ".html", ".json", ".md", ".txt", ".pdf")


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


def write_files(files: dict[str, bytes], out: Path) -> list[Path]:
    """Write files of these names to the folder `out`; what a report that was killed left there goes first.

    Raises ConfigError where `out` is a file, is named like one, or cannot be written to.
    """
    refuse_file(out)
    if not files:
        return []
    name = ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with _alone(out) as alone:
            if alone:
                _sweep(out, files)
            for name, data in files.items():
                store.write_atomically(out / name, data)
    except OSError as error:
        raise ConfigError(f"{out / name}: cannot be written: {error.strerror}") from None
    return [out / name for name in files]


def refuse_file(out: Path) -> None:
    """Raise ConfigError where `out` is a file, or called like one: nobody means a folder table.tex."""
    if out.is_file() or (out.suffix in FILE_SUFFIXES and not out.is_dir()):
        raise ConfigError(f"--out {out}: names a file, and must be a folder; files are named after the table")


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


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Wait until no other report writes here; False where the system cannot tell.

    The lock is on the folder itself: it leaves no file, and goes with the process that held it.
    """
    if fcntl is None:
        yield False
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # not every network file system locks folders
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _sweep(out: Path, names: Iterable[str]) -> None:
    """Remove the temporary files of a report that was killed in the middle of a write."""
    for name in names:
        for leftover in out.glob(f".{name}.*.tmp"):
            leftover.unlink(missing_ok=True)
