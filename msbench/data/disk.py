"""What files on a disk need: a lock that dies with its process, room, and to be there after a power cut."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from msbench.data.progress import Progress
from msbench.errors import DataError

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]


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


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """A folder of one's own that goes at the end; those of processes that were killed go at the beginning.

    Whoever has one holds a lock on it, which the system takes from a process that dies.
    """
    for left in parent.glob(f"{prefix}*"):
        with _held(left) as mine:
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder, _held(Path(folder)):
        yield Path(folder)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold the lock on a folder itself; False where another process has it, or the system has none."""
    if fcntl is None:
        yield False
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mine = True
    except OSError:
        mine = False
    try:
        yield mine
    finally:
        os.close(descriptor)


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
