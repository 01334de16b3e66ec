"""Result of a model against its number of parameters, its training time, and the reported number.

Times are compared within one class of hardware: the GPU of the same name, or the CPU of the same name with
as many threads. The class with most runs of a task is drawn and the others are listed in notes.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from msbench.reporting.figures.series import Series, clean, fold, group
from msbench.reporting.figures.style import (
    INK,
    SeriesStyle,
    draw_point,
    format_axis_label,
    make_grid,
    remove_lines,
    scale_axis,
    set_title,
)
from msbench.reporting.tables.cells import Column
from msbench.reporting.tables.notes import format_run_count
from msbench.results.record import RunRecord
from msbench.stats import spread

SEVERAL = "several machines"
TIMES = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days"))
SQUARES = ((4, 3, 2.05), (1, 2, 2.9), (0, 1, 3.4))
"""For more panels than the first number: the panels per row, and the height of one in inches."""


@dataclass(frozen=True)
class AccuracyPoint:
    """One model on one task. `value` and `sd` (over `n` seeds) are in `unit`.

    `cost` is a number of parameters, or the mean training time in seconds over `timed` runs on `hardware`,
    with the sample standard deviation over those; None for a single one.
    """

    table: str
    task: str
    label: str
    unit: str
    name: str
    model: str
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
            found.append(_make_point(each, float(count), run_ids=_list_ids(each.runs)))
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
            found.append(
                _make_point(each, statistics.fmean(times), spread(times), len(times), chosen, _list_ids(runs))
            )
    return tuple(found), tuple(notes)


def name_hardware(record: RunRecord) -> str:
    """Return the hardware class of a run, such as ``NVIDIA H100`` or ``AMD EPYC, 2 threads``."""
    parts = ("host", "device", "threads")
    if len({tuple(attempt.get(part) for part in parts) for attempt in record.attempts}) > 1:
        return SEVERAL
    if record.hardware != "cpu":
        return record.hardware or "unknown hardware"
    name, threads = record.environment.get("cpu") or "cpu", record.environment.get("threads")
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}" if threads else str(name)


def _select_measured(series: Iterable[Series]) -> list[Series]:
    """Return the series with results of runs; mixing distances are left out, as they are no accuracy."""
    results = (each for each in series if each.column.source == "run")
    return [each for each in results if each.cell.measured is not None and each.runs]


def _make_point(
    series: Series,
    cost: float,
    cost_sd: float | None = None,
    timed: int | None = None,
    where: str = "",
    run_ids: tuple[str, ...] = (),
) -> AccuracyPoint:
    column, cell = series.column, series.cell
    assert cell.measured is not None, "only measured cells come here"
    names = (series.table, column.task, column.label, column.unit, series.name, series.model)
    return AccuracyPoint(*names, cell.measured, cell.sd, cell.n, cost, cost_sd, timed, where, run_ids)


def _get_seconds(record: RunRecord) -> float:
    return record.timing.get("train_seconds", 0.0)


def _list_ids(records: Iterable[RunRecord]) -> tuple[str, ...]:
    return tuple(record.run_id for record in records)


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
    return _draw(found, styles, partial(_draw_costs, label="parameters", unit=1.0))


def draw_time(found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: training time on x, with a bar where several seeds were timed."""
    unit, name = choose_time_unit(point.cost for point in found)
    return _draw(found, styles, partial(_draw_costs, label=f"training time ({name})", unit=unit))


def choose_time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Return the largest unit of which the longest time has at least two, in seconds, and its name."""
    longest = max(seconds)
    return next((each for each in reversed(TIMES) if longest >= 2 * each[0]), TIMES[0])


def _draw(found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle], across: partial[None]) -> Figure:
    tasks = group(((point.task, point.label, point.unit), point) for point in found)
    names = dict.fromkeys(point.name for point in found)
    figure, axes = make_grid(len(tasks), remove_lines(styles[name] for name in names))
    for panel, ((_, label, unit), of_task) in zip(axes, tasks.items(), strict=True):
        across(panel, of_task, styles)
        set_title(panel, label)
        panel.set_ylabel(format_axis_label(unit, before="test"))
    return figure


def _draw_costs(
    axes: Axes, found: Sequence[AccuracyPoint], styles: Mapping[str, SeriesStyle], *, label: str, unit: float
) -> None:
    for point in found:
        spread = None if point.cost_sd is None else point.cost_sd / unit
        draw_point(axes, (point.cost / unit, point.value), (spread, point.sd), styles[point.name])
    scale_axis(axes, [point.cost / unit for point in found])
    where = found[0].hardware
    axes.set_xlabel(f"{label}\n{fold(f'on {where}', 34)}" if where else label)
    axes.margins(0.12)


@dataclass(frozen=True)
class ReportedPair:
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


def pair_with_reported(series: Iterable[Series]) -> tuple[tuple[ReportedPair, ...], tuple[str, ...]]:
    """Return the cells that have both numbers, and notes on those whose reported value is no number."""
    found, notes = [], []
    for each in series:
        column, cell = each.column, each.cell
        if not cell.reported or cell.measured is None:
            continue
        reported = _parse_number(cell.reported)
        if reported is None:
            notes.append(f"{each.place}: not shown: '{clean(cell.reported)}' is reported, which is no number")
            continue
        names = (each.table, column.task, column.label, column.unit, each.name, each.model)
        numbers = (reported, _parse_number(cell.reported_sd), cell.measured, cell.sd, cell.n)
        found.append(ReportedPair(*names, *numbers, cell.run_ids))
    return tuple(found), tuple(notes)


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def draw_reported(found: Sequence[ReportedPair], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a square panel per task with the line of equal numbers and bars of one standard deviation."""
    tasks = group(((pair.task, pair.label, pair.unit), pair) for pair in found)
    names = dict.fromkeys(pair.name for pair in found)
    columns, height = next((columns, height) for more, columns, height in SQUARES if len(tasks) > more)
    figure, axes = make_grid(len(tasks), remove_lines(styles[name] for name in names), columns, height=height)
    for panel, ((_, label, unit), of_task) in zip(axes, tasks.items(), strict=True):
        _draw_pairs(panel, of_task, styles)
        set_title(panel, label)
        panel.set_xlabel(format_axis_label(unit, before="reported"))
        panel.set_ylabel(format_axis_label(unit, before="measured"))
    return figure


def _draw_pairs(axes: Axes, found: Sequence[ReportedPair], styles: Mapping[str, SeriesStyle]) -> None:
    axes.axline((found[0].reported, found[0].reported), slope=1, color=INK, alpha=0.5, linewidth=0.8)
    for pair in found:
        spreads = (pair.reported_sd, pair.sd)
        draw_point(axes, (pair.reported, pair.measured), spreads, styles[pair.name])
    ends = [end for pair in found for end in _compute_extent(pair)]
    low, high = min(ends), max(ends)
    room = 0.08 * (high - low) or 0.02 * abs(high) or 1.0
    axes.set(xlim=(low - room, high + room), ylim=(low - room, high + room))
    axes.set_box_aspect(1)
    for which in ("x", "y"):
        scale_axis(axes, (), which=which)


def _compute_extent(pair: ReportedPair) -> tuple[float, ...]:
    across, upwards = pair.reported_sd or 0.0, pair.sd or 0.0
    return (
        *(pair.reported - across, pair.reported + across),
        *(pair.measured - upwards, pair.measured + upwards),
    )
