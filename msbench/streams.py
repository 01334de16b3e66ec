"""Standard streams that end no command: one that is closed, or goes to a full disk or an absent reader.

Messages that cannot be written are dropped. Of data, nothing follows the first failure, which `exit_code`
reports once, at the end, when all else is done: a training is not lost because its table cannot be printed.
"""

import errno
import io
import os
import select
import sys
from contextlib import suppress

from msbench.errors import ExitCode


class _Messages(io.FileIO):
    """Stderr: each write is tried, as room may come back."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write what can be written, and say that it was all."""
        with suppress(OSError):
            return super().write(data) or len(data)  # None of one that does not block, and is full
        return len(data)


class _Data(io.FileIO):
    """Stdout: `failure` is the first error, after which nothing is written any more."""

    def __init__(self, descriptor: int, *, closed: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        self._was_closed = closed

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write until something fails."""
        if self.failure is None:
            try:
                if self._was_closed:
                    raise OSError(errno.EBADF, "it is closed")
                while (written := super().write(data)) is None:  # one that does not block, and is full
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.failure = error
        return len(data)


def prepare() -> None:
    """Put streams that do not fail in the place of the process's own, and /dev/null where there is none.

    Those that somebody replaced are left alone. The new ones stay to the end: Python writes at its exit too.
    """
    closed = [each is None for each in (sys.stdin, sys.stdout, sys.stderr)]
    if any(closed):
        _occupy()
    if closed[0]:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Data(1, closed=closed[1]), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(2), sys.stderr)


def exit_code(code: int) -> int:
    """What the command ends in, which has come to `code`; reports data that could not be written.

    A verdict or an error stands: only a success becomes a usage error. A reader that went away is none.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, _Data):
        return code
    sys.stdout.flush()
    if raw.failure is None or raw.failure.errno == errno.EPIPE:
        return code
    reason = raw.failure.strerror or raw.failure
    sys.stderr.write(
        f"msbench: standard output: cannot be written: {reason}; what was printed is incomplete:"
        " make room, or repeat the command with its output elsewhere\n"
    )
    return code or ExitCode.USAGE


def _occupy() -> None:
    """Let no file get the number of a closed stream: what a library prints would be written into it.

    Children inherit none of these, and so know as this process does which stream is closed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _text(raw: io.FileIO, instead_of: "io.TextIOWrapper | object | None") -> io.TextIOWrapper:
    """Text over `raw`, as it was; names that the encoding lacks degrade instead of ending the command."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(instead_of, "encoding", "utf-8"),
        errors="replace",
        line_buffering=getattr(instead_of, "line_buffering", True),
        write_through=getattr(instead_of, "write_through", False),
    )
