"""Results of models in their order, and against parameters, training time and the reported number.

Times are compared within one class of hardware: the GPU of the same name, or the CPU of the same name with
as many threads. The class with most runs of a task is drawn and the others are listed in notes.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from msbench.console import format_count
from msbench.reporting.figures.series import FigureRow, Series, clean, fold, group, shorten
from msbench.reporting.figures.style import (
    BARS,
    COLOURS,
    INK,
    MANY,
    WIDTH,
    SeriesStyle,
    draw_point,
    format_axis_label,
    label_points,
    make_task_panels,
    scale_axis,
)
from msbench.reporting.tables.cells import Column
from msbench.reporting.tables.notes import format_run_count
from msbench.reporting.tables.ranking import (
    RankedResult,
    Ranking,
    find_range,
    group_rankings,
    parse_reported,
)
from msbench.results.record import RunRecord
from msbench.stats.summary import compute_sd

SEVERAL = "several machines"
ROW = 0.17
"""Height of a row in a plot of results in inches."""
HOLLOW: Mapping[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 0.9, "markersize": 4.5}
TIMES = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days"))
SQUARES = ((4, 3, 2.05), (1, 2, 2.9), (0, 1, 3.4))
"""For more panels than the first number: the panels per row, and the height of one in inches."""


@dataclass(frozen=True)
class AccuracyPoint(FigureRow):
    """One model on one task. `value` and `sd` (over `n` seeds) are in `unit`.

    `cost` is a number of parameters, or the mean training time in seconds over `timed` runs on `hardware`,
    with the sample standard deviation over those; None for a single one.
    """

    value: float
    sd: float | None
    n: int
    cost: float
    cost_sd: float | None = None
    timed: int | None = None
    hardware: str = ""
    run_ids: tuple[str, ...] = ()


def compare_parameters(series: Iterable[Series]) -> tuple[tuple[AccuracyPoint, ...], tuple[str, ...]]:
    """Return the models whose records have their number of parameters, and notes on the others."""
    found, notes = [], []
    for each in _select_measured(series):
        counts = {record.parameters for record in each.runs} - {None}
        if len(counts) == 1 and (count := counts.pop()):
            found.append(_make_point(each, float(count), each.runs))
        else:
            why = "its runs differ in it" if counts else "it is not recorded"
            notes.append(f"{each.place}: not shown by its number of parameters: {why}")
    return tuple(found), tuple(notes)


def compare_times(series: Iterable[Series]) -> tuple[tuple[AccuracyPoint, ...], tuple[str, ...]]:
    """Return models with runs on the most common hardware of their task, and notes on other runs."""
    found: list[AccuracyPoint] = []
    notes: list[str] = []
    for column, of_task in group((each.column, each) for each in _select_measured(series)).items():
        timed = [record for each in of_task for record in each.runs if _get_seconds(record)]
        chosen = _choose_hardware(map(name_hardware, timed))
        notes += _describe_others(column, timed, chosen)
        for each in of_task:
            runs = [
                record for record in each.runs if _get_seconds(record) and name_hardware(record) == chosen
            ]
            if not runs:
                notes.append(f"{each.place}: not shown: no time measured on {clean(chosen)}")
                continue
            times = [_get_seconds(record) for record in runs]
            measured = {"cost_sd": compute_sd(times), "timed": len(times), "hardware": chosen}
            found.append(_make_point(each, statistics.fmean(times), runs, **measured))
    return tuple(found), tuple(notes)


def name_hardware(record: RunRecord) -> str:
    """Return the hardware class of a run, such as ``NVIDIA H100`` or ``AMD EPYC, 2 threads``."""
    parts = ("host", "device", "threads")
    if len({tuple(attempt.get(part) for part in parts) for attempt in record.attempts}) > 1:
        return SEVERAL
    if record.hardware != "cpu":
        return record.hardware or "unknown hardware"
    name, threads = record.environment.get("cpu") or "cpu", record.environment.get("threads")
    return f"{name}, {format_count(threads, 'thread')}" if threads else str(name)


def _select_measured(series: Iterable[Series]) -> list[Series]:
    """Return the series with results of runs; mixing distances are left out, as they are no accuracy."""
    results = (each for each in series if each.column.source == "run")
    return [each for each in results if each.cell.measured is not None and each.runs]


def _make_point(series: Series, cost: float, runs: Iterable[RunRecord], **measured: Any) -> AccuracyPoint:
    cell, run_ids = series.cell, tuple(record.run_id for record in runs)
    assert cell.measured is not None, "only measured cells come here"
    return AccuracyPoint(*series.labels, cell.measured, cell.sd, cell.n, cost, run_ids=run_ids, **measured)


def _get_seconds(record: RunRecord) -> float:
    return record.timing.get("train_seconds", 0.0)


def _choose_hardware(classes: Iterable[str]) -> str:
    """Return the class with most runs, ties broken by name; never that of runs on several machines."""
    counts = Counter(each for each in classes if each != SEVERAL)
    return min(counts, key=lambda each: (-counts[each], each), default="one machine")


def _describe_others(column: Column, runs: Sequence[RunRecord], chosen: str) -> list[str]:
    others = Counter(name_hardware(record) for record in runs if name_hardware(record) != chosen)
    reason = f"left out: times are of {clean(chosen)}"
    return [
        f"{clean(column.label)}: {format_run_count(count)} on {clean(where)} {reason}"
        for where, count in sorted(others.items())
    ]


def draw_parameters(found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: parameters on x, the metric on y, bars of one standard deviation over seeds."""
    return _draw_costs(found, styles, "parameters", 1.0)


