"""Accuracy against a property of the test examples, from a table by it: a line a model, with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from msbench.reporting.figures.series import FigureRow, Series, group
from msbench.reporting.figures.style import (
    BARS,
    INK,
    SeriesStyle,
    format_axis_label,
    make_panels,
    scale_axis,
    thin_lines,
)
from msbench.reporting.tables.ranking import find_range

APART, WIDEST = 0.012, 0.05
"""Shares of the axis: the distance of the bars of two models in a bin, and the most of those of all."""


@dataclass(frozen=True)
class BinPoint(FigureRow):
    """One model, or the most common label, on the `examples` of a bin; values are in `unit`.

    `mean` is that of the property over the examples, `low` and `high` are its bounds. The interval is that
    of the table; the most common label has none.
    """

    by: str
    kind: Literal["model", "rule"]
    low: int
    high: int
    mean: float
    examples: int
    value: float
    interval_low: float | None
    interval_high: float | None
    n: int
    run_ids: tuple[str, ...]


def collect_points(by: str, series: Iterable[Series]) -> tuple[BinPoint, ...]:
    """Return a row for each measured cell of a table by the property `by`, then those of its trivial rule."""
    found = [
        BinPoint(
            *each.labels,
            by=by,
            kind="rule" if each.cell.status == "trivial-rule" else "model",
            low=examples.low,
            high=examples.high,
            mean=examples.mean,
            examples=examples.n,
            value=each.cell.measured,
            interval_low=each.cell.interval[0] if each.cell.interval else None,
            interval_high=each.cell.interval[1] if each.cell.interval else None,
            n=each.cell.n,
            run_ids=each.cell.run_ids,
        )
        for each in series
        if (examples := each.column.bin) is not None and each.cell.measured is not None
    ]
    return tuple(sorted(found, key=lambda point: point.kind))


def draw_points(found: Sequence[BinPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a line for each model through the means of its bins, and a dotted one for the most common label.

    The axis of a distance is logarithmic, and that of other properties where they span more than a factor 8.
    """
    lines = group(((point.kind, point.name), point) for point in found)
    drawn = {key: SeriesStyle(key[1], INK, "", ":") if key[0] == "rule" else styles[key[1]] for key in lines}
    figure, (axes,) = make_panels(1, list(drawn.values()), height=2.6, wide=True)
    by, bounds = found[0].by, [bound for point in found for bound in (point.low, point.high)]
    scale_axis(axes, bounds, ratio=1.0 if by == "distance" else 8.0)
    scale = axes.xaxis.get_transform()
    width = np.ptp(scale.transform(np.array([point.mean for point in found])))
    models = [key for key in lines if key[0] == "model"]
    for key, points in lines.items():
        values = np.array([point.value for point in points])
        places = np.array([point.mean for point in points])
        if key not in models:
            axes.plot(places, values, **drawn[key].options, zorder=1)
            continue
        # Apart, so that bars of one bin do not hide each other.
        apart = width * min(APART, WIDEST / len(models))
        shift = apart * (models.index(key) - (len(models) - 1) / 2)
        places = scale.inverted().transform(scale.transform(places) + shift)
        bars = np.abs(
            [[getattr(each, f"interval_{end}") for each in points] for end in ("low", "high")] - values
        )
        axes.errorbar(places, values, bars, **drawn[key].options, **BARS)
    ends = [end for point in found for end in (point.interval_low, point.interval_high) if end is not None]
    low, high = find_range([point.value for point in found], ends)
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.set_xlabel(f"{by} of the test examples, bin by bin")
    axes.set_ylabel(format_axis_label(found[0].unit))
    thin_lines(figure, len(lines))
    return figure
