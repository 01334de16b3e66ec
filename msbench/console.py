"""Console output: data to stdout, messages to stderr; nothing is wrapped or styled without a terminal.

Characters that move the cursor, set a title or reorder text are printed as escapes, and so is what would make
a line a command to GitHub Actions: texts may come from files written by others.
"""

import contextlib
import errno
import io
import json
import os
import re
import select
import shlex
import shutil
import string
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, TextIO

from msbench.errors import ExitCode

GAP = "  "
"""The gap between the columns of a table."""
INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
COMMAND = re.compile(r"^\s*:(?=:)|#(?=#\w*\[)", re.MULTILINE)
"""The first character of a command to GitHub's runner: ``::error``, or ``##[error]`` anywhere in a line."""
LEAST_ROOM = 20
"""The narrowest column in which words are wrapped next to other columns."""
JSON_VERSION = 1
"""Version of what ``--json`` prints (docs/json.md): raised when a field is removed or changes its meaning."""
LIFELINE = "MSBENCH_LIFELINE"
"""Variable that is set if a process's standard input is held open by its parent, of the same command."""
PLAIN = frozenset((string.ascii_letters + string.digits + "./_-=:").encode())
"""Bytes that need no quoting in a shell."""


def printable(text: str) -> str:
    """Return `text` with control, formatting (bidi too), surrogate and non-characters as Python escapes."""
    if text.isprintable():  # true of nearly all, and a large page has a million characters
        return text
    return "".join(_escaped(character) if _hidden(character) else character for character in text)


def _hidden(character: str) -> bool:
    # U+xxFFFE and U+xxFFFF are noncharacters, which XML must not contain.
    return unicodedata.category(character) in INVISIBLE or ord(character) & 0xFFFE == 0xFFFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def format_count(count: int | None, noun: str) -> str:
    """Return a number and its noun, such as ``1 thread`` or ``2 threads``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def escape_commands(text: str) -> str:
    """Return `text` with no line that GitHub Actions would obey as a command.

    Examples
    --------
    >>> print(escape_commands("::error::x"))
    \\x3a:error::x
    """
    return COMMAND.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}", text)


def json_escaped(text: str) -> str:
    """Return an equivalent JSON document with what is escaped in other output written as JSON escapes."""
    shown = "\n".join(
        line if line.isprintable() else "".join(json.dumps(c)[1:-1] if _hidden(c) else c for c in line)
        for line in text.split("\n")
    )
    return COMMAND.sub(r"\\u0023", shown)  # only a # is found: no line of JSON begins with a colon


def encodable(value: Any) -> Any:
    """Replace what UTF-8 cannot encode by Python escapes, in nested strings and in keys."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(each) for each in value)
    return value


def command_line(words: Iterable[str]) -> str:
    r"""Quote words for a shell, including paths that are not valid UTF-8.

    Examples
    --------
    >>> print(command_line(["ls", "a b", "caf\udce9"]))
    ls 'a b' $'caf\xe9'
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if (shown := encodable(word)) == word:
        return shlex.quote(word)
    try:
        data = word.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # never from a path
        return shlex.quote(shown)
    # Escaped bytes in the form that bash, zsh and POSIX 2024 read.
    inner = "".join(chr(byte) if byte in PLAIN else f"\\x{byte:02x}" for byte in data)
    return f"$'{inner}'"


def mute() -> None:
    """Print nothing from now on: of several processes that do the same work, only one prints."""
    _Muted.on = True


def muted() -> bool:
    """Return True if `mute` was called."""
    return _Muted.on


def can_move() -> bool:
    """Return True if stderr is a terminal whose cursor moves: else each update of a bar would be a line."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class _Muted:
    on = False


def say(text: str) -> None:
    """Print a message to stderr; a failure to write it is ignored."""
    _say(_shown(text))


def say_command(command: str) -> None:
    """Print to stderr one line that GitHub Actions obeys, whose texts its caller has escaped."""
    _say(printable(command))


def _say(text: str) -> None:
    if muted():
        return
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def out(text: str) -> None:
    """Print data to stdout."""
    _print(_shown(text))


def _shown(text: str) -> str:
    return escape_commands("\n".join(map(printable, text.split("\n"))))


def _print(text: str) -> None:
    if muted():
        return
    print(text, flush=True)  # noqa: T201


def out_json(value: Any) -> None:
    """Print one JSON document to stdout; characters that the encoding lacks are escaped.

    It, or each entry of a list, gets a `schema_version`, unless it is a file's and has one of its own.
    """
    if isinstance(value, dict):
        value = {"schema_version": JSON_VERSION, **value}
    elif isinstance(value, list):
        value = [{"schema_version": JSON_VERSION, **each} for each in value]
    unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=not unicode, allow_nan=False)
    _print(json_escaped(text))


