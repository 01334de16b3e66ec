"""Printing: data to stdout, messages to stderr; nothing cut, wrapped or coloured without a terminal.

What moves a cursor, sets a title or reorders its neighbours is printed as its escape: texts may come from
files that somebody else wrote.
"""

import contextlib
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from msbench.printable import json_escaped, printable


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
