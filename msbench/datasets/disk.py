"""File system utilities: locks released when their process dies, free space, hashes of unchanged files.

A file whose size, mtime, ctime and inode are those at the time of hashing still has that hash: writing into
it or resetting its mtime changes its ctime, which no call can set. The hashes are stored in ``.hashes.jsonl``
next to the files, one line a hash, appended whole; the last line of a name counts. Where it cannot be written
or read, files are hashed again. A disk that loses bytes changes no stamp: within `distrust_stamps` all files
are read.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.errors import DataError
from msbench.results.files import open_regular, parse_json, read_bytes
from msbench.results.locks import hold_file, hold_folder


@contextmanager
def lock_path(path: Path, progress: Progress) -> Iterator[None]:
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
def make_temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a private folder, removed at the end; first remove those left by killed processes.

    The folder is locked while in use; the system releases the lock if the process dies.
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(OSError), hold_folder(left) as mine:  # links are not followed
            if mine:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder, hold_folder(Path(folder)):
        yield Path(folder)


def describe_shortage(folder: Path, needed: int) -> str:
    """Return a message if `folder` has fewer than `needed` bytes free; else an empty string."""
    free = shutil.disk_usage(folder).free
    if needed <= free:
        return ""
    return f"{needed:,} bytes are needed and {folder} has {free:,} free: make room, or set MSBENCH_DATA"


def require_space(folder: Path, needed: int, what: str) -> None:
    """Raise DataError where `folder` has fewer than `needed` bytes free for `what`."""
    if lacking := describe_shortage(folder, needed):
        raise DataError(f"{what}: {lacking}")


def sync_folder(folder: Path) -> None:
    """Flush the list of names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


HASH_CACHE = ".hashes.jsonl"
CHUNK = 2**22
TICK_NS = 20_000_000  # clocks of file systems advance every 10 ms or less
COARSE_NS = 2_000_000_000  # or every second or two, where timestamps have no fractions


_rereading: ContextVar[Progress | None] = ContextVar("_rereading", default=None)


@contextmanager
def distrust_stamps(progress: Progress = ignore_progress) -> Iterator[None]:
    """Compute every hash from the bytes in this context, reporting to `progress`."""
    token = _rereading.set(progress)
    try:
        yield
    finally:
        _rereading.reset(token)


def find_reread_progress() -> Progress | None:
    """Return the progress callback for the bytes read again within `distrust_stamps`; outside of it None."""
    return _rereading.get()


class HashCache:
    """The hashes of the files in and below `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known = _read_cache(folder / HASH_CACHE)

    def digest(self, path: Path, algorithm: str = "sha256", progress: Progress = ignore_progress) -> str:
        """Return the hash of the bytes of `path` in hexadecimal, read again only where its stamp changed.

        Raises OSError where it cannot be read.
        """
        name = path.relative_to(self.folder).as_posix()
        known, again = self._known.get((name, algorithm)), find_reread_progress()
        if known is not None and again is None and known["stamp"] == _make_stamp(path.stat()):
            return str(known["digest"])
        return self._compute(path, name, algorithm, again or progress)

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file in the folder and keep its hashes: renaming changes its ctime, not its bytes."""
        before = old.stat()
        old.replace(new)
        after = new.stat()
        if _make_stamp(before)[:2] != _make_stamp(after)[:2] or before.st_ino != after.st_ino:
            return
        for (name, algorithm), known in list(self._known.items()):
            if name == old.relative_to(self.folder).as_posix() and known["stamp"] == _make_stamp(before):
                self._remember(new.relative_to(self.folder).as_posix(), algorithm, after, known["digest"])

    def _compute(self, path: Path, name: str, algorithm: str, progress: Progress) -> str:
        before = path.stat()
        settled = _wait_for_clock(before.st_ctime_ns)
        digest = hash_file(path, algorithm, progress)
        after = path.stat()
        if settled and _make_stamp(before) == _make_stamp(after):
            self._remember(name, algorithm, after, digest)
        return digest

    def _remember(self, name: str, algorithm: str, status: os.stat_result, digest: str) -> None:
        entry = {"file": name, "algorithm": algorithm, "stamp": _make_stamp(status), "digest": digest}
        self._known[name, algorithm] = entry
        line = json.dumps(entry).encode() + b"\n"
        # Unbuffered, a line is written at once; where it cannot be, the file is hashed again next time.
        path = self.folder / HASH_CACHE
        with suppress(OSError), open(path, "ab", buffering=0, opener=open_regular) as stream:
            stream.write(line)


def hash_file(path: Path, algorithm: str = "sha256", progress: Progress = ignore_progress) -> str:
    """Return the hash of the bytes of `path`, in hexadecimal."""
    computed, done, total = hashlib.new(algorithm), 0, path.stat().st_size
    with open(path, "rb", opener=open_regular) as stream:
        while chunk := stream.read(CHUNK):
            computed.update(chunk)
            done += len(chunk)
            progress(f"checking {path.name}", done, max(total, done))
    return computed.hexdigest()


def _make_stamp(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _wait_for_clock(ctime_ns: int) -> bool:
    """Wait until a write would change the ctime; return False where that takes longer than a moment.

    A write within the same tick of the clock as the one before it leaves the ctime the same.
    """
    if ctime_ns % 1_000_000_000 == 0:
        return time.time_ns() - ctime_ns > COARSE_NS
    age = time.time_ns() - ctime_ns
    if 0 <= age < TICK_NS:
        time.sleep((TICK_NS - age) / 1e9)
    return time.time_ns() - ctime_ns >= TICK_NS


def _read_cache(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Read the hashes from the lines; invalid lines, as after a full disk, are ignored."""
    try:
        lines = read_bytes(path).splitlines()
    except OSError:
        return {}
    known = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            entry = parse_json(line)
            known[entry["file"], entry["algorithm"]] = {"stamp": entry["stamp"], "digest": entry["digest"]}
    return known
