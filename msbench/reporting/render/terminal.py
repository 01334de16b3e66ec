"""Tables in plain text: at a terminal in parts that fit its width, in a pipe with one line per row.

Names are printed verbatim, never parsed as markup. Escape sequences are written to a terminal only, and not
where ``NO_COLOR`` is set or ``TERM`` is ``dumb``; there, as in a pipe, a star marks the best value.
"""

import io
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TextIO

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from msbench.console import GAP, escape_commands, is_styled, printable, wrap_words
from msbench.reporting.render import formatting
from msbench.reporting.render.bars import render_bars
from msbench.reporting.render.formatting import FormattedNumber
from msbench.reporting.tables.cells import Table

WIDEST_NAME = 30
"""The maximum width of names if not all columns fit next to longer ones."""
ASCII = str.maketrans({"±": "+/-", "†": "+", "–": "-", "×": "x", "→": "->", "Δ": "Delta"})


@dataclass(frozen=True)
class _Line:
    """A heading (`cells` empty) or a row: its name, then the numbers of each column."""

    name: str
    cells: tuple[tuple[Text, ...], ...] = ()


def print_tables(tables: Iterable[Table], stream: TextIO | None = None, width: int | None = None) -> None:
    """Print `tables` to `stream` (stdout), with an empty line between two.

    They are `width` columns wide where that is a terminal. There, plots of their results stand before them,
    but for tables of claims, which repeat the results of others, and those by a property.
    """
    stream = sys.stdout if stream is None else stream
    is_terminal = stream.isatty()
    columns = (width or shutil.get_terminal_size().columns) if is_terminal else None
    for index, table in enumerate(tables):
        encoding = stream.encoding or "utf-8"
        text = render_table(table, columns, styled=is_styled(stream), encoding=encoding)
        bars = render_bars(table, columns, encoding) if columns and not (table.base or table.by) else ""
        stream.write(("\n" if index else "") + bars + text)
    stream.flush()


