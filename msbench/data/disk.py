"""What files on a disk need: a lock that dies with its process, room, and to be there after a power cut."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from msbench.data.progress import Progress
from msbench.errors import DataError


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock of `path`, ``.<name>.lock`` beside it; the system takes it from a process that dies.

    While another process holds it, `progress` is called each second and may raise, to stop waiting.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path.with_name(f".{path.name}.lock"))
    while True:
        try:
            lock.acquire(timeout=1)
            break
        except filelock.Timeout:
            progress("waiting for another process", 0, 1)
    try:
        yield
    finally:
        lock.release()


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
