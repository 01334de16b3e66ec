"""Common style of all figures: palette, fonts, styles of series, panels and axes, and rendering to bytes.

The same figure is always rendered as the same bytes. Figures are as wide as the column of a paper.
"""

import io
import math
import os
import re
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox, BboxBase

from msbench.reporting.figures.series import group, name_in_legend, shorten
from msbench.reporting.tables.cells import UNITS

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Tol's bright scheme, distinguishable for colour-blind readers; markers and line styles differ too."""
INK, GROUND = "#000000", "#ffffff"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BARS: Mapping[str, Any] = {"elinewidth": 0.9, "capthick": 0.9, "capsize": 2.0}
STYLE: Mapping[str, Any] = {
    "font.family": ["DejaVu Sans"],  # bundled with matplotlib, so the same on every machine
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0.0,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,
    "svg.fonttype": "none",  # keep text as text: searchable, accessible, in the page's colour
    "svg.hashsalt": "msbench",
    "pdf.fonttype": 42,  # TrueType: many venues reject Type 3
}
DPI = 300
Format = Literal["pdf", "png", "svg"]
UNDATED: Mapping[Format, Mapping[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
"""The metadata of each format on date and software, which are left out of the files."""
FORMATS: tuple[Format, ...] = tuple(UNDATED)
PAINT = {INK: "currentColor", GROUND: f"var(--ground, {GROUND})"} | {
    colour: f"var(--series-{number}, {colour})" for number, colour in enumerate(COLOURS, 1)
}
SVG_ROOT = {
    "fill": "currentColor",
    "stroke-linejoin": "round",
    "stroke-linecap": "butt",
}
Point = TypeVar("Point")
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
MANY = 6
"""With more names than this, lines are thinner."""
NEAR = 4
"""Distance of a name from its point in pixels."""
SIDES = (
    *((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)),
    *((0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1)),
)
"""Where a name may stand, right and above: first where error bars do not cross it."""
LEADER = {
    "arrowstyle": "-",
    "linewidth": 0.4,
    "alpha": 0.6,
    "shrinkA": 0,
    "shrinkB": 2,
}
LEGEND_LINE = 0.17
"""Height of a line of the legend in inches."""


@dataclass(frozen=True)
class SeriesStyle:
    """The label, colour, marker and line of the series of one name."""

    label: str
    colour: str
    marker: str
    line: Line

    @property
    def options(self) -> dict[str, Any]:
        """The options of its lines for matplotlib."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line}


def thin_lines(figure: Figure, names: int) -> None:
    """Make lines thinner and markers smaller where many names would hide each other."""
    if names > MANY:
        for axes in figure.axes:
            for line in axes.get_lines():
                line.set(linewidth=0.7 * line.get_linewidth(), markersize=0.75 * line.get_markersize())


def assign_styles(names: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return a style for each name, in their order; all distinct for up to 56 names."""
    return {
        name: SeriesStyle(
            label,
            COLOURS[index % len(COLOURS)],
            MARKERS[index % len(MARKERS)],
            LINES[index // len(COLOURS) % len(LINES)],
        )
        for index, (name, label) in enumerate(name_in_legend(names).items())
    }


def make_panels(
    count: int, entries: Sequence[SeriesStyle], columns: int = 2, *, height: float = 2.1, wide: bool = False
) -> tuple[Figure, list[Axes]]:
    """Make a figure of `count` axes, at most `columns` per row, with a legend of `entries` below them.

    One with a single column is narrow, unless it is `wide`.
    """
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    width = NARROW if columns == 1 and not wide else WIDTH
    across = _count_legend_columns(entries, width)
    below = LEGEND_LINE * math.ceil(len(entries) / across) + 0.1 if entries else 0.0
    figure = Figure(figsize=(width, rows * height + below))
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    if entries:
        handles = [Line2D([], [], label=style.label, **style.options) for style in entries]
        figure.legend(handles=handles, loc="outside lower center", ncols=across)
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def make_task_panels(
    found: Sequence[Point],
    styles: Mapping[str, SeriesStyle],
    *,
    lines: bool = True,
    legend: bool = True,
    more: Sequence[SeriesStyle] = (),
    wide: bool = False,
    sizes: Sequence[tuple[int, int, float]] = ((0, 2, 2.1),),
) -> tuple[Figure, list[tuple[Axes, list[Point]]]]:
    """Make a figure with a titled panel per task; return it, and each panel with its points.

    `found` are rows with `task`, `label` and `name`; `more` follow these names in the legend. For more panels
    than the first number of one of `sizes` there are so many per row, of this height in inches.
    """
    points: Sequence[Any] = found
    tasks = group(((point.task, point.label, getattr(point, "unit", "")), point) for point in points)
    entries = [styles[name] for name in dict.fromkeys(point.name for point in points) if legend]
    if not lines:
        entries = [replace(style, line="") for style in entries]
    entries += more
    columns, height = next((columns, height) for more, columns, height in sizes if len(tasks) > more)
    figure, axes = make_panels(len(tasks), entries, columns, height=height, wide=wide)
    for panel, (_, label, _) in zip(axes, tasks, strict=True):
        set_title(panel, label)
    return figure, list(zip(axes, tasks.values(), strict=True))


def _count_legend_columns(entries: Sequence[SeriesStyle], width: float) -> int:
    # At 7 points: 0.06 inches per character, and half an inch for the line and its marker.
    widest = max((0.06 * len(style.label) + 0.55 for style in entries), default=width)
    return min(max(1, int(width / widest)), max(1, len(entries)))


def draw_point(
    axes: Axes, place: tuple[float, float], spreads: tuple[float | None, float | None], style: SeriesStyle
) -> None:
    """Draw a point with error bars of these half widths on x and y; none where a spread is None."""
    axes.errorbar(
        *place,
        xerr=spreads[0],
        yerr=spreads[1],
        fmt=style.marker,
        color=style.colour,
        markersize=5.5,
        **BARS,
    )


def label_points(axes: Axes, points: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Write names next to points, in a figure that is laid out, so that none covers a point or another name.

    A name that has no room next to its point stands further away, with a line to it.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes that are drawn are in a figure"
    pixel = 72 / figure.dpi
    places = [tuple(axes.transData.transform(place)) for _, place in points]
    taken = [Bbox.from_extents(x - 4, y - 4, x + 4, y + 4) for x, y in places]
    frame = axes.get_window_extent()
    for (name, point), place in sorted(zip(points, places, strict=True), key=lambda pair: pair[1]):
        text = axes.text(place[0], place[1], name, transform=None, fontsize=6, ha="center", va="center")
        box = text.get_window_extent()
        text.remove()
        shifts = list(_list_shifts(box.width / 2, box.height / 2))
        free = (pair for pair in shifts if _has_room(box.translated(*pair[1]), frame, taken))
        more, shift = next(free, shifts[0])
        taken.append(box.translated(*shift))
        axes.annotate(
            name,
            point,
            xytext=(shift[0] * pixel, shift[1] * pixel),
            textcoords="offset points",
            fontsize=6,
            ha="center",
            va="center",
            arrowprops=LEADER if more else None,
            bbox={"facecolor": GROUND, "alpha": 0.7, "linewidth": 0, "pad": 0.5},
            in_layout=False,
        )


def _has_room(box: BboxBase, frame: BboxBase, taken: Sequence[BboxBase]) -> bool:
    inside = frame.contains(*box.min) and frame.contains(*box.max)
    return inside and not box.count_overlaps(taken)


def _list_shifts(width: float, height: float) -> Iterator[tuple[int, tuple[float, float]]]:
    """Yield additional distances of a name of this half size from its point, and its shift, in pixels."""
    for more in (0, 8, 14, 20, 28, 38, 50, 64, 80, 105, 135):
        for across, up in SIDES:
            yield more, (across * (width + NEAR + more), up * (height + NEAR + more))


def draw_runs(
    axes: Axes,
    found: Iterable[Any],
    styles: Mapping[str, SeriesStyle],
    across: str,
    upwards: str,
    markers: int | None = None,
) -> None:
    """Draw a line for each run and each mean over seeds, through these two fields of their points.

    Seeds that have a mean are thin; a mean has error bars where its points have an `sd`. The other lines have
    a marker at each point, or about `markers` of them.
    """
    runs = group(((point.name, point.kind, point.run_id), point) for point in found)
    averaged = {name for name, kind, _ in runs if kind == "mean"}
    for (name, kind, run_id), points in runs.items():
        style, shown = styles[name], [point for point in points if getattr(point, upwards) is not None]
        xs, ys = ([getattr(point, field) for point in shown] for field in (across, upwards))
        (line,) = axes.plot(xs, ys, color=style.colour, linestyle=style.line, gid=f"{kind}-{run_id}")
        if kind == "seed" and name in averaged:
            line.set(linewidth=0.7, alpha=0.5)
            continue
        line.set(marker=style.marker, markevery=max(1, len(shown) // (markers or len(shown) or 1)), zorder=3)
        if kind == "mean" and hasattr(points[0], "sd"):
            axes.errorbar(
                xs, ys, [point.sd or 0.0 for point in shown], fmt="none", color=style.colour, **BARS
            )


def set_title(axes: Axes, text: str) -> None:
    """Set the title of a panel, shortened to fit."""
    axes.set_title(shorten(text, 40))


def format_axis_label(unit: str, *, before: str = "") -> str:
    """Return the label of an axis in this unit of a column."""
    words = AXIS.get(unit) or UNITS[unit].words
    return f"{before} {words}".strip()


def scale_axis(axes: Axes, values: Iterable[float], *, which: str = "x", ratio: float = 8.0) -> None:
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
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_compact(value)))


def format_compact(value: float) -> str:
    """Return a number as text for a tick: 67466 -> 67.5k, 1e7 -> 10M, 0.05 -> 0.05."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


@contextmanager
def apply_style() -> Iterator[None]:
    """Apply the style while figures are made, laid out and saved; restore the previous settings after."""
    settings: dict[Any, Any] = {
        key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")
    }
    with matplotlib.rc_context(settings | dict(STYLE)), warnings.catch_warnings():
        # A character that the font lacks is a box in PDF and PNG and correct in SVG: ignore the warning.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        # The PDF writer reads it as a number, though no file of ours has a date.
        given = os.environ.pop("SOURCE_DATE_EPOCH", None)
        try:
            yield
        finally:
            if given is not None:
                os.environ["SOURCE_DATE_EPOCH"] = given


def render_picture(figure: Figure, form: Format, *, transparent: bool = False) -> bytes:
    """Return a figure as the bytes of a file; the same figure always gives the same bytes."""
    out = io.BytesIO()
    with apply_style():
        figure.savefig(out, format=form, dpi=DPI, metadata=dict(UNDATED[form]), transparent=transparent)
    return out.getvalue()


def render_svg_element(figure: Figure, *, title: str, description: str, prefix: str = "") -> str:
    """Return a figure as an ``<svg>`` for an HTML page, with a title and a description for screen readers.

    It has no background, and black in print becomes ``currentColor``. A series has the colour
    ``var(--series-1, #4477aa)`` and so on, so that a page can set other colours for its dark mode. All ids
    begin with `prefix`, which makes them unique in a page.
    """
    root = ElementTree.fromstring(render_picture(figure, "svg", transparent=True))
    for parent in list(root.iter()):
        for child in list(parent):
            # matplotlib's style rule is for `*`: inside a page it would apply to the whole page.
            if _drop_namespace(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _drop_namespace(element.tag)
        attributes = {_drop_namespace(key): value for key, value in element.attrib.items()}
        element.attrib = {key: _adapt_attribute(key, value, prefix) for key, value in attributes.items()}
    points = root.get("width", "").removesuffix("pt")
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    # A point in print is 4/3 CSS pixels.
    root.attrib |= {
        "width": f"{float(points) * 4 / 3:.0f}",
        # Letters of a picture that fills its column stay near the size of the text around it.
        "style": f"max-width: min(100%, {float(points) * 1.75:.0f}px); height: auto",
        "role": "img",
        "aria-labelledby": f"{prefix}title {prefix}desc",
        **SVG_ROOT,
        "id": f"{prefix}root",
    }
    for place, (tag, words) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(tag, {"id": prefix + tag})
        element.text = words
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _drop_namespace(name: str) -> str:
    return name.rpartition("}")[2]


def _adapt_attribute(key: str, value: str, prefix: str) -> str:
    """Return an attribute with the page's colours, and with `prefix` before ids and references to them."""
    if key == "id":
        return prefix + value
    if key == "href":
        return f"#{prefix}{value.removeprefix('#')}"
    painted = re.sub(r"#[0-9a-f]{6}\b", lambda found: PAINT.get(found[0], found[0]), value)
    return painted.replace("url(#", f"url(#{prefix}")
