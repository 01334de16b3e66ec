"""Measured against reported numbers: a point on the line is a number that was reproduced."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from msbench.reporting.figures.look import (
    SeriesStyle,
    axis_label,
    bars,
    dots,
    grid_panels,
    scaled_axis,
    title,
)
from msbench.reporting.figures.names import clean
from msbench.reporting.figures.series import Series, grouped
from msbench.reporting.figures.style import INK

SQUARES = ((4, 3, 2.05), (1, 2, 2.9), (0, 1, 3.4))
"""For more panels than the first number: the panels per row, and the height of one in inches."""


@dataclass(frozen=True)
class Pair:
    """One model on one task, both numbers and both standard deviations in `unit`.

    `sd` is over the `n` measured seeds; `reported_sd` is as defined by the source of the number.
    """

    table: str
    task: str
    label: str
    unit: str
    name: str
    model: str
    reported: float
    reported_sd: float | None
    measured: float
    sd: float | None
    n: int
    run_ids: tuple[str, ...] = ()


def pairs(series: Iterable[Series]) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Return the cells that have both numbers, and notes on those whose reported value is no number."""
    found, notes = [], []
    for each in series:
        column, cell = each.column, each.cell
        if not cell.reported or cell.measured is None:
            continue
        reported = _number(cell.reported)
        if reported is None:
            notes.append(f"{each.place}: not shown: '{clean(cell.reported)}' is reported, which is no number")
            continue
        names = (each.table, column.task, column.label, column.unit, each.name, each.model)
        numbers = (reported, _number(cell.reported_sd), cell.measured, cell.sd, cell.n)
        found.append(Pair(*names, *numbers, cell.run_ids))
    return tuple(found), tuple(notes)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def draw(found: Sequence[Pair], looks: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a square panel per task with the line of equal numbers and bars of one standard deviation."""
    tasks = grouped(((pair.task, pair.label, pair.unit), pair) for pair in found)
    names = dict.fromkeys(pair.name for pair in found)
    columns, height = next((columns, height) for more, columns, height in SQUARES if len(tasks) > more)
    figure, axes = grid_panels(len(tasks), dots(looks[name] for name in names), columns, height=height)
    for panel, ((_, label, unit), of_task) in zip(axes, tasks.items(), strict=True):
        _panel(panel, of_task, looks)
        title(panel, label)
        panel.set_xlabel(axis_label(unit, before="reported"))
        panel.set_ylabel(axis_label(unit, before="measured"))
    return figure


def _panel(axes: Axes, found: Sequence[Pair], looks: Mapping[str, SeriesStyle]) -> None:
    axes.axline((found[0].reported, found[0].reported), slope=1, color=INK, alpha=0.5, linewidth=0.8)
    for pair in found:
        spreads = (pair.reported_sd, pair.sd)
        bars(axes, (pair.reported, pair.measured), spreads, looks[pair.name])
    ends = [end for pair in found for end in _extent(pair)]
    low, high = min(ends), max(ends)
    room = 0.08 * (high - low) or 0.02 * abs(high) or 1.0
    axes.set(xlim=(low - room, high + room), ylim=(low - room, high + room))
    axes.set_box_aspect(1)
    for which in ("x", "y"):
        scaled_axis(axes, (), which=which)


def _extent(pair: Pair) -> tuple[float, ...]:
    across, upwards = pair.reported_sd or 0.0, pair.sd or 0.0
    return (
        *(pair.reported - across, pair.reported + across),
        *(pair.measured - upwards, pair.measured + upwards),
    )
