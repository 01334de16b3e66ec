"""Result of a model against its cost: number of parameters, or training time.

Times are compared within one class of hardware: the GPU of the same name, or the CPU of the same name with
as many threads. The class with most runs of a task is drawn and the others are listed in notes.
"""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
from msbench.reporting.figures.names import clean, folded
from msbench.reporting.figures.series import Series, grouped
from msbench.reporting.tables.cells import Column
from msbench.reporting.tables.notes import format_run_count
from msbench.results.record import RunRecord
from msbench.stats import spread

SEVERAL = "several machines"
TIMES = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days"))


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


def of_parameters(series: Iterable[Series]) -> tuple[tuple[AccuracyPoint, ...], tuple[str, ...]]:
    """Return the models whose records have their number of parameters, and notes on the others."""
    found, notes = [], []
    for each in _measured(series):
        counts = {record.parameters for record in each.runs} - {None}
        if len(counts) == 1 and (count := counts.pop()):
            found.append(_point(each, float(count), run_ids=_ids(each.runs)))
        else:
            why = "its runs differ in it" if counts else "it is not recorded"
            notes.append(f"{each.place}: not shown by its number of parameters: {why}")
    return tuple(found), tuple(notes)


def of_time(series: Iterable[Series]) -> tuple[tuple[AccuracyPoint, ...], tuple[str, ...]]:
    """Return models with runs on the most common hardware of their task, and notes on other runs."""
    found: list[AccuracyPoint] = []
    notes: list[str] = []
    for column, of_task in grouped((each.column, each) for each in _measured(series)).items():
        timed = [record for each in of_task for record in each.runs if _seconds(record)]
        chosen = _most_common(map(hardware, timed))
        notes += _elsewhere(column, timed, chosen)
        for each in of_task:
            runs = [record for record in each.runs if _seconds(record) and hardware(record) == chosen]
            if not runs:
                notes.append(f"{each.place}: not shown: no time measured on {clean(chosen)}")
                continue
            times = [_seconds(record) for record in runs]
            found.append(_point(each, statistics.fmean(times), spread(times), len(times), chosen, _ids(runs)))
    return tuple(found), tuple(notes)


def hardware(record: RunRecord) -> str:
    """Return the hardware class of a run, such as ``NVIDIA H100`` or ``AMD EPYC, 2 threads``."""
    parts = ("host", "device", "threads")
    if len({tuple(attempt.get(part) for part in parts) for attempt in record.attempts}) > 1:
        return SEVERAL
    if record.hardware != "cpu":
        return record.hardware or "unknown hardware"
    name, threads = record.environment.get("cpu") or "cpu", record.environment.get("threads")
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}" if threads else str(name)


def _measured(series: Iterable[Series]) -> list[Series]:
    """Return the series with results of runs; mixing distances are left out, as they are no accuracy."""
    results = (each for each in series if each.column.source == "run")
    return [each for each in results if each.cell.measured is not None and each.runs]


def _point(
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


def _seconds(record: RunRecord) -> float:
    return record.timing.get("train_seconds", 0.0)


def _ids(records: Iterable[RunRecord]) -> tuple[str, ...]:
    return tuple(record.run_id for record in records)


def _most_common(classes: Iterable[str]) -> str:
    """Return the class with most runs, ties broken by name; never that of runs on several machines."""
    counts = Counter(each for each in classes if each != SEVERAL)
    return min(counts, key=lambda each: (-counts[each], each), default="one machine")


def _elsewhere(column: Column, runs: Sequence[RunRecord], chosen: str) -> list[str]:
    others = Counter(hardware(record) for record in runs if hardware(record) != chosen)
    told = f"left out: times are of {clean(chosen)}"
    return [
        f"{clean(column.label)}: {format_run_count(count)} on {clean(where)} {told}"
        for where, count in sorted(others.items())
    ]


def draw_parameters(found: Sequence[AccuracyPoint], looks: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: parameters on x, the metric on y, bars of one standard deviation over seeds."""
    return _draw(found, looks, partial(_across, label="parameters", unit=1.0))


def draw_time(found: Sequence[AccuracyPoint], looks: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: training time on x, with a bar where several seeds were timed."""
    unit, name = time_unit(point.cost for point in found)
    return _draw(found, looks, partial(_across, label=f"training time ({name})", unit=unit))


def time_unit(seconds: Iterable[float]) -> tuple[float, str]:
    """Return the largest unit of which the longest time has at least two, in seconds, and its name."""
    longest = max(seconds)
    return next((each for each in reversed(TIMES) if longest >= 2 * each[0]), TIMES[0])


def _draw(found: Sequence[AccuracyPoint], looks: Mapping[str, SeriesStyle], across: partial[None]) -> Figure:
    tasks = grouped(((point.task, point.label, point.unit), point) for point in found)
    names = dict.fromkeys(point.name for point in found)
    figure, axes = grid_panels(len(tasks), dots(looks[name] for name in names))
    for panel, ((_, label, unit), of_task) in zip(axes, tasks.items(), strict=True):
        across(panel, of_task, looks)
        title(panel, label)
        panel.set_ylabel(axis_label(unit, before="test"))
    return figure


def _across(
    axes: Axes, found: Sequence[AccuracyPoint], looks: Mapping[str, SeriesStyle], *, label: str, unit: float
) -> None:
    for point in found:
        spread = None if point.cost_sd is None else point.cost_sd / unit
        bars(axes, (point.cost / unit, point.value), (spread, point.sd), looks[point.name])
    scaled_axis(axes, [point.cost / unit for point in found])
    where = found[0].hardware
    axes.set_xlabel(f"{label}\n{folded(f'on {where}', 34)}" if where else label)
    axes.margins(0.12)
