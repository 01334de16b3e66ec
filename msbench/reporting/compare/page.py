"""Pages of facts and small tables: wrapped at a terminal, whole lines in a pipe, names verbatim."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msbench import console
from msbench.console import printable

INDENT = "  "


@dataclass(frozen=True)
class Facts:
    """Names and values under a title; `whole` names those whose value is never wrapped, such as a command."""

    title: str
    pairs: Sequence[tuple[str, str]]
    whole: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Grid:
    """A small table under a title."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[object]]


Part = Facts | Grid


def print_page(parts: Iterable[Part], *, after: bool = False) -> None:
    """Print all non-empty parts, an empty line between them; with `after` also before the first."""
    filled = [part for part in parts if (part.pairs if isinstance(part, Facts) else part.rows)]
    for number, part in enumerate(filled):
        if number or after:
            console.out("")
        if isinstance(part, Grid):
            _print_grid(part)
        else:
            _print_facts(part)


def _print_grid(part: Grid) -> None:
    console.out(part.title)
    cells = [
        ["" if cell is None else printable(str(cell)) for cell in row] for row in (part.header, *part.rows)
    ]
    for line in console.aligned(cells):
        console.out((INDENT + line).rstrip())


def _print_facts(part: Facts) -> None:
    console.out(part.title)
    width = max(len(name) for name, _ in part.pairs)
    for name, value in part.pairs:
        first = f"{INDENT}{name.ljust(width)}  " if name or width else INDENT
        for line in _lines(value, first, name in part.whole):
            console.out(line.rstrip())


def _lines(value: str, first: str, whole: bool) -> list[str]:
    """Return the lines of a fact; later ones are indented to its value."""
    later = " " * len(first)
    lines = value.splitlines() or [""]
    if whole or not sys.stdout.isatty():
        return [(later if number else first) + line for number, line in enumerate(lines)]
    columns = max(shutil.get_terminal_size().columns, len(first) + 20)
    wrapped = []
    for number, line in enumerate(lines):
        wrapped += textwrap.wrap(
            line,
            columns,
            initial_indent=later if number else first,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return wrapped
