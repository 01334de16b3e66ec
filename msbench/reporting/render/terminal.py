"""Tables in plain text: at a terminal in parts that fit its width, in a pipe with one line per row.

Names are printed verbatim, never parsed as markup. Escape sequences are written to a terminal only, and not
where ``NO_COLOR`` is set or ``TERM`` is ``dumb``; there, as in a pipe, a star marks the best value.
"""

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from msbench.console import printable
from msbench.reporting.render import formatting
from msbench.reporting.render.formatting import FormattedNumber
from msbench.reporting.tables.cells import Table

GAP = "  "
WIDEST_NAME = 30
"""The maximum width of names if not all columns fit next to longer ones."""
ASCII = str.maketrans({"±": "+/-", "†": "+", "–": "-", "×": "x", "→": "->", "Δ": "Delta"})


@dataclass(frozen=True)
class _Line:
    """A heading (`cells` empty) or a row: its name, then its numbers."""

    name: str
    cells: tuple[Text, ...] = ()


def print_table(table: Table, stream: TextIO | None = None, width: int | None = None) -> None:
    """Print `table` to `stream` (stdout), `width` columns wide where that is a terminal."""
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    styled = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    columns = (width or _terminal_width(stream)) if terminal else None
    stream.write(render(table, columns, styled=styled, encoding=stream.encoding or "utf-8"))
    stream.flush()


def print_tables(tables: Iterable[Table], stream: TextIO | None = None, width: int | None = None) -> None:
    """Print `tables`, with an empty line between two."""
    for index, table in enumerate(tables):
        if index:
            (stream or sys.stdout).write("\n")
        print_table(table, stream, width)


def render(table: Table, width: int | None = None, *, styled: bool = False, encoding: str = "utf-8") -> str:
    """Return the table as text, of any width if `width` is None. What `encoding` lacks becomes ASCII."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width or 10_000,
        force_terminal=styled,
        color_system="standard" if styled else None,
        legacy_windows=False,
    )
    for line in _Layout(table, width, styled, encoding).lines():
        line.rstrip()
        # soft_wrap keeps rich from cutting or wrapping; at a terminal only prose is long enough to wrap.
        console.print(line, soft_wrap=width is None)
    return buffer.getvalue()


class _Layout:
    """The table as lines of styled text."""

    def __init__(self, table: Table, width: int | None, styled: bool, encoding: str) -> None:
        self.table, self.width, self.styled, self.encoding = table, width, styled, encoding
        self.body = list(self._body())
        self.heads = tuple(self.show(column.label) for column in table.columns)

    def lines(self) -> Iterator[Text]:
        """Yield title and caption, the table in as many parts as the width requires, then the notes."""
        yield Text(self.show(self.table.heading), style="bold")
        yield Text(self.show(self.table.caption))
        for part in self._parts():
            yield Text()
            yield from self._part(part)
        yield Text()
        if any(cell.best for row in self.table.rows for cell in row.cells) and not self.styled:
            yield Text("*  best measured")
        for mark, text in formatting.list_footnotes(self.table):
            yield Text(self.show(f"[{mark}]  {text}" if mark else text))
        for verdict, meaning in formatting.list_verdicts(self.table):
            yield Text(self.show(f"{verdict}: {meaning}"))

    def show(self, text: str) -> str:
        """Return one printable line that the encoding can represent."""
        plain = printable(text)
        try:
            plain.encode(self.encoding)
        except UnicodeEncodeError:
            return plain.translate(ASCII).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return plain

    def _body(self) -> Iterator[_Line]:
        group = ""
        for row in self.table.rows:
            if row.group != group:
                group = row.group
                yield _Line(self.show(group))
            cells = map(self._number, formatting.format_row(self.table, row))
            indent = GAP if row.group else ""
            yield _Line(self.show(indent + row.name), tuple(cells))

    def _number(self, number: FormattedNumber) -> Text:
        star = "*" if number.best and not self.styled else ""
        text = Text().append(number.value + star, style="bold" if number.best else None)
        text.append(self.show(f"±{number.sd}") if number.sd else "")
        text.append(f" {number.count}" if number.count else "")
        text.append(f" {number.verdict}" if number.verdict else "")
        return text.append(f" [{','.join(number.marks)}]" if number.marks else "")

    def _name_width(self) -> int:
        widest = max([cell_len(line.name) for line in self.body if line.cells], default=0)
        if self.width is not None:
            room = self.width - sum(_span(widths) + len(GAP) for widths in self._widths())
            widest = min(widest, max(WIDEST_NAME, room))
        return max(len("Model"), widest)

    def _widths(self) -> list[list[int]]:
        """Return for every column the widths of its parts, reported and measured, which fit its label."""
        result = []
        rows = [line.cells for line in self.body if line.cells]
        for column, head in enumerate(self.heads):
            places = zip(self._places(column), self.table.kinds[column], strict=True)
            parts = [
                max([len(kind), *(cell_len(row[place].plain) for row in rows)]) for place, kind in places
            ]
            parts[-1] += max(0, cell_len(head) - _span(parts))
            result.append(parts)
        return result

    def _places(self, column: int) -> range:
        """Return the positions of a column's parts among the numbers of a row."""
        first = sum(len(self.table.kinds[each]) for each in range(column))
        return range(first, first + len(self.table.kinds[column]))

    def _parts(self) -> list[list[int]]:
        """Split column indices into parts, with as many as fit next to the names; at least one each."""
        parts: list[list[int]] = []
        room = 0
        for column, widths in enumerate(self._widths()):
            need = _span(widths) + len(GAP)
            if not parts or (self.width is not None and need > room):
                parts.append([])
                room = (self.width or 0) - self._name_width()
            parts[-1].append(column)
            room -= need
        return parts

    def _part(self, columns: Sequence[int]) -> Iterator[Text]:
        """Yield one part of the table: two lines of headings, a rule, the rows."""
        every = self._widths()
        widths = [every[column] for column in columns]
        places = [place for column in columns for place in self._places(column)]
        name, flat = self._name_width(), [width for parts in widths for width in parts]
        if self.width is not None:
            name = min(name, max(8, self.width - sum(flat) - len(GAP) * len(flat)))
        heads = [Text(self.heads[column], style="bold") for column in columns]
        yield _row("", name, heads, list(map(_span, widths)))
        kinds = [Text(kind) for column in columns for kind in self.table.kinds[column]]
        yield _row("Model", name, kinds, flat)
        rule = "─" if self.show("─") == "─" else "-"
        yield Text(rule * (name + sum(flat) + len(GAP) * len(flat)))
        for line in self.body:
            if not line.cells:
                yield Text(line.name, style="italic")
                continue
            first, *rest = chop_cells(line.name, name) or [""]
            yield _row(first, name, [line.cells[place] for place in places], flat)
            yield from map(Text, rest)


def _span(widths: Sequence[int]) -> int:
    """Return the total width of adjacent parts with the gaps between them."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _row(name: str, width: int, cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(name + " " * (width - cell_len(name)))
    for cell, column in zip(cells, widths, strict=True):
        line.append(GAP).append_text(cell).append(" " * (column - cell_len(cell.plain)))
    return line


def _terminal_width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
