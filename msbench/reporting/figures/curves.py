"""Learning curves: the validation metric and the training loss by epoch.

::

    metrics.csv -> Epochs -> collect_points -> draw_curves
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from msbench.reporting.figures.series import FigureRow, Series, group
from msbench.reporting.figures.style import (
    STEPS,
    SeriesStyle,
    draw_runs,
    format_axis_label,
    make_panels,
    set_title,
    thin_lines,
)
from msbench.results.metrics_log import LogRows, parse_number, select_epochs
from msbench.results.record import RunRecord


@dataclass(frozen=True)
class CurvePoint(FigureRow):
    """One epoch of one run, or of the mean over the finished seeds of a model where it has several.

    `epochs` counts those completed. `validation` is in `unit`; it and `train_loss` are None where they are
    not finite. A mean ends with the shortest of its runs.
    """

    kind: Literal["seed", "mean"]
    run_id: str
    seed: int | None
    status: str
    epochs: int
    train_loss: float | None
    validation: float | None


def collect_points(series: Iterable[Series], logs: Mapping[str, LogRows]) -> tuple[CurvePoint, ...]:
    """Return a point for every epoch of every run's log, then for every epoch of the mean of a model."""
    found: list[CurvePoint] = []
    for each in series:
        runs = [
            curve
            for record in each.runs
            if (curve := _list_epochs(each, record, logs.get(record.run_id, ())))
        ]
        for curve in runs:
            found += curve
        found += _average_seeds([curve for curve in runs if curve[0].status == "finished"])
    return tuple(found)


def _list_epochs(series: Series, record: RunRecord, rows: LogRows) -> list[CurvePoint]:
    key = series.metric.replace("test_", "validation_", 1)
    if not any(parse_number(row, key) is not None for row in select_epochs(rows)):
        return []
    return [
        CurvePoint(
            *series.labels,
            kind="seed",
            run_id=record.run_id,
            seed=record.seed,
            status=record.status,
            epochs=int(float(row["epoch"])) + 1,
            train_loss=parse_number(row, "train_loss"),
            validation=None if (value := parse_number(row, key)) is None else series.scale * value,
        )
        for row in select_epochs(rows)
    ]


def _average_seeds(curves: Sequence[Sequence[CurvePoint]]) -> list[CurvePoint]:
    if len(curves) < 2:
        return []
    return [
        replace(
            seeds[0],
            kind="mean",
            run_id="",
            seed=None,
            train_loss=_compute_mean([seed.train_loss for seed in seeds]),
            validation=_compute_mean([seed.validation for seed in seeds]),
        )
        for seeds in zip(*curves, strict=False)
    ]


def _compute_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None


def draw_curves(found: Sequence[CurvePoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a row of panels per task: validation metric and training loss.

    Thin lines are seeds, thick ones their mean; a run that failed ends in a cross.
    """
    tasks = group(((point.task, point.label, point.unit), point) for point in found)
    names = list(dict.fromkeys(point.name for point in found))
    figure, axes = make_panels(2 * len(tasks), [styles[name] for name in names], height=1.9)
    for row, ((_, label, unit), of_task) in enumerate(tasks.items()):
        left, right = axes[2 * row : 2 * row + 2]
        for panel, part in ((left, "validation"), (right, "train_loss")):
            _draw_panel(panel, of_task, part, styles)
            set_title(panel, label)
        left.set_ylabel(format_axis_label(unit, before="validation"))
        right.set_ylabel("training loss")
    thin_lines(figure, len(names))
    return figure


def _draw_panel(
    axes: Axes, found: Sequence[CurvePoint], part: str, styles: Mapping[str, SeriesStyle]
) -> None:
    draw_runs(axes, found, styles, "epochs", part, markers=8)
    failed = [point for point in found if point.status not in ("finished", "interrupted")]
    ends = {point.run_id: point for point in failed if getattr(point, part) is not None}
    for end in ends.values():
        colour = styles[end.name].colour
        axes.plot(end.epochs, getattr(end, part), "x", color=colour, markeredgewidth=1.2, zorder=4)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS, min_n_ticks=1))
    axes.set_xlabel("epochs")