def render_table(
    table: Table, width: int | None = None, *, styled: bool = False, encoding: str = "utf-8"
) -> str:
    """Return the table as text, of any width if `width` is None. What `encoding` lacks becomes ASCII."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width or 10_000,
        force_terminal=styled,
        force_jupyter=False,  # there, rich would show each line itself, and return none
        color_system="standard" if styled else None,
        legacy_windows=False,
    )
    for line in _Layout(table, width, styled, encoding).list_lines():
        line.rstrip()
        # soft_wrap keeps rich from cutting or wrapping; at a terminal only prose is long enough to wrap.
        console.print(line, soft_wrap=width is None)
    return escape_commands(buffer.getvalue())


class _Layout:
    """The table as lines of styled text."""

    def __init__(self, table: Table, width: int | None, styled: bool, encoding: str) -> None:
        self.table, self.width, self.styled, self.encoding = table, width, styled, encoding
        self.body = list(self._list_body())
        self.heads = [self._encode(column.label) for column in table.columns]
        self.widths = [self._measure_column(index) for index in range(len(table.columns))]
        names = [cell_len(line.name) for line in self.body if line.cells]
        self.name_width = max([len("Model"), *names])
        if width is not None:
            room = width - sum(map(_sum_widths, self.widths)) - len(GAP) * len(self.widths)
            self.name_width = max(len("Model"), min(self.name_width, max(WIDEST_NAME, room)))

    def list_lines(self) -> Iterator[Text]:
        """Yield title and caption, the table in as many parts as the width requires, then the notes."""
        yield Text(self._encode(self.table.heading), style="bold")
        yield Text(self._encode(self.table.caption))
        for columns in self._split():
            yield Text()
            yield from self._list_part(columns)
        yield Text()
        if any(cell.best for row in self.table.rows for cell in row.cells) and not self.styled:
            yield Text("*  best measured")
        for mark, text in formatting.list_footnotes(self.table):
            yield Text(self._encode(f"[{mark}]  {text}" if mark else text))
        for verdict, style in formatting.list_verdicts(self.table):
            yield Text(self._encode(f"{verdict}: {style.meaning}"))

    def _encode(self, text: str) -> str:
        """Return one printable line that the encoding can represent."""
        plain = printable(text)
        try:
            plain.encode(self.encoding)
        except UnicodeEncodeError:
            return plain.translate(ASCII).encode(self.encoding, "backslashreplace").decode(self.encoding)
        return plain

    def _list_body(self) -> Iterator[_Line]:
        group = ""
        for row in self.table.rows:
            if row.group != group:
                group = row.group
                yield _Line(self._encode(group))
            columns = formatting.format_row(self.table, row)
            cells = tuple(tuple(map(self._format, numbers)) for numbers in columns)
            yield _Line(self._encode((GAP if group else "") + row.name), cells)

    def _format(self, number: FormattedNumber) -> Text:
        star = "*" if number.best and not self.styled else ""
        text = Text().append(number.value + star, style="bold" if number.best else None)
        text.append(self._encode(f"±{number.sd}") if number.sd else "")
        text.append(self._encode(f" ({number.interval})") if number.interval else "")
        text.append(f" {number.count}" if number.count else "")
        text.append(f" {number.verdict}" if number.verdict else "")
        return text.append(f" [{','.join(number.marks)}]" if number.marks else "")

    def _measure_column(self, index: int) -> list[int]:
        """Return the widths of a column's parts, reported and measured, which fit its label."""
        rows = [line.cells[index] for line in self.body if line.cells]
        widths = [
            max([len(kind), *(row[part].cell_len for row in rows)])
            for part, kind in enumerate(self.table.kinds[index])
        ]
        widths[-1] += max(0, cell_len(self.heads[index]) - _sum_widths(widths))
        return widths

    def _split(self) -> list[list[int]]:
        """Split column indices into parts, with as many as fit next to the names; at least one each."""
        parts: list[list[int]] = []
        room = 0
        for column, widths in enumerate(self.widths):
            need = _sum_widths(widths) + len(GAP)
            if not parts or (self.width is not None and need > room):
                parts.append([])
                room = (self.width or 0) - self.name_width
            parts[-1].append(column)
            room -= need
        return parts

    def _list_part(self, columns: Sequence[int]) -> Iterator[Text]:
        """Yield one part of the table: two lines of headings, a rule, the rows."""
        widths = [width for column in columns for width in self.widths[column]]
        name = self.name_width
        if self.width is not None:
            name = min(name, max(8, self.width - sum(widths) - len(GAP) * len(widths)))
        heads = [Text(self.heads[column], style="bold") for column in columns]
        yield _align("", name, heads, [_sum_widths(self.widths[column]) for column in columns])
        kinds = [Text(kind) for column in columns for kind in self.table.kinds[column]]
        yield _align("Model", name, kinds, widths)
        rule = "─" if self._encode("─") == "─" else "-"
        yield Text(rule * (name + sum(widths) + len(GAP) * len(widths)))
        for line in self.body:
            if not line.cells:
                yield Text(line.name, style="italic")
                continue
            numbers = [part for column in columns for part in line.cells[column]]
            *above, first = self._fold(line.name, name)
            yield from map(Text, above)
            yield _align(first, name, numbers, widths)

    def _fold(self, name: str, width: int) -> list[str]:
        """Return a name as lines that break between words, the last of at most `width`, next to its numbers.

        A word that is wider than that has a line of its own; it is broken only by the terminal's width.
        """
        if self.width is None or cell_len(name) <= width:
            return [name]
        indent = name[: len(name) - len(name.lstrip())]
        lines = wrap_words(name.lstrip(), width, indent, indent)
        if max(map(cell_len, lines), default=0) > width:
            lines = [*chain.from_iterable(chop_cells(line, self.width) for line in lines), ""]
        return lines or [""]


def _align(name: str, name_width: int, cells: Sequence[Text], widths: Sequence[int]) -> Text:
    line = Text(name + " " * (name_width - cell_len(name)))
    for cell, width in zip(cells, widths, strict=True):
        line.append(GAP).append_text(cell).append(" " * (width - cell.cell_len))
    return line


def _sum_widths(widths: Sequence[int]) -> int:
    """Return the total width of adjacent parts with the gaps between them."""
    return sum(widths) + len(GAP) * (len(widths) - 1)
