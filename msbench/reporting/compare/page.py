"""Pages of facts and small tables: wrapped at a terminal, whole lines in a pipe, names verbatim."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msbench import console
from msbench.console import printable
from msbench.results.files import list_lines

INDENT = "  "
ROWS = 12
"""The most epochs on a page; JSON documents have all."""
BAR = 28
"""Length of the longest bar in characters."""


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
        console.out(part.title)
        for line in _format_grid(part) if isinstance(part, Grid) else _format_facts(part):
            console.out(line.rstrip())


def _format_grid(part: Grid) -> Iterable[str]:
    cells = [
        ["" if cell is None else printable(str(cell)) for cell in row] for row in (part.header, *part.rows)
    ]
    columns = shutil.get_terminal_size().columns - len(INDENT) if sys.stdout.isatty() else None
    return [INDENT + line for text in console.lay_out(cells, 1, columns) for line in text.split("\n")]


def _format_facts(part: Facts) -> Iterable[str]:
    width = max(len(printable(name)) for name, _ in part.pairs)
    for name, value in part.pairs:
        # A name may be a key of a record that was written elsewhere.
        first = f"{INDENT}{printable(name).ljust(width)}  " if width else INDENT
        yield from _format_value(value, first, name in part.whole)


def _format_value(value: str, first: str, whole: bool) -> Iterable[str]:
    """Yield the lines of a fact; later ones are indented to its value."""
    later = " " * len(first)
    columns = max(shutil.get_terminal_size().columns, len(first) + 20)
    for number, line in enumerate(list_lines(value) or [""]):
        start = later if number else first
        if whole or not sys.stdout.isatty():
            yield start + line
            continue
        yield from textwrap.wrap(
            line,
            columns,
            initial_indent=start,
            subsequent_indent=later,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]


def select_rows(count: int, keep: Sequence[int] = (), rows: int = ROWS) -> list[int]:
    """Return indices of at most `rows` of `count` epochs: first, last, `keep`, others evenly between."""
    if count <= rows:
        return list(range(count))
    wanted = {index for index in keep if 0 <= index < count}
    even = rows - len(wanted - {0, count - 1})
    return sorted(wanted | {round(index * (count - 1) / (even - 1)) for index in range(even)})


def draw_bar(value: float, low: float, high: float) -> str:
    """Return a bar of ``#`` for a value from `low` to `high`, of at least one mark to be visible."""
    share = (value - low) / (high - low) if high > low else 1.0
    return "#" * (1 + round(share * (BAR - 1)))
