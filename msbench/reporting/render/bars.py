"""Plots of results as lines of text: models in order with their intervals, for a terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from msbench.console import printable
from msbench.reporting.tables.cells import UNITS, Table
from msbench.reporting.tables.ranking import RankedResult, Ranking, rank_models

LONGEST, LEAST, MOST = 32, 16, 64
"""Columns: of the longest name, and the fewest and most of a track."""


class Marks(NamedTuple):
    """The characters of a plot."""

    mean: str
    reported: str
    line: str
    bar: str
    left: str
    right: str
    below: str
    above: str
    cut: str


LINES, ASCII = Marks(*"●◇┊─├┤◂▸…"), Marks(*"ox:-||<>~")


def render_bars(table: Table, width: int, encoding: str = "utf-8") -> str:
    """Return a plot for each column of results, in lines of at most `width` columns; empty without any."""
    try:
        "".join(LINES).encode(encoding)
        marks = LINES
    except UnicodeEncodeError:
        marks = ASCII
    lines = [
        line.rstrip() for ranking in rank_models(table) for line in _list_lines(table, ranking, width, marks)
    ]
    text = "".join(f"{line}\n" for line in lines)
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _list_lines(table: Table, ranking: Ranking, width: int, marks: Marks) -> Iterator[str]:
    names = [printable(row.name) for row in ranking.rows]
    values = [row.failed if row.value is None else ranking.format(row.measured) for row in ranking.rows]
    name, value = min(LONGEST, max(map(cell_len, names))), max(map(len, values))
    track = min(MOST, width - name - value - 4)
    if track < LEAST:
        return
    yield from _wrap([f"{table.heading}: {ranking.label}, {UNITS[ranking.unit].words}"], width)
    for row, shown, number in zip(ranking.rows, names, values, strict=True):
        if cell_len(shown) > name:  # its whole name is in the table below
            shown = set_cell_size(shown, name - 1).rstrip() + marks.cut
        yield f"{set_cell_size(shown, name)}  {number:>{value}}  {_draw_track(ranking, row, track, marks)}"
    yield " " * (name + value + 4) + _draw_axis(ranking, track)
    reported = any(row.reported is not None for row in ranking.rows)
    key = [f"{marks.mean} mean with its 95 % interval", *([f"{marks.reported} reported"] if reported else [])]
    rules = [f"{name} ({ranking.format(value)})" for name, value in ranking.lines]
    key += [f"{marks.line} {', '.join(rules)}"] if rules else []
    yield from _wrap(["; ".join(key), *ranking.notes], width)
    yield ""


def _draw_track(ranking: Ranking, row: RankedResult, width: int, marks: Marks) -> str:
    track, scale = [" "] * width, ranking.scale

    def place(value: float) -> int:
        return round(scale.place(value) * (width - 1))

    for _, value in ranking.lines:
        track[place(value)] = marks.line
    if row.low is not None and row.high is not None:
        first, last = place(row.low), place(row.high)
        track[first : last + 1] = marks.bar * (last + 1 - first)
        track[first], track[last] = marks.left, marks.right
    ends = [row.low, row.high, *ranking.list_seeds(row)]
    marked = [*((end, "") for end in ends), (row.reported, marks.reported), (row.measured, marks.mean)]
    for number, mark in marked:
        if number is not None and not scale.has(number):
            track[place(number)] = marks.below if number < scale.low else marks.above
        elif number is not None and mark:
            track[place(number)] = mark
    return "".join(track)


def _draw_axis(ranking: Ranking, width: int) -> str:
    """Return the numbers of the axis, each centred below its place as far as there is room."""
    line = ""
    for tick in ranking.scale.ticks:
        text = f"{tick:g}"
        start = min(round(ranking.scale.place(tick) * (width - 1)) - len(text) // 2, width - len(text))
        if start > len(line) or not line:
            line = line.ljust(max(0, start)) + text
    return line


def _wrap(texts: Iterable[str], width: int) -> Sequence[str]:
    return [line for text in texts for line in textwrap.wrap(printable(text), width)]
