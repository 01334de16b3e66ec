"""Accuracy against a property of the test examples, from a table by it: a line a model, with intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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

APART = 0.012
"""Distance of the bars of two models at one place, as a share of the axis."""


@dataclass(frozen=True)
class BinPoint(FigureRow):
    """One model, or the majority of labels, on the `examples` of a bin; values are in `unit`.

    `mean` is that of the property over the examples, `low` and `high` are its bounds. The interval is that
    of the table; the majority has none.
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
    run_ids: tuple[str, ...] = ()


def collect_points(by: str, series: Iterable[Series]) -> tuple[BinPoint, ...]:
    """Return a row for each measured cell of a table by the property `by`, and each of the majority."""
    return tuple(
        BinPoint(
            *each.labels,
            by,
            "rule" if each.cell.status == "trivial-rule" else "model",
            *(bounds.low, bounds.high, bounds.mean, bounds.n, each.cell.measured),
            *(each.cell.interval or (None, None)),
            each.cell.n,
            each.cell.run_ids,
        )
        for each in series
        if (bounds := each.column.bin) is not None and each.cell.measured is not None
    )


def draw_points(found: Sequence[BinPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a line for each model through its bins, and a dotted one for the majority of labels."""
    lines = group((point.name, point) for point in found)
    rules = {point.name for point in found if point.kind == "rule"}
    drawn = {**styles, **{name: SeriesStyle(name, INK, "", ":") for name in rules}}
    figure, (axes,) = make_panels(1, [drawn[name] for name in lines], height=2.6, wide=True)
    by, places = found[0].by, [point.mean for point in found]
    scale_axis(axes, places, ratio=1.0 if by == "distance" else 8.0)
    transform = axes.get_xaxis().get_transform()
    ends = transform.transform([min(places), max(places)])
    for at, (name, points) in enumerate(lines.items()):
        shift = (
            0.0 if name in rules else (at - (len(lines) - len(rules) - 1) / 2) * APART * (ends[1] - ends[0])
        )
        xs = transform.inverted().transform(transform.transform([point.mean for point in points]) + shift)
        values = [point.value for point in points]
        if name in rules:
            axes.plot(xs, values, **drawn[name].options, linewidth=1.0, gid="rule")
            continue
        bars = [
            [
                abs(point.value - (point.value if end is None else end))
                for point in points
                for end in [getattr(point, f"interval_{side}")]
            ]
            for side in ("low", "high")
        ]
        axes.errorbar(xs, values, bars, **drawn[name].options, **BARS)
    centres = [point.value for point in found]
    bars_ends = [
        end for point in found for end in (point.interval_low, point.interval_high) if end is not None
    ]
    low, high = find_range(centres, bars_ends)
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room, high + room)
    axes.set_xlabel(f"{by} of the test examples")
    axes.set_ylabel(format_axis_label(found[0].unit))
    thin_lines(figure, len(lines))
    return figure
