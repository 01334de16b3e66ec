"""Learning curves: every epoch of every run, the mean of seeds, and what a picture of them holds."""

from typing import Any

import pytest
from figure_values import COLUMN, cell, column, points_of, record, series_in, table
from matplotlib.lines import Line2D

from msbench.reporting.figures.curves import CurvePoint, collect_points, draw_curves
from msbench.reporting.figures.style import apply_style, assign_styles

LOGS = {
    "a": [{"epoch": "0", "train_loss": "2.0", "validation_accuracy": "0.25"}],
    "b": [
        {"epoch": "0", "train_loss": "1.0", "validation_accuracy": "0.75"},
        {"epoch": "1", "train_loss": "nan", "validation_accuracy": "0.5"},
    ],
    "c": [
        {"epoch": "0", "train_loss": "3.0", "validation_accuracy": "0.125"},
        {"epoch": "1", "train_loss": "inf", "validation_accuracy": "0.0625"},
    ],
}
RUNS = [record("a"), record("b", seed=1), record("c", seed=2, status="diverged", metrics={})]


def found(**changes: Any) -> tuple[CurvePoint, ...]:
    made = table({"Mamba": [cell("a", "b", "c")]}, [column("listops", "ListOps", **changes)])
    return collect_points(series_in(made, RUNS), LOGS)


def test_a_point_for_every_epoch_and_for_the_mean_of_finished_seeds() -> None:
    rows = [
        (each.kind, each.run_id, each.seed, each.epochs, each.train_loss, each.validation) for each in found()
    ]
    assert rows == [
        ("seed", "a", 0, 1, 2.0, 25.0),
        ("seed", "b", 1, 1, 1.0, 75.0),
        ("seed", "b", 1, 2, None, 50.0),
        ("seed", "c", 2, 1, 3.0, 12.5),
        ("seed", "c", 2, 2, None, 6.25),
        ("mean", "", None, 1, 1.5, 50.0),
    ]
    assert {each.status for each in found() if each.run_id == "c"} == {"diverged"}


def test_the_metric_is_that_of_the_column() -> None:
    assert found(unit="auroc") == ()
    auroc = {"a": [{"epoch": "0", "train_loss": "2.0", "validation_macro_auroc": "0.9"}]}
    series = series_in(table({"Mamba": [cell("a")]}, [column("listops", "All", "auroc")]), RUNS)
    assert [each.validation for each in collect_points(series, auroc)] == [0.9]
    tokens = series_in(table({"Mamba": [cell("a")]}, [column("listops", "All", "tokens")]), RUNS)
    assert collect_points(tokens, LOGS) == ()


def test_one_seed_has_no_mean_and_runs_of_other_tasks_no_curve() -> None:
    made = table({"Mamba": [cell("a", "x")], "Average": [cell("b")]}, [COLUMN])
    other = [record("a"), record("b", task="another")]
    rows = collect_points(series_in(made, other), LOGS)
    assert [(each.name, each.kind) for each in rows] == [("Mamba", "seed")]


def lines_of(rows: tuple[CurvePoint, ...], axes: int) -> dict[str, Line2D]:
    with apply_style():
        figure = draw_curves(rows, assign_styles(each.name for each in rows))
    return {str(line.get_gid()): line for line in figure.axes[axes].get_lines()}


@pytest.mark.parametrize(("axes", "part"), [(0, "validation"), (1, "train_loss")])
def test_the_picture_holds_the_rows(axes: int, part: str) -> None:
    rows, lines = found(), lines_of(found(), axes)
    for kind, run_id in {(each.kind, each.run_id) for each in rows}:
        curve = [each for each in rows if (each.kind, each.run_id) == (kind, run_id)]
        expected = [(each.epochs, getattr(each, part)) for each in curve if getattr(each, part) is not None]
        assert points_of(lines[f"{kind}-{run_id}"]) == expected
    widths = {name: line.get_linewidth() for name, line in lines.items()}
    assert widths["seed-a"] == widths["seed-b"] < widths["mean-"]
    crosses = [line for line in lines.values() if line.get_marker() == "x"]
    last = {"validation": (2, 6.25), "train_loss": (1, 3.0)}
    assert [points_of(line)[0] for line in crosses] == [last[part]]


def test_a_single_epoch_is_marked_as_a_whole_number() -> None:
    rows = collect_points(series_in(table({"Mamba": [cell("a")]}), RUNS), LOGS)
    with apply_style():
        axes = draw_curves(rows, assign_styles(["Mamba"])).axes[0]
        shown = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert shown == [1]


def test_a_single_seed_is_drawn_as_a_mean_would_be() -> None:
    alone = collect_points(series_in(table({"Mamba": [cell("b")]}), RUNS), LOGS)
    line = lines_of(alone, 0)["seed-b"]
    assert (line.get_linewidth(), line.get_marker()) == (1.4, "o")
