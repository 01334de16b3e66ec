"""File system utilities: locks released when their process dies, free space, durability after power cuts."""

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
    """Hold the lock of `path`, ``.<name>.lock`` next to it; the system releases it when the process dies.

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
    """Yield a private folder, removed at the end; first remove those left by killed processes.

    The folder is locked while in use; the system releases the lock if the process dies.
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), hold_folder(left) as mine:  # links are not followed
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder, hold_folder(Path(folder)):
        yield Path(folder)


def shortage(folder: Path, needed: int) -> str:
    """Return a message if `folder` has fewer than `needed` bytes free; else an empty string."""
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return ""
    return f"{needed:,} bytes are needed and {folder} has {free:,} free: make room, or set MSBENCH_DATA"


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise DataError where `folder` has fewer than `needed` bytes free for `what`."""
    if lacking := shortage(folder, needed):
        raise DataError(f"{what}: {lacking}")


def sync_folder(folder: Path) -> None:
    """Flush the list of names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
