"""Reading and writing of files, safe against untrusted content, interruption and other commands.

Writes are atomic: an interrupted command leaves the old file or the new one. Files of one command are
replaced one after another. If it is killed between two of them, they are from different runs of the command;
running it again makes them consistent.

Reads have limits, as scanning a results folder opens every ``run.json`` in it: a named pipe would block
forever, and a file of many gigabytes would fill the memory.
"""

import atexit
import errno
import glob
import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from msbench.errors import ConfigError, explain_unwritable
from msbench.results.locks import hold_folder

PATIENCE = 30.0
"""Seconds. In a shared folder anybody may hold a lock forever, and files are whole without one."""
FILE_SUFFIXES = (".csv", ".tex", ".html", ".json", ".md", ".txt", ".pdf")
DEEPEST = 64
"""Levels of a JSON document: records have six. Functions that follow its levels do not run out of stack."""
FORMULA = re.compile("[=+@\t\r\n\uff1d\uff0b\uff20\uff0d]|-(?!-?$|[-.e 0-9]+$)")
"""Beginning of a formula in spreadsheets, in full width too; dashes and negative numbers alone are none."""
LARGEST_RECORD = 2**26
"""Bytes. Records have tens of thousands, the longest logs and mixing measurements some millions."""


def read_bytes(path: Path, largest: int | None = LARGEST_RECORD) -> bytes:
    """Return all bytes of a regular file. Raises OSError if it is not one, or has more than `largest` bytes.

    The file is read, not memory-mapped: not every network mount supports mapping. With `largest` None there
    is no limit, which is for files that msbench itself wrote.
    """
    with open(path, "rb", opener=open_regular) as stream:
        data = stream.read(-1 if largest is None else largest + 1)
    if largest is not None and len(data) > largest:
        raise OSError(0, f"more than {largest:,} bytes, which none should have", str(path))
    return data


def require_regular(path: Path) -> None:
    """Raise OSError, as `read_bytes` would, if `path` cannot be opened or is not a regular file."""
    os.close(open_regular(path, os.O_RDONLY))


def open_regular(path: str | Path, flags: int) -> int:
    """Open a path that others may have made, as opener of `open`: no pipe is waited for, no link written to.

    Raises OSError where `path` is not a regular file.
    """
    # Without O_NONBLOCK, opening a pipe that nobody else has opened would block.
    flags |= getattr(os, "O_NONBLOCK", 0)
    if flags & (os.O_WRONLY | os.O_RDWR):
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link or a pipe
            error.strerror = "not a regular file"
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file", str(path))
    except OSError:  # on a network mount, fstat may fail after a successful open
        os.close(descriptor)
        raise
    return descriptor


def parse_json(data: bytes | str) -> Any:
    """Return the values of a JSON document. Raises ValueError, also if it is nested too deeply."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [found]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in _list_values(each)]
    if level:
        raise ValueError("nested too deeply")
    return found


def _list_values(value: Any) -> Iterable[Any]:
    """Return the values inside a JSON value: of a list or a mapping."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def list_lines(text: str) -> list[str]:
    """Return the lines of a text, which end at LF or CRLF alone: `str.splitlines` knows nine other ends."""
    lines = re.split("\r?\n", text)
    return lines if lines[-1] else lines[:-1]


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary file, flush it to disk, then rename it to `path`.

    Its mode follows the user's umask. Raises OSError with the name of `path`; an older file is then left
    unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # An unpredictable name and O_EXCL: a link planted by another user is never followed.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def write_file(path: Path, data: bytes, choice: str) -> None:
    """Write one file of this name; raises ConfigError as `write_files` does.

    `choice` is the option that error messages point to.
    """
    refuse_folder(path, choice)
    _write({path.name: data}, path.parent, choice)


def write_files(files: Mapping[str, bytes], out: Path) -> list[Path]:
    """Write files of these names to the folder `out`, after removing temporary files of killed commands.

    Raises ConfigError where `out` is a file, is named like one, or cannot be written to.
    """
    refuse_file(out)
    return _write(files, out, "--out")