def draw_time(found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: training time on x, with a bar where several seeds were timed."""
    unit, name = choose_time_unit(point.cost for point in found)
    return _draw_costs(found, styles, f"training time ({name})", unit)


def choose_time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Return the largest unit of which the longest time has at least two, in seconds, and its name."""
    longest = max(seconds)
    return next((each for each in reversed(TIMES) if longest >= 2 * each[0]), TIMES[0])


def _draw_costs(
    found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle], label: str, unit: float
) -> Figure:
    names = {point.name for point in found}
    figure, panels = make_task_panels(
        found, styles, legend=False, sizes=((1, 1 if len(names) > MANY else 2, 2.9), (0, 1, 3.2)), wide=True
    )
    width = 34 if len(panels) > 1 and len(names) <= MANY else 70
    for axes, points in panels:
        values = [point.value for point in points]
        spread = max(values) - min(values)
        # A wide bar, such as that of a model of which one seed learned nothing, may go beyond the scale.
        narrow = [
            (point.value, point.sd) for point in points if point.sd and (point.sd <= spread / 2 or not spread)
        ]
        low, high = find_range(values, [value + sign * sd for value, sd in narrow for sign in (-1, 1)])
        room = 0.12 * (high - low) or 0.05 * abs(high) or 1.0
        for point in points:
            spreads = (None if point.cost_sd is None else point.cost_sd / unit, point.sd)
            place = point.cost / unit, min(max(point.value, low - room), high + room)
            draw_point(axes, place, spreads, styles[point.name])
        best = find_pareto((point.cost / unit, point.value) for point in points)
        axes.plot(*zip(*best, strict=True), "--", color=INK, linewidth=0.8, alpha=0.6, zorder=0, gid="pareto")
        scale_axis(axes, [point.cost / unit for point in points])
        where = points[0].hardware
        axes.set_xlabel(f"{label}\n{fold(f'on {where}', width)}" if where else label)
        axes.set_ylabel(format_axis_label(points[0].unit, before="test"))
        axes.margins(0.12)
        axes.set_ylim(low - room, high + room)
    figure.draw_without_rendering()
    for axes, points in panels:
        low, high = axes.get_ylim()
        label_points(
            axes,
            [
                (
                    styles[point.name].label
                    + ("" if low <= point.value <= high else f" ({point.value:.4g})"),
                    (point.cost / unit, min(max(point.value, low), high)),
                )
                for point in points
            ],
        )
    return figure


