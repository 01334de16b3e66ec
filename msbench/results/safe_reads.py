"""Safe reading of untrusted files: one that is too large or nested too deeply raises an error.

Scanning a results folder opens every ``run.json`` in it. Without these checks a named pipe would block
forever, and a file of many gigabytes would fill the memory.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_RECORD = 2**26
"""Bytes. Records have tens of thousands, the longest logs and mixing measurements some millions."""


def read_bytes(path: Path, largest: int | None = LARGEST_RECORD) -> bytes:
    """Return all bytes of a regular file. Raises OSError if it is not one, or has more than `largest` bytes.

    The file is read, not memory-mapped: not every network mount supports mapping. With `largest` None there
    is no limit, which is for files that msbench itself wrote.
    """
    with open(path, "rb", opener=_opened) as stream:
        data = stream.read(-1 if largest is None else largest + 1)
    if largest is not None and len(data) > largest:
        raise OSError(0, f"more than {largest:,} bytes, which none should have", str(path))
    return data


def require_ordinary(path: Path) -> None:
    """Raise OSError, as `read_bytes` would, if `path` cannot be opened or is not a regular file."""
    os.close(_opened(path, os.O_RDONLY))


def _opened(path: str | Path, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe without a writer would block.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "no ordinary file", str(path))
    except OSError:  # on a network mount, fstat may fail after a successful open
        os.close(descriptor)
        raise
    return descriptor


def parse_json(data: bytes | str) -> Any:
    """Return the values of a JSON document. Raises ValueError, also if it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
