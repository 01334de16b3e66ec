"""Locks between processes, which the operating system releases when the holding process ends.

All locks of msbench are of this kind. A file system without them is refused: filelock's own fallback, a
marker file, would outlive a killed process and block every later command.
"""

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from msbench.errors import ConfigError

POLL = 0.05
NEVER = (errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system without locks. Others, such as ENOLCK, may be temporary."""


@contextmanager
def hold_file(
    path: Path, choice: str, *, wait: bool = True, between: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Hold the lock file `path`; yields False at once if another process holds it and `wait` is off.

    While waiting, `between` is called every second and may raise. Raises ConfigError, which names the option
    `choice`, where the file system has no locks, and OSError where the file cannot be opened.
    """
    lock = filelock.FileLock(path, fallback_to_soft=False)
    try:
        mine = _acquire(lock, wait, between)
    except OSError as error:
        if error.filename is not None:  # opening the file failed, not locking it
            raise
        if error.errno in NEVER:
            path.unlink(missing_ok=True)
        reason = f"its file system refuses file locks: {error.strerror or error}"
        raise ConfigError(f"{path.parent}: {reason}; choose another {choice}, on a local disk") from None
    try:
        yield mine
    finally:
        if mine:
            lock.release()


def _acquire(lock: filelock.BaseFileLock, wait: bool, between: Callable[[], None]) -> bool:
    if not filelock.has_fcntl and sys.platform != "win32":
        raise OSError(errno.ENOSYS, "this Python was built without file locks")
    while True:
        try:
            lock.acquire(timeout=1 if wait else 0)
        except filelock.Timeout:
            if not wait:
                return False
            between()
        else:
            return True


@contextmanager
def hold_folder(folder: Path, patience: float = 0.0) -> Iterator[bool]:
    """Hold a lock on a folder itself, without a lock file; waits up to `patience` seconds.

    Yields False where another process keeps it or the system cannot lock folders, as on some network file
    systems: use it only where exclusive access is preferable, not required. Raises OSError where `folder` is
    a link or not a folder.
    """
    if not filelock.has_fcntl:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield _lock_folder(descriptor, time.monotonic() + patience)
    finally:
        os.close(descriptor)


def _lock_folder(descriptor: int, end: float) -> bool:
    while True:
        try:
            if filelock.lock_descriptor(descriptor, blocking=False):
                return True
        except OSError:
            return False
        if time.monotonic() >= end:
            return False
        time.sleep(POLL)