def is_styled(stream: TextIO) -> bool:
    """Return True if `stream` may get escape sequences: a terminal, unless NO_COLOR or a dumb one forbids."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def out_rows(
    header: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", below: int = 1
) -> None:
    """Print a table in aligned columns; at a terminal with a bold header.

    If a terminal is too narrow, the last `below` columns become one, and as many more as do not fit either.
    It is wrapped at words, next to the others if there is room for that, else under each row.
    """
    cells = [["" if value is None else printable(str(value)) for value in row] for row in (header, *rows)]
    if title:
        out_wrapped(title, GAP)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    head, *body = lay_out(cells, below, columns)
    _print(f"\x1b[1m{_shown(head)}\x1b[0m" if is_styled(sys.stdout) else _shown(head))
    for lines in body:
        out(lines)


def out_wrapped(text: str, indent: str) -> None:
    """Print a line; at a terminal it is wrapped at words, and continued with `indent`."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    out("\n".join([text] if columns is None else wrap_words(printable(text), columns, later=indent)))


def lay_out(cells: Sequence[Sequence[str]], below: int, columns: int | None) -> list[str]:
    """Return the text of each row, of several lines where `columns` are too few for one."""
    from rich.cells import cell_len

    lines, count = align_rows(cells), len(cells[0])
    if columns is None or max(map(cell_len, lines)) <= columns or count == 1:
        return lines
    widths = [max(map(cell_len, align_rows([row[:-under] for row in cells]))) for under in range(1, count)]
    fewest = next((n for n, width in enumerate(widths, 1) if n >= below and width <= columns), count - 1)
    # With one column more there may be room for all of them next to the others.
    for under in (fewest, min(fewest + 1, count - 1)):
        firsts = align_rows([row[:-under] for row in cells])
        lasts = [" · ".join(filter(None, row[-under:])) for row in cells]
        width = widths[under - 1] + len(GAP)
        longest = max(cell_len(word) for last in lasts for word in last.split(" "))
        if columns - width >= max(LEAST_ROOM, longest):
            begins = [f"{first}{' ' * (width - cell_len(first))}" for first in firsts]
            wrapped = [wrap_words(last, columns - width) or [""] for last in lasts]
            between = "\n" + " " * width
            return [(begin + between.join(of)).rstrip() for begin, of in zip(begins, wrapped, strict=True)]
    firsts = align_rows([row[:-fewest] for row in cells])
    lasts = [" · ".join(filter(None, row[-fewest:])) for row in cells]
    under_rows = [wrap_words(last, columns, "    ", "    ") for last in lasts]
    return ["\n".join([first, *of]) for first, of in zip(firsts, under_rows, strict=True)]


def wrap_words(text: str, columns: int, first: str = "", later: str = "") -> list[str]:
    """Return lines of at most `columns`, indented by `first` and `later`; no word is broken, however long."""
    return textwrap.wrap(
        text,
        columns,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each row, its columns aligned, without trailing blanks."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return [
        GAP.join(
            cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


class _Messages(io.FileIO):
    """Stderr: every write is attempted, as space may become available again."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write what can be written, and report all of it as written."""
        with suppress(OSError):
            return super().write(data) or len(data)  # None from a non-blocking stream that is full
        return len(data)


class _Data(io.FileIO):
    """Stdout: `failure` is the first error, after which nothing more is written."""

    def __init__(self, descriptor: int, *, closed: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        self._was_closed = closed

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write unless an earlier write failed."""
        if self.failure is None:
            try:
                if self._was_closed:
                    raise OSError(errno.EBADF, "it is closed")
                while (written := super().write(data)) is None:  # a non-blocking stream that is full
                    select.select([], [self], [])
                return written
            except OSError as error:
                self.failure = error
        return len(data)


def prepare_streams() -> None:
    """Replace the process's standard streams by ones that do not fail, and closed ones by /dev/null.

    Streams that a caller has replaced are left alone. The new ones stay until the process ends, as Python
    also writes at exit.
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
    """Return the exit code of a command that finished with `code`; report data that could not be written.

    A verdict or an error stands: only success becomes a usage error. A reader that closed the pipe is not an
    error.
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
    """Occupy the numbers of closed streams, so that no file gets one and receives what a library prints.

    Child processes do not inherit them, and so see the same streams as closed.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _text(raw: io.FileIO, instead_of: "io.TextIOWrapper | object | None") -> io.TextIOWrapper:
    """Wrap `raw` in a text stream like the former one; characters that the encoding lacks are replaced."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(instead_of, "encoding", "utf-8"),
        errors="replace",
        line_buffering=getattr(instead_of, "line_buffering", True),
        write_through=getattr(instead_of, "write_through", False),
    )
