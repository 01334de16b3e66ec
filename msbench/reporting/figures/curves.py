"""Learning curves: the validation metric and the training loss by step.

::

    metrics.csv -> rows -> collect_points -> draw_curves
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from msbench.reporting.figures.series import FigureRow, Series, clean, group
from msbench.reporting.figures.style import (
    MANY,
    STEPS,
    SeriesStyle,
    draw_runs,
    format_axis_label,
    format_compact,
    make_panels,
    set_title,
    thin_lines,
)
from msbench.reporting.tables.ranking import find_range
from msbench.results.metrics_log import LogRows, is_whole, parse_number, select_epochs
from msbench.results.record import RunRecord

Part = Literal["validation", "training", "train_loss"]
WORDS: Mapping[Part, str] = {
    "validation": "validation score",
    "training": "training accuracy",
    "train_loss": "training loss",
}


@dataclass(frozen=True)
class CurvePoint(FigureRow):
    """One row of the log of a run, or of the mean over the finished seeds of a model where it has several.

    `epoch` counts from 1. `validation`, of whole epochs, and `training`, the accuracy in training, are in
    `unit`. `training` and `train_loss` are of the steps since the row before, in a log without rows within
    epochs of an epoch. Values that are not known or not finite are None.
    """

    kind: Literal["seed", "mean"]
    run_id: str
    seed: int | None
    status: str
    step: int
    epoch: int
    train_loss: float | None
    training: float | None
    validation: float | None


def collect_points(series: Iterable[Series], logs: Mapping[str, LogRows]) -> tuple[CurvePoint, ...]:
    """Return a point for every row of every run's log, then for the means of each model."""
    found: list[CurvePoint] = []
    for each in series:
        runs = [
            curve for record in each.runs if (curve := _list_rows(each, record, logs.get(record.run_id, ())))
        ]
        for curve in runs:
            found += curve
        found += _average_seeds([curve for curve in runs if curve[0].status == "finished"])
    return tuple(found)


def _list_rows(series: Series, record: RunRecord, rows: LogRows) -> list[CurvePoint]:
    key = series.metric.replace("test_", "validation_", 1)
    epochs = select_epochs(rows)
    # The log of a run that failed within its first epoch has a loss only.
    if series.column.source == "mixing" or (
        epochs and not any(parse_number(row, key) is not None for row in epochs)
    ):
        return []
    within = len(epochs) < len(rows)
    points = []
    for row in rows:
        whole = is_whole(row)
        score = parse_number(row, key) if whole else None
        training = parse_number(row, "train_accuracy") if key == "validation_accuracy" else None
        loss = parse_number(row, "train_loss")
        # Those of a whole epoch are means over what the rows within it have shown already.
        points.append(
            CurvePoint(
                *series.labels,
                kind="seed",
                run_id=record.run_id,
                seed=record.seed,
                status=record.status,
                step=int(parse_number(row, "step") or 0),
                epoch=int(float(row["epoch"])),
                train_loss=None if whole and within else loss,
                training=None if training is None or (whole and within) else series.scale * training,
                validation=None if score is None else series.scale * score,
            )
        )
    return points


def _average_seeds(curves: Sequence[Sequence[CurvePoint]]) -> list[CurvePoint]:
    """Return the means at the steps that all seeds have."""
    if len(curves) < 2:
        return []
    places = [{(point.step, point.validation is None): point for point in curve} for curve in curves]
    shared = [place for place in places[0] if all(place in each for each in places)]
    return [
        replace(
            seeds[0],
            kind="mean",
            run_id="",
            seed=None,
            train_loss=_compute_mean([seed.train_loss for seed in seeds]),
            training=_compute_mean([seed.training for seed in seeds]),
            validation=_compute_mean([seed.validation for seed in seeds]),
        )
        for seeds in ([each[place] for each in places] for place in shared)
    ]


