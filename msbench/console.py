"""Printing: data to stdout, messages to stderr; nothing cut, wrapped or coloured without a terminal."""

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any


def prepare() -> None:
    """Let names that the terminal's encoding lacks degrade instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def say(text: str) -> None:
    """A message to stderr, verbatim; a reader that went away stops nothing."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def out(text: str) -> None:
    """Data to stdout, verbatim."""
    # Flushed here, where a reader that went away can still be told from a bug: at exit it is too late.
    print(text, flush=True)  # noqa: T201


def out_json(value: Any) -> None:
    """One JSON document to stdout and nothing else."""
    out(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False))


def out_rows(header: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """A table: ruled at a terminal, plain aligned columns into a pipe."""
    cells = [["" if value is None else str(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(header, cells, title)
        return
    if title:
        out(title)
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    for row in [list(header), *cells]:
        out("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


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
