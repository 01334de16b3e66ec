"""Files that somebody else may have written: what is too large or too deep is an error, and never the memory.

Whoever looks through a folder of results opens what is called ``run.json`` there, whatever it is: a pipe
would be waited for without end, and a file of many gigabytes would be read.
"""

import json
import os
import stat
from pathlib import Path
from typing import Any

LARGEST_RECORD = 2**26
"""Bytes. Records have some tens of thousands, the longest logs and measures of mixing some millions."""


def read_bytes(path: Path, largest: int | None = LARGEST_RECORD) -> bytes:
    """All bytes of an ordinary file. Raises OSError, `largest` bytes being the most that are read.

    They are read and never mapped: not every network mount can map a file. Without `largest` there is no
    limit, which is for files that msbench itself wrote.
    """
    with open(path, "rb", opener=_opened) as stream:
        data = stream.read(-1 if largest is None else largest + 1)
    if largest is not None and len(data) > largest:
        raise OSError(0, f"more than {largest:,} bytes, which none should have", str(path))
    return data


def require_ordinary(path: Path) -> None:
    """Raise OSError, as `read_bytes` would, for what cannot be opened or is no ordinary file."""
    os.close(_opened(path, os.O_RDONLY))


def _opened(path: str | Path, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe that nobody writes to would not return.
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "no ordinary file", str(path))
    except OSError:  # a network mount may open what it then knows nothing of
        os.close(descriptor)
        raise
    return descriptor


def parse_json(data: bytes | str) -> Any:
    """The values of a JSON document. Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
