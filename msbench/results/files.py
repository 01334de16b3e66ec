"""Output files that a user asks for, each replaced atomically: an interrupted command leaves old or new.

Files of one command are replaced one after another. If it is killed between two of them, they are from
different runs of the command; running it again makes them consistent.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msbench.errors import ConfigError, unwritten
from msbench.results import store
from msbench.results.locks import hold_folder

PATIENCE = 30.0
"""Seconds. In a shared folder anybody may hold a lock forever, and files are whole without one."""
FILE_SUFFIXES = (".csv", ".tex", ".html", ".json", ".md", ".txt", ".pdf")


def write_file(path: Path, data: bytes, choice: str) -> None:
    """Write one file of this name; raises ConfigError as `write_files` does."""
    refuse_folder(path, choice)
    _write({path.name: data}, path.parent, choice)


def refuse_folder(path: Path, choice: str) -> None:
    """Raise ConfigError where a folder has the name of a file to write."""
    if path.is_dir():
        raise ConfigError(f"{choice} {path}: cannot be written: it is a folder")


@contextmanager
def replacing(path: Path, choice: str) -> Iterator[Callable[[bytes], None]]:
    """Lock the folder of `path` against other commands; yields the function that writes the file.

    A file that is read, changed and written back inside the block loses no entry of a command that does the
    same. Raises ConfigError where the folder cannot be written to or locked.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_folder(path.parent.resolve(), PATIENCE) as alone:
            if not alone:
                raise ConfigError(f"{path.parent}: cannot be locked, or another command holds it; try again")
            _sweep(path.parent, [path.name])
            yield lambda data: store.write_atomically(path, data)
    except OSError as error:
        raise ConfigError(unwritten(path, error, choice)) from None


def write_files(files: Mapping[str, bytes], out: Path) -> list[Path]:
    """Write files of these names to the folder `out`, after removing temporary files of killed commands.

    Raises ConfigError where `out` is a file, is named like one, or cannot be written to.
    """
    refuse_file(out)
    return _write(files, out, "--out")


def _write(files: Mapping[str, bytes], out: Path, choice: str) -> list[Path]:
    """Write the files; `choice` is the option that error messages point to."""
    if not files:
        return []
    name = ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with hold_folder(out.resolve(), PATIENCE) as alone:
            if alone:
                _sweep(out, files)
            for name, data in files.items():
                store.write_atomically(out / name, data)
    except OSError as error:
        raise ConfigError(unwritten(out / name, error, choice)) from None
    return [out / name for name in files]


def require_writable(results: Path) -> None:
    """Raise ConfigError if the results folder is not writable; create nothing."""
    there = next(folder for folder in (results, *results.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError(f"{there}: nothing can be written there; choose another --results")


def refuse_file(out: Path) -> None:
    """Raise ConfigError if `out` is a file or has the suffix of one: a folder table.tex is a mistake."""
    if out.is_file() or (out.suffix in FILE_SUFFIXES and not out.is_dir()):
        raise ConfigError(f"--out {out}: names a file, and must be a folder; its files have their own names")


def _sweep(out: Path, names: Iterable[str]) -> None:
    """Remove temporary files left by a command that was killed during a write."""
    for name in names:
        for leftover in out.glob(f".{glob.escape(name)}.*.tmp"):
            leftover.unlink(missing_ok=True)
