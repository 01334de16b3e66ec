"""Printing: data to stdout, messages to stderr; nothing cut, wrapped or coloured without a terminal.

What moves a cursor, sets a title or reorders its neighbours is printed as its escape: texts may come from
files that somebody else wrote.
"""

import contextlib
import errno
import io
import json
import os
import select
import shlex
import shutil
import string
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from msbench.errors import ExitCode

INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
PLAIN = frozenset((string.ascii_letters + string.digits + "./_-=:").encode())
"""Bytes that a shell takes for themselves."""


def printable(text: str) -> str:
    """`text` with its control, formatting (bidi too), surrogate and non-characters as Python escapes."""
    if text.isprintable():  # nearly all are, and a large page has a million characters
        return text
    return "".join(_escaped(character) if _hidden(character) else character for character in text)


def _hidden(character: str) -> bool:
    # U+xxFFFE and U+xxFFFF are no characters, and no XML may hold them.
    return unicodedata.category(character) in INVISIBLE or ord(character) & 0xFFFE == 0xFFFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_escaped(text: str) -> str:
    """A JSON document that means the same, with what `printable` escapes as JSON escapes it."""
    return "\n".join(
        line if line.isprintable() else "".join(json.dumps(c)[1:-1] if _hidden(c) else c for c in line)
        for line in text.split("\n")
    )


def encodable(value: Any) -> Any:
    """Plain values with what UTF-8 cannot encode as Python escapes, in texts at any depth and in keys."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(each) for each in value)
    return value


def command_line(words: Iterable[str]) -> str:
    """Words as a shell takes them, also where one is a path that is no UTF-8.

    Examples
    --------
    >>> print(command_line(["ls", "a b", "caf\udce9"]))
    ls 'a b' $'caf\\xe9'
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if (shown := encodable(word)) == word:
        return shlex.quote(word)
    try:
        data = word.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # from no path
        return shlex.quote(shown)
    # Bytes as bash, zsh and POSIX of 2024 read them.
    inner = "".join(chr(byte) if byte in PLAIN else f"\\x{byte:02x}" for byte in data)
    return f"$'{inner}'"


def mute() -> None:
    """Print nothing from here on: of several processes that do one thing, one speaks."""
    _Muted.on = True


def muted() -> bool:
    """Whether `mute` was called."""
    return _Muted.on


class _Muted:
    on = False


def say(text: str) -> None:
    """A message to stderr; where it cannot be written, nothing is stopped by that."""
    if muted():
        return
    with contextlib.suppress(OSError):
        print(_shown(text), file=sys.stderr, flush=True)  # noqa: T201


def out(text: str) -> None:
    """Data to stdout."""
    _print(_shown(text))


def _shown(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _print(text: str) -> None:
    if muted():
        return
    print(text, flush=True)  # noqa: T201


def out_json(value: Any) -> None:
    """One JSON document to stdout and nothing else; an encoding that lacks characters gets their escapes."""
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=not unicode, allow_nan=False)
    _print(json_escaped(text))


def out_rows(
    header: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", below: int = 0
) -> None:
    """A table: ruled at a terminal, plain aligned columns into a pipe.

    The last columns, as many as `below`, go under each row at a terminal too narrow for them beside it.
    """
    cells = [["" if value is None else printable(str(value)) for value in row] for row in rows]
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size().columns
    if terminal and not (below and _ruled_width(header, cells) > columns):
        _rich_table(header, cells, title)
        return
    if title:
        out(title)
    under = below if terminal else 0
    beside = [row[: len(row) - under] for row in (list(header), *cells)]
    for line, whole in zip(aligned(beside), (header, *cells), strict=True):
        out(line)
        if under:
            out(_below(" · ".join(filter(None, whole[-under:])), columns))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, its cells as wide as the widest of their column; no blanks at the end."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _below(text: str, columns: int) -> str:
    """Text under a row, in lines of at most `columns`; a path or a command that is longer stays whole."""
    indent = "    "
    return textwrap.fill(
        text,
        columns,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ruled_width(header: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """What `_rich_table` takes: two blanks between columns and one more on either side of each."""
    return sum(max(map(len, column)) + 3 for column in zip(header, *cells, strict=True)) + 1


def _rich_table(header: Sequence[str], cells: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, not str: a name such as [s4]_base is no markup.
    table = Table(title=Text(title) if title else None, box=box.SIMPLE_HEAD, title_justify="left")
    for name in header:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


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


def prepare_streams() -> None:
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


def exit_code_of_streams(code: int) -> int:
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
