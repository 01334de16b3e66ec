"""Layout of a report's figures: as wide as a column, with a distinct style for each name.

Palette and style are those of `msbench.reporting.figures.style`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from msbench.reporting.figures.names import shortened, shown
from msbench.reporting.figures.style import BARS, COLOURS, MARKERS
from msbench.reporting.tables.cells import UNITS

Line = Literal["-", "--", "-.", ":", ""]
LINES: tuple[Line, ...] = ("-", "--", "-.", ":")
WIDTH, NARROW = 5.5, 3.4
"""Widths in inches: the text of a one-column paper, and a figure with a single panel."""
AXIS = {
    "percent": "accuracy (%)",
    "auroc": "macro AUROC",
    "auroc-percent": "macro AUROC (%)",
    "tokens": "mixing distance (tokens)",
}
STEPS = (1, 2, 2.5, 5, 10)
CROWD = 6
LEGEND_LINE = 0.17
"""Height of a line of the legend in inches."""


@dataclass(frozen=True)
class SeriesStyle:
    """The label, colour, marker and line of the series of one name."""

    label: str
    colour: str
    marker: str
    line: Line


def slimmer(figure: Figure, names: int) -> None:
    """Make lines thinner and markers smaller where many names would hide each other."""
    if names > CROWD:
        for axes in figure.axes:
            for line in axes.get_lines():
                line.set(linewidth=0.7 * line.get_linewidth(), markersize=0.75 * line.get_markersize())


def looks(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return a style for each name, in their order; all distinct for up to 56 names."""
    return {
        name: SeriesStyle(
            label,
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
            LINES[index // len(COLOURS) % len(LINES)],
        )
        for index, (name, label) in enumerate(shown(names).items())
    }


def dots(looks: Iterable[SeriesStyle]) -> list[SeriesStyle]:
    """Return the same styles without their lines."""
    return [replace(look, line="") for look in looks]


def panels(
    rows: int, columns: int, entries: Sequence[SeriesStyle], *, height: float = 1.9
) -> tuple[Figure, list[Axes]]:
    """Make a figure of `rows` × `columns` axes, in reading order, with a legend of `entries` below them."""
    width = NARROW if columns == 1 else WIDTH
    across = _legend_columns(entries, width)
    below = LEGEND_LINE * math.ceil(len(entries) / across) + 0.1 if entries else 0.0
    figure = Figure(figsize=(width, rows * height + below))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    if entries:
        handles = [
            Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.line, label=look.label)
            for look in entries
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=across)
    return figure, axes


def grid_panels(
    count: int, entries: Sequence[SeriesStyle], columns: int = 2, *, height: float = 2.1
) -> tuple[Figure, list[Axes]]:
    """Make a figure of `count` axes, at most `columns` per row, with the legend below them."""
    columns = min(count, columns)
    figure, axes = panels(-(-count // columns), columns, entries, height=height)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _legend_columns(entries: Sequence[SeriesStyle], width: float) -> int:
    # At 7 points: 0.06 inches per character, and half an inch for the line and its marker.
    widest = max((0.06 * len(look.label) + 0.55 for look in entries), default=width)
    return min(max(1, int(width / widest)), max(1, len(entries)))


def bars(
    axes: Axes, place: tuple[float, float], spreads: tuple[float | None, float | None], look: SeriesStyle
) -> None:
    """Draw a point with error bars of these half widths on x and y; none where a spread is None."""
    axes.errorbar(
        *place,
        xerr=spreads[0],
        yerr=spreads[1],
        fmt=look.marker,
        color=look.colour,
        markersize=5.5,
        **BARS,
    )


def title(axes: Axes, text: str) -> None:
    """Set the title of a panel, shortened to fit."""
    axes.set_title(shortened(text, 40))


def axis_label(unit: str, *, before: str = "") -> str:
    """Return the label of an axis in this unit of a column."""
    words = AXIS.get(unit) or UNITS[unit].words
    return f"{before} {words}".strip()


def scaled_axis(axes: Axes, values: Iterable[float], *, which: str = "x", ratio: float = 8.0) -> None:
    """Set round ticks; make the axis logarithmic if its positive values span more than `ratio`."""
    known = list(values)
    axis = axes.xaxis if which == "x" else axes.yaxis
    if known and min(known) > 0 and max(known) / min(known) > ratio:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        wide = max(known) / min(known) > 1e3
        axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(4, steps=STEPS))
    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))


def compact(value: float) -> str:
    """Return a number as text for a tick: 67466 -> 67.5k, 1e7 -> 10M, 0.05 -> 0.05."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