def _write(files: Mapping[str, bytes], out: Path, choice: str) -> list[Path]:
    if not files:
        return []
    name = ""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with hold_folder(out.resolve(), PATIENCE) as alone:
            if alone:
                _remove_temporary(out, files)
            for name, data in files.items():
                write_atomically(out / name, data)
    except OSError as error:
        raise ConfigError(explain_unwritable(out / name, error, choice)) from None
    return [out / name for name in files]


@contextmanager
def update_file(path: Path, choice: str) -> Iterator[Callable[[bytes], None]]:
    """Lock the folder of `path` against other commands; yields the function that writes the file.

    A file that is read, changed and written back inside the block loses no entry of a command that does the
    same. Raises ConfigError where `path` is a folder, or its folder cannot be written to or locked.
    """
    refuse_folder(path, choice)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with hold_folder(path.parent.resolve(), PATIENCE) as alone:
            if not alone:
                raise ConfigError(f"{path.parent}: cannot be locked, or another command holds it; try again")
            _remove_temporary(path.parent, [path.name])
            yield lambda data: write_atomically(path, data)
    except OSError as error:
        raise ConfigError(explain_unwritable(path, error, choice)) from None


def _remove_temporary(out: Path, names: Iterable[str]) -> None:
    """Remove temporary files left by a command that was killed during a write."""
    for name in names:
        for leftover in out.glob(f".{glob.escape(name)}.*.tmp"):
            leftover.unlink(missing_ok=True)


def refuse_folder(path: Path, choice: str) -> None:
    """Raise ConfigError where a folder has the name of a file to write."""
    if path.is_dir():
        raise ConfigError(f"{choice} {path}: cannot be written: it is a folder")


def encode_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a header and rows as CSV in UTF-8 with LF: floats unrounded, None empty, truth as true, false.

    Names stay as they are. A name from the command line may contain bytes that are not UTF-8; they become
    escapes and do not abort the command, and so does the first character of a text that spreadsheets would
    run as a formula.
    """
    text = "".join(",".join(map(_quote, row)) + "\n" for row in (header, *rows))
    return text.encode("utf-8", "backslashreplace")


def _quote(value: object) -> str:
    """Quote a value where necessary; the standard writer leaves a lone CR, which its own reader refuses."""
    text = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str) and FORMULA.match(value):
        text = f"\\u{ord(value[0]):04x}{value[1:]}"
    return '"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\r\n') else text


def refuse_file(out: Path) -> None:
    """Raise ConfigError if `out` is a file or has the suffix of one: a folder table.tex is a mistake."""
    if out.is_file() or (out.suffix in FILE_SUFFIXES and not out.is_dir()):
        raise ConfigError(f"--out {out}: names a file, and must be a folder; msbench names the files in it")


def require_writable(results: Path) -> None:
    """Raise ConfigError if the results folder is not writable; create nothing."""
    existing = next(folder for folder in (results, *results.absolute().parents) if folder.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"{existing}: is not writable; choose another --results")


def list_shared_folders(results: Path, name: str) -> list[Path]:
    """Return the folders to search for files that come with msbench: `name` in `results`, and its own."""
    return [results / name, find_own_folder(name)]


def find_own_folder(name: str) -> Path:
    """Return the folder of files that come with msbench: its ``suites``, ``reported`` or ``baseline``.

    They are in the package, wherever it is installed; in a checkout, links lead to them.
    """
    return (find_package() / "share" / name).resolve()


@cache
def find_package() -> Path:
    """Return the folder of the package's files: of one in a zip, a copy that is deleted at exit."""
    package = resources.files("msbench")
    if isinstance(package, Path):
        return package
    folder = Path(tempfile.mkdtemp(prefix="msbench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    loader: Any = sys.modules["msbench"].__loader__
    with zipfile.ZipFile(loader.archive) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith("msbench/")])
    return folder / "msbench"
