"""Files that a user asks for: each is replaced whole, so that whatever ends a command leaves old or new.

Files of one command are replaced one after another: where it is killed between two of them, they are of
different ages, and the same command makes them one again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msbench import store
from msbench.errors import ConfigError

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

FILE_SUFFIXES = (".csv", ".tex", ".html", ".json", ".md", ".txt", ".pdf")


def write_files(files: Mapping[str, bytes], out: Path) -> list[Path]:
    """Write files of these names to the folder `out`; what a command that was killed left there goes first.

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
        raise ConfigError(f"--out {out}: names a file, and must be a folder; its files have their own names")


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Wait until no other command writes here; False where the system cannot tell.

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
    """Remove the temporary files of a command that was killed in the middle of a write."""
    for name in names:
        for leftover in out.glob(f".{name}.*.tmp"):
            leftover.unlink(missing_ok=True)
