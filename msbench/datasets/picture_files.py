"""Picture files in place: checked once, and compared with the recorded checksum whenever they are read.

A quick check reads both ends of a file and accepts one that has a format's first bytes and end mark; only
one without an end mark is decoded. In a full check every file is decoded, and any byte that changes later
is noticed.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import Progress
from msbench.datasets.pictures import decode, has_end
from msbench.errors import DataError

END = 64
"""Bytes at either end of a file that a quick check reads."""
AT_ONCE = 512
PER_PROCESSOR = 4
"""Threads a core: a quick check waits for the disk nearly all of its time."""


@dataclass(frozen=True)
class PictureSizes:
    """Sizes in bytes (n,) int64 and CRC-32 (n,) uint32 of files, and the faults of some, by number.

    The CRC is of both ends of a file, or of all of it after a full check.
    """

    sizes: NDArray[np.int64]
    checksums: NDArray[np.uint32]
    faults: dict[int, str]


def look(root: Path, names: Sequence[str], *, full: bool, processes: int, progress: Progress) -> PictureSizes:
    """Check the files below `root`. Raises DataError where one cannot be read."""
    seen = PictureSizes(np.zeros(len(names), np.int64), np.zeros(len(names), np.uint32), {})
    threads = processes if full else PER_PROCESSOR * processes
    with ThreadPoolExecutor(threads, "look") as pool:
        for start in range(0, len(names), AT_ONCE):
            progress("looking at images", start, len(names))
            chunk = names[start : start + AT_ONCE]
            paths = [root / name for name in chunk]
            for number, found in enumerate(pool.map(_whole if full else _ends, paths), start):
                seen.sizes[number], seen.checksums[number], fault = found
                if fault:
                    seen.faults[number] = fault
    progress("looking at images", len(names), max(len(names), 1))
    return seen


def read(path: Path, size: int, checksum: int, *, full: bool) -> bytes:
    """Return the bytes of a file that was checked. Raises DataError where it has changed since."""
    data = _bytes(path)
    found = zlib.crc32(data) if full else checksum_of_ends(data[:END], data[-END:])
    if len(data) != size or found != checksum:
        raise DataError(
            f"{path}: is not the file that was set up (then {size:,} bytes, now {len(data):,}, or others):"
            " put it back, or set the images up again"
        )
    return data


def checksum_of_ends(head: bytes, tail: bytes) -> int:
    """Return the CRC-32 of the first and the last bytes of a file."""
    return zlib.crc32(tail, zlib.crc32(head))


def _ends(path: Path) -> tuple[int, int, str]:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, END, 0)
            tail = os.pread(descriptor, END, max(0, size - END))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        fault = "" if has_end(head, tail) else _fault(_bytes(path))
    except ValueError as error:
        fault = str(error)
    return size, checksum_of_ends(head, tail), fault


def _whole(path: Path) -> tuple[int, int, str]:
    data = _bytes(path)
    return len(data), zlib.crc32(data), _fault(data)


def _fault(data: bytes) -> str:
    try:
        decode(data)
    except ValueError as error:
        return str(error)
    return ""


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read: {error.strerror}")


def described(faults: Sequence[str], most: int = 10) -> Iterator[str]:
    """Yield the first few of many lines, and the number of further ones."""
    yield from faults[:most]
    if len(faults) > most:
        yield f"and {len(faults) - most:,} more"