def _compute_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def draw_curves(found: Sequence[CurvePoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw two panels per task, of the metric and of the training loss."""
    tasks = _group_tasks(found)
    names = list(dict.fromkeys(point.name for point in found))
    figure, axes = make_panels(
        2 * len(tasks), [styles[name] for name in _order_names(found, names)], height=1.9
    )
    for row, ((_, label, unit), of_task) in enumerate(tasks.items()):
        left, right = axes[2 * row : 2 * row + 2]
        part = _choose_part(of_task)
        for panel, shown in ((left, part), (right, "train_loss")):
            _draw_panel(panel, of_task, shown, styles)
            set_title(panel, label)
        left.set_ylabel(format_axis_label(unit, before=part))
        right.set_ylabel("training loss")
    thin_lines(figure, len(names))
    return figure


def _group_tasks(found: Sequence[CurvePoint]) -> dict[tuple[str, str, str], list[CurvePoint]]:
    return group(((point.task, point.label, point.unit), point) for point in found)


def _order_names(found: Sequence[CurvePoint], names: Sequence[str]) -> list[str]:
    """Return the names in the order in which the lines of the first task end, the best first."""
    first = next(iter(_group_tasks(found).values()))
    part = _choose_part(first)
    # Means come after seeds.
    last = {point.name: value for point in first if (value := getattr(point, part)) is not None}
    return sorted(names, key=lambda name: -last.get(name, float("-inf")))


def _choose_part(found: Sequence[CurvePoint]) -> Part:
    """Return the metric to show: that of validation, unless one epoch has but one of it."""
    several = any(point.validation is not None and point.epoch > 1 for point in found)
    within = any(point.validation is None and point.training is not None for point in found)
    return "training" if within and not several else "validation"


def _select_drawn(found: Sequence[CurvePoint]) -> list[CurvePoint]:
    """Return the points of all lines to draw: of many models only the means, where they have any."""
    names, averaged = {each.name for each in found}, {each.name for each in found if each.kind == "mean"}
    few = len(names) <= MANY
    return [each for each in found if few or each.kind == "mean" or each.name not in averaged]


def _limit(found: Sequence[CurvePoint], part: Part) -> tuple[float, float]:
    """Return the lowest and highest value to show of a part, without those of lines far from the others."""
    return find_range(_list_values(_select_drawn(found), part))


def _list_values(found: Iterable[CurvePoint], part: Part) -> list[float]:
    return [value for each in found if (value := getattr(each, part)) is not None]


def _find_beyond(found: Sequence[CurvePoint], part: Part) -> Iterator[tuple[CurvePoint, float]]:
    """Yield the last point, and its value, of each run that ends far from the lines that are drawn."""
    low, high = find_range(_list_values(_select_drawn(found), part), _list_values(found, part))
    seeds = group((point.run_id, point) for point in found if point.kind == "seed")
    for points in seeds.values():
        known = [(point, value) for point in points if (value := getattr(point, part)) is not None]
        if known and not low <= known[-1][1] <= high:
            yield known[-1]


def describe_beyond(found: Sequence[CurvePoint]) -> list[str]:
    """Return a note for each run that ends beyond the scale of a panel."""
    return [
        f"Beyond the scale of {clean(label)}: seed {point.seed} of {clean(point.name)},"
        f" which ends at a {WORDS[part]} of {value:.4g}"
        for (_, label, _), of_task in _group_tasks(found).items()
        for part in (_choose_part(of_task), "train_loss")
        for point, value in _find_beyond(of_task, part)
    ]


def _draw_panel(
    axes: Axes, found: Sequence[CurvePoint], part: Part, styles: Mapping[str, SeriesStyle]
) -> None:
    low, high = _limit(found, part)
    draw_runs(axes, _select_drawn(found), styles, "step", part, markers=8)
    failed = [point for point in found if point.status not in ("finished", "interrupted")]
    ends = {point.run_id: point for point in failed if getattr(point, part) is not None}
    for end in ends.values():
        colour = styles[end.name].colour
        axes.plot(end.step, getattr(end, part), "x", color=colour, markeredgewidth=1.2, zorder=4)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
    for point, value in _find_beyond(found, part):
        marker, edge = ("v", low - room) if value < low else ("^", high + room)
        colour = styles[point.name].colour
        axes.plot(point.step, edge, marker, color=colour, clip_on=False, gid="beyond", zorder=5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS, min_n_ticks=1))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_compact(value)))
    axes.set_xlabel("step")
