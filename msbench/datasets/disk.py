"""What files on a disk need: a lock that dies with its process, room, and to be there after a power cut."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msbench.datasets.progress import Progress
from msbench.errors import DataError
from msbench.results.locks import hold_file, hold_folder


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of `path`, ``.<name>.lock`` beside it; the system takes it from a process that dies.

    While another process holds it, `progress` is called each second and may raise, to stop waiting. Raises
    ConfigError where the file system has no locks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)

    def between() -> None:
        progress("waiting for another process", 0, 1)

    with hold_file(path.with_name(f".{path.name}.lock"), "MSBENCH_DATA", between=between):
        yield


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder of one's own that goes at the end; those of processes that were killed go at the beginning.

    Whoever has one holds a lock on it, which the system takes from a process that dies.
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), hold_folder(left) as mine:  # a link is no such folder, and not followed
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder, hold_folder(Path(folder)):
        yield Path(folder)


def shortage(folder: Path, needed: int) -> str:
    """What to say where `folder` has fewer than `needed` bytes free; an empty string where it has enough."""
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return ""
    return f"{needed:,} bytes are needed and {folder} has {free:,} free: make room, or set MSBENCH_DATA"


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise DataError where `folder` has fewer than `needed` bytes free for `what`."""
    if lacking := shortage(folder, needed):
        raise DataError(f"{what}: {lacking}")


def sync_folder(folder: Path) -> None:
    """To the disk: which names `folder` holds."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