def find_pareto(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points (cost, value) such that no other has as much value at as little cost."""
    found: list[tuple[float, float]] = []
    for cost, value in sorted(points, key=lambda point: (point[0], -point[1])):
        if not found or value > found[-1][1]:
            found.append((cost, value))
    return found


def draw_results(found: Sequence[RankedResult], styles: Mapping[str, SeriesStyle]) -> Figure:  # noqa: ARG001
    """Draw a panel per task: models downwards, the best on top, with intervals; rules as lines."""
    rankings = group_rankings(found)
    columns = min(2, len(rankings))
    across = [rankings[at : at + columns] for at in range(0, len(rankings), columns)]
    heights = [ROW * max(3, *(len(each.rows) for each in row)) + 0.75 for row in across]
    figure = Figure(figsize=(WIDTH, sum(heights)))
    panels = list(figure.subplots(len(across), columns, squeeze=False, height_ratios=heights).flat)
    for spare in panels[len(rankings) :]:
        spare.remove()
    for axes, ranking in zip(panels, rankings, strict=False):
        _draw_ranking(axes, ranking)
    return figure


def _draw_ranking(axes: Axes, ranking: Ranking) -> None:
    scale = ranking.scale
    for at, row in enumerate(ranking.rows):
        if row.low is not None and row.high is not None and row.measured is not None:
            ends = [[row.measured - row.low], [row.high - row.measured]]
            axes.errorbar(row.measured, at, xerr=ends, fmt="none", ecolor=COLOURS[0], **BARS)
        # Seeds stand below the bar, which would hide them.
        seeds = ranking.list_seeds(row)
        axes.plot(seeds, [at + 0.28] * len(seeds), ".", color=COLOURS[0], markersize=2.5, gid="seeds")
        if row.measured is not None:
            axes.plot(row.measured, at, "o", color=COLOURS[0], zorder=3, gid="measured")
        if row.reported is not None:
            axes.plot(row.reported, at, "D", markeredgecolor=INK, zorder=4, gid="reported", **HOLLOW)
        places = [*((each, at + 0.28) for each in seeds), (row.measured, at), (row.reported, at)]
        for value, place in places:
            if value is not None and not scale.has(value):
                _point_beyond(axes, ranking, value, place)
        if row.failed:
            axes.annotate(
                row.failed, (1, at), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=6
            )
    _draw_lines(axes, ranking)
    axes.set(xlim=(scale.low, scale.high), ylim=(len(ranking.rows) - 0.4, -0.6))
    axes.set_yticks(range(len(ranking.rows)), [shorten(row.name, 28) for row in ranking.rows])
    axes.set_xticks(scale.ticks)
    axes.set_xlabel(format_axis_label(ranking.unit, before="test"))
    axes.grid(axis="y", visible=False)


def _point_beyond(axes: Axes, ranking: Ranking, value: float, at: float) -> None:
    """Draw an arrow at the end of the scale, with the value that lies beyond it."""
    scale = ranking.scale
    marker, end, shift, side = (
        ("<", scale.low, 5, "left") if value < scale.low else (">", scale.high, -5, "right")
    )
    axes.plot(end, at, marker, color=COLOURS[1], markersize=4, clip_on=False, zorder=3, gid="beyond")
    axes.annotate(
        ranking.format(value),
        (end, at),
        xytext=(shift, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=6,
    )


def _draw_lines(axes: Axes, ranking: Ranking) -> None:
    """Draw the lines of rules with their names above the panel, and its title above these."""
    level, before, levels = 0, -1.0, 0
    for name, value in ranking.lines:
        place = ranking.scale.place(value)
        # Names of lines that are near each other stand on two levels.
        level, before = (1 - level if place - before < 0.35 else 0), place
        levels = max(levels, level + 1)
        axes.axvline(value, color=INK, linewidth=0.8, linestyle=":", alpha=0.6)
        axes.annotate(
            f"{shorten(name, 24)} {ranking.format(value)}",
            (value, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(0, 2 + 8 * level),
            textcoords="offset points",
            ha="center" if place < 0.85 else "right",
            fontsize=6,
        )
    axes.set_title(shorten(ranking.label, 40), pad=4 + 9 * levels)


@dataclass(frozen=True)
class ReportedPair(FigureRow):
    """One model on one task, both numbers and both standard deviations in `unit`.

    `sd` is over the `n` measured seeds; `reported_sd` is as defined by the source of the number.
    """

    reported: float
    reported_sd: float | None
    measured: float
    sd: float | None
    n: int
    run_ids: tuple[str, ...] = ()


def pair_with_reported(series: Iterable[Series]) -> tuple[tuple[ReportedPair, ...], tuple[str, ...]]:
    """Return the cells that have both numbers, and notes on those whose reported value is no number."""
    found, notes = [], []
    for each in series:
        cell = each.cell
        if not cell.reported or cell.measured is None:
            continue
        reported = parse_reported(cell.reported)
        if reported is None:
            notes.append(f"{each.place}: not shown: '{clean(cell.reported)}' is reported, which is no number")
            continue
        numbers = (reported, parse_reported(cell.reported_sd), cell.measured, cell.sd, cell.n)
        found.append(ReportedPair(*each.labels, *numbers, cell.run_ids))
    return tuple(found), tuple(notes)


def draw_reported(found: Sequence[ReportedPair], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a square panel per task with the line of equal numbers and bars of one standard deviation."""
    figure, panels = make_task_panels(found, styles, lines=False, sizes=SQUARES)
    for axes, pairs in panels:
        axes.axline((pairs[0].reported, pairs[0].reported), slope=1, color=INK, alpha=0.5, linewidth=0.8)
        ends: list[float] = []
        for pair in pairs:
            place, spreads = (pair.reported, pair.measured), (pair.reported_sd, pair.sd)
            draw_point(axes, place, spreads, styles[pair.name])
            for value, sd in zip(place, spreads, strict=True):
                ends += (value - (sd or 0.0), value + (sd or 0.0))
        room = 0.08 * (max(ends) - min(ends)) or 0.02 * abs(max(ends)) or 1.0
        limits = (min(ends) - room, max(ends) + room)
        axes.set(xlim=limits, ylim=limits)
        axes.set_box_aspect(1)
        for which in ("x", "y"):
            scale_axis(axes, (), which=which)
        axes.set_xlabel(format_axis_label(pairs[0].unit, before="reported"))
        axes.set_ylabel(format_axis_label(pairs[0].unit, before="measured"))
    return figure
