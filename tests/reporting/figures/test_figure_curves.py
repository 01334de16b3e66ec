"""Learning curves: every epoch of every run, the mean of seeds, and what a picture of them holds."""

from dataclasses import replace
from typing import Any

import pytest
from figure_values import COLUMN, cell, column, points_of, record, series_in, table
from matplotlib.lines import Line2D

from msbench.reporting.figures.curves import CurvePoint, collect_points, describe_beyond, draw_curves
from msbench.reporting.figures.style import apply_style, assign_styles

LOGS = {
    "a": [{"epoch": "1", "step": "10", "train_loss": "2.0", "validation_accuracy": "0.25"}],
    "b": [
        {"epoch": "1", "step": "10", "train_loss": "1.0", "validation_accuracy": "0.75"},
        {"epoch": "2", "step": "20", "train_loss": "nan", "validation_accuracy": "0.5"},
    ],
    "c": [
        {"epoch": "1", "step": "10", "train_loss": "3.0", "validation_accuracy": "0.125"},
        {"epoch": "2", "step": "20", "train_loss": "inf", "validation_accuracy": "0.0625"},
    ],
}
NAMES_OF_ROWS = ("epoch", "step", "train_loss", "train_accuracy", "validation_loss", "validation_accuracy")


def rows_of(*rows: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of a log with these values."""
    return [dict(zip(NAMES_OF_ROWS, each, strict=True)) for each in rows]


RUNS = [record("a"), record("b", seed=1), record("c", seed=2, status="diverged", metrics={})]


def found(**changes: Any) -> tuple[CurvePoint, ...]:
    made = table({"Mamba": [cell("a", "b", "c")]}, [column("listops", "ListOps", **changes)])
    return collect_points(series_in(made, RUNS), LOGS)


def test_a_point_for_every_epoch_and_for_the_mean_of_finished_seeds() -> None:
    rows = [
        (each.kind, each.run_id, each.seed, each.step, each.train_loss, each.validation) for each in found()
    ]
    assert rows == [
        ("seed", "a", 0, 10, 2.0, 25.0),
        ("seed", "b", 1, 10, 1.0, 75.0),
        ("seed", "b", 1, 20, None, 50.0),
        ("seed", "c", 2, 10, 3.0, 12.5),
        ("seed", "c", 2, 20, None, 6.25),
        ("mean", "", None, 10, 1.5, 50.0),
    ]
    assert {each.status for each in found() if each.run_id == "c"} == {"diverged"}


def test_the_metric_is_that_of_the_column() -> None:
    assert found(unit="auroc") == ()
    auroc = {"a": [{"epoch": "1", "step": "5", "train_loss": "2.0", "validation_macro_auroc": "0.9"}]}
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
        expected = [(each.step, getattr(each, part)) for each in curve if getattr(each, part) is not None]
        assert points_of(lines[f"{kind}-{run_id}"]) == expected
    widths = {name: line.get_linewidth() for name, line in lines.items()}
    assert widths["seed-a"] == widths["seed-b"] < widths["mean-"]
    crosses = [line for line in lines.values() if line.get_marker() == "x"]
    last = {"validation": (20, 6.25), "train_loss": (10, 3.0)}
    assert [points_of(line)[0] for line in crosses] == [last[part]]


def test_a_single_epoch_is_marked_as_a_whole_number() -> None:
    rows = collect_points(series_in(table({"Mamba": [cell("a")]}), RUNS), LOGS)
    with apply_style():
        axes = draw_curves(rows, assign_styles(["Mamba"])).axes[0]
        shown = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert shown == [10]


def test_one_epoch_is_a_curve_of_its_rows() -> None:
    logs = {
        name: rows_of(
            ("1", "5", loss, "0.25", "", ""),
            ("1", "10", "1.0", "0.5", "", ""),
            ("1", "10", "9", "0.3", "0.9", "0.6"),
        )
        for name, loss in (("a", "2.0"), ("b", "3.0"))
    }
    rows = collect_points(series_in(table({"Mamba": [cell("a", "b")]}), RUNS), logs)
    shown = [(each.step, each.epoch, each.train_loss, each.training, each.validation) for each in rows[-3:]]
    # What the row of the epoch has of training is over steps that the rows within it have shown.
    assert shown == [(5, 1, 2.5, 25.0, None), (10, 1, 1.0, 50.0, None), (10, 1, None, None, 60.0)]
    with apply_style():
        left, right = draw_curves(rows, assign_styles(["Mamba"])).axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("training accuracy (%)", "training loss")
    means = [{str(line.get_gid()): line for line in axes.get_lines()}["mean-"] for axes in (left, right)]
    assert [points_of(line) for line in means] == [[(5, 25.0), (10, 50.0)], [(5, 2.5), (10, 1.0)]]
    several = [replace(rows[-1], epoch=2, step=20), *rows]
    with apply_style():
        left, _ = draw_curves(several, assign_styles(["Mamba"])).axes
    assert left.get_ylabel() == "validation accuracy (%)"


def test_seeds_are_averaged_at_the_steps_that_all_have() -> None:
    logs = {
        "a": rows_of(("1", "5", "2.0", "0.5", "", ""), ("1", "10", "1.0", "0.5", "0.9", "0.5")),
        "b": rows_of(("1", "4", "2.0", "0.5", "", ""), ("1", "10", "1.0", "0.5", "0.9", "0.7")),
    }
    rows = collect_points(series_in(table({"Mamba": [cell("a", "b")]}), RUNS), logs)
    assert [(row.step, row.validation) for row in rows if row.kind == "mean"] == [(10, 60.0)]


def test_a_seed_that_learned_nothing_does_not_flatten_the_axis() -> None:
    names = [f"s{seed}" for seed in range(9)]
    logs = {
        name: rows_of(("1", "5", "1.5", "0", "1", f"0.8{at}"), ("2", "10", "1.0", "0", "1", f"0.9{at}"))
        for at, name in enumerate(names)
    }
    logs["s8"] = rows_of(("1", "5", "1.5", "0", "1", "0.1"), ("2", "10", "900", "0", "1", "0.1"))
    runs = [record(name, seed=at) for at, name in enumerate(names)]
    rows = collect_points(series_in(table({"Mamba": [cell(*names)]}), runs), logs)
    with apply_style():
        left, right = draw_curves(rows, assign_styles(["Mamba"])).axes
    for axes, (least, most), edge in ((left, (70, 100), 0), (right, (0.5, 2), 1)):
        limits = axes.get_ylim()
        assert least < limits[0] < limits[1] < most
        [arrow] = [line for line in axes.get_lines() if line.get_gid() == "beyond"]
        assert points_of(arrow) == [(10, limits[edge])]
    assert describe_beyond(rows) == [
        "Beyond the scale of ListOps: seed 8 of Mamba, which ends at a validation score of 10",
        "Beyond the scale of ListOps: seed 8 of Mamba, which ends at a training loss of 900",
    ]


def test_a_run_that_failed_within_its_first_epoch_has_a_curve() -> None:
    logs = {"c": rows_of(("1", "1", "2.0", "0.5", "", ""), ("1", "2", "7.0", "0.5", "", ""))}
    rows = collect_points(series_in(table({"Mamba": [cell("c")]}), RUNS), logs)
    assert [(row.step, row.train_loss, row.status) for row in rows] == [
        (1, 2.0, "diverged"),
        (2, 7.0, "diverged"),
    ]


def test_a_single_seed_is_drawn_as_a_mean_would_be() -> None:
    alone = collect_points(series_in(table({"Mamba": [cell("b")]}), RUNS), LOGS)
    line = lines_of(alone, 0)["seed-b"]
    assert (line.get_linewidth(), line.get_marker()) == (1.4, "o")
