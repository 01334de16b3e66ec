"""Learning curves as small inline SVGs: polylines, axes, labels; one or two kilobytes for any length."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 260, 110
LEFT, RIGHT, TOP, BOTTOM = 44, 8, 8, 18
MOST_POINTS = 80
"""The most points of a line, more than its pixels resolve; the last point is always kept."""


@dataclass(frozen=True)
class Line:
    """One curve: its name, and a pair of epoch and value for every epoch with a finite value."""

    name: str
    points: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, name: str, pairs: Iterable[tuple[float, float]]) -> "Line":
        """Return the line of the finite pairs, sorted by epoch."""
        return cls(name, tuple(sorted(pair for pair in pairs if all(map(math.isfinite, pair)))))


@dataclass(frozen=True)
class Chart:
    """The data that the template draws: paths in a box of `WIDTH` × `HEIGHT`, ticks as position and text."""

    title: str
    description: str
    lines: tuple[tuple[str, str], ...]
    """Name, and the points of a polyline."""
    dots: tuple[tuple[str, float, float], ...]
    """Name and place of each line's last point."""
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]


def chart(title: str, lines: Sequence[Line]) -> Chart | None:
    """Return the chart of these lines, or None if none of them has a point."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        return None
    places = [point for line in drawn for point in line.points]
    x_low, x_high = _range([x for x, _ in places])
    y_low, y_high = _range([y for _, y in places])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (point[1] - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(x, 1), round(y, 1)

    paths = [(line.name, " ".join("{},{}".format(*place(at)) for at in _thin(line.points))) for line in drawn]
    ends = [(line.name, *place(line.points[-1])) for line in drawn]
    xs = sorted({x for x, _ in places})
    return Chart(
        title,
        _description(title, drawn),
        tuple(paths),
        tuple(ends),
        tuple((place((x, y_low))[0], f"{x:g}") for x in dict.fromkeys((xs[0], xs[-1]))),
        tuple((place((x_low, y))[1], short(y)) for y in (y_low, y_high)),
    )


def short(value: float) -> str:
    """Return a value with three significant digits, for an axis."""
    return f"{value:.3g}"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the minimum and maximum, widened if they are equal."""
    low, high = min(values), max(values)
    if high > low:
        return low, high
    pad = abs(low) / 10 or 0.5
    return low - pad, high + pad


def _thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `MOST_POINTS` evenly spaced points, including the last."""
    step = math.ceil(len(points) / MOST_POINTS)
    return [*points[:-1:step], points[-1]]


def _description(title: str, lines: Sequence[Line]) -> str:
    """Return a description of the chart for screen readers."""
    parts = [f"{line.name} from {short(line.points[0][1])} to {short(line.points[-1][1])}" for line in lines]
    epochs = f"epoch {lines[0].points[0][0]:g} to {lines[0].points[-1][0]:g}"
    return f"{title}, {epochs}: {'; '.join(parts)}"
