"""Results against parameters, time and reported numbers: which runs count, and what the pictures hold."""

from typing import Any

import numpy as np
import pytest
from figure_values import CPU, GPU, cell, column, points_of, record, series_in, table
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from msbench.reporting.figures.accuracy import (
    SEVERAL,
    AccuracyPoint,
    ReportedPair,
    choose_time_unit,
    compare_parameters,
    compare_times,
    draw_parameters,
    draw_reported,
    draw_time,
    find_pareto,
    name_hardware,
    pair_with_reported,
)
from msbench.reporting.figures.style import apply_style, assign_styles
from msbench.reporting.tables.cells import Cell


def timed(identity: str, seconds: float, where: dict[str, Any] = CPU, **changes: Any) -> Any:
    return record(identity, timing={"train_seconds": seconds}, environment=where, **changes)


def drawn(rows: tuple[AccuracyPoint, ...], draw: Any) -> Figure:
    with apply_style():
        figure: Figure = draw(rows, assign_styles(each.name for each in rows))
    return figure


def containers(figure: Figure, panel: int = 0) -> list[ErrorbarContainer]:
    return [each for each in figure.axes[panel].containers if isinstance(each, ErrorbarContainer)]


def test_a_point_is_the_cell_and_the_parameters_of_its_runs() -> None:
    made = table({"A": [cell("a", "b", measured=51.5, sd=1.5)], "B": [cell("c", measured=40.0)]})
    records = [record("a"), record("b", seed=1), record("c", parameters=2000)]
    rows, notes = compare_parameters(series_in(made, records))
    assert [(row.name, row.cost, row.value, row.sd, row.n) for row in rows] == [
        ("A", 1000.0, 51.5, 1.5, 2),
        ("B", 2000.0, 40.0, None, 1),
    ]
    assert notes == ()


def test_models_without_a_number_are_in_the_notes() -> None:
    made = table({"A": [cell("a", "b")], "B": [cell("c")], "C": [Cell(run_ids=("d",), status="diverged")]})
    records = [record("a"), record("b", parameters=7), record("c", parameters=None), record("d")]
    rows, notes = compare_parameters(series_in(made, records))
    assert rows == ()
    assert notes == (
        "A on ListOps: not shown by its number of parameters: its runs differ in it",
        "B on ListOps: not shown by its number of parameters: it is not recorded",
    )


def test_times_are_of_the_hardware_that_most_runs_were_on() -> None:
    made = table({"A": [cell("a", "b", "c", sd=1.0)], "B": [cell("d")], "C": [cell("e")]})
    records = [
        *(timed("a", 60.0), timed("b", 120.0), timed("c", 5.0, GPU)),
        *(timed("d", 30.0), timed("e", 4.0, {**CPU, "threads": 1})),
    ]
    rows, notes = compare_times(series_in(made, records))
    assert [(row.name, row.cost, row.timed, row.n, row.run_ids) for row in rows] == [
        ("A", 90.0, 2, 3, ("a", "b")),
        ("B", 30.0, 1, 1, ("d",)),
    ]
    assert rows[0].cost_sd == pytest.approx(42.4264, rel=1e-5)
    assert rows[1].cost_sd is None
    assert {row.hardware for row in rows} == {"A Processor, 2 threads"}
    assert notes == (
        "ListOps: 1 run on A Processor, 1 thread left out: times are of A Processor, 2 threads",
        "ListOps: 1 run on NVIDIA H100 left out: times are of A Processor, 2 threads",
        "C on ListOps: not shown: no time measured on A Processor, 2 threads",
    )


def test_each_task_has_its_own_hardware() -> None:
    columns = [column("listops", "ListOps"), column("text", "Text")]
    made = table({"A": [cell("a"), cell("b")]}, columns)
    records = [timed("a", 60.0), timed("b", 5.0, GPU, task="text")]
    rows, notes = compare_times(series_in(made, records))
    assert [row.hardware for row in rows] == ["A Processor, 2 threads", "NVIDIA H100"]
    assert notes == ()


def test_a_run_that_moved_has_no_time() -> None:
    there, here = ({"host": host, "device": "cpu", "threads": "2"} for host in ("there", "here"))
    moved = record("a", attempts=[there, here])
    assert name_hardware(moved) == SEVERAL
    assert name_hardware(record("b", attempts=[here, here])) == "A Processor, 2 threads"
    rows, notes = compare_times(series_in(table({"A": [cell("a")]}), [moved]))
    assert rows == ()
    assert notes[0].startswith("ListOps: 1 run on several machines left out")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "unknown hardware"),
        ({"device": "cpu"}, "cpu"),
        (GPU, "NVIDIA H100"),
        ({"device": "cuda"}, "cuda"),
    ],
)
def test_old_records_say_less_of_their_hardware(environment: dict[str, Any], expected: str) -> None:
    assert name_hardware(record("a", environment=environment)) == expected


def test_the_picture_holds_the_rows() -> None:
    made = table({"A": [cell("a", "b", measured=51.5, sd=1.5)], "B": [cell("c", measured=40.0)]})
    records = [timed("a", 600.0), timed("b", 1200.0), timed("c", 300.0)]
    rows, _ = compare_times(series_in(made, records))
    figure = drawn(rows, draw_time)
    assert figure.axes[0].get_xlabel() == "training time (min)\non A Processor, 2 threads"
    for row, container in zip(rows, containers(figure), strict=True):
        line, caps, bars = container.lines
        assert line is not None
        assert points_of(line)[0] == (row.cost / 60, row.value)
        ends = [bar.get_segments()[0].tolist() for bar in bars]
        if row.sd is None or row.cost_sd is None:
            assert (ends, caps) == ([], ())
        else:
            across = [[(row.cost + sign * row.cost_sd) / 60, row.value] for sign in (-1, 1)]
            upwards = [[row.cost / 60, row.value + sign * row.sd] for sign in (-1, 1)]
            np.testing.assert_allclose(ends, [across, upwards])


@pytest.mark.parametrize(
    "name", ["Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "x" * 80, "a long name " * 9]
)
def test_the_hardware_below_a_panel_stays_clear_of_its_neighbour(name: str) -> None:
    columns = [column("listops", "ListOps"), column("text", "Text")]
    where = {**CPU, "cpu": name}
    records = [timed("a", 60.0, where), timed("b", 5.0, where, task="text")]
    rows, _ = compare_times(series_in(table({"A": [cell("a"), cell("b")]}, columns), records))
    with apply_style():
        figure = draw_time(rows, assign_styles(each.name for each in rows))
        figure.draw_without_rendering()
        first, second = (axes.xaxis.label.get_window_extent() for axes in figure.axes)
    assert 0 <= first.x0 < first.x1 < second.x0 < second.x1 <= figure.bbox.width


def test_the_line_joins_what_none_surpasses_at_less_cost() -> None:
    points = [(3.0, 50.0), (1.0, 40.0), (2.0, 39.0), (3.0, 55.0), (4.0, 55.0), (9.0, 60.0)]
    assert find_pareto(points) == [(1.0, 40.0), (3.0, 55.0), (9.0, 60.0)]
    made = table({f"M{cost}": [cell(f"m{cost}", measured=value)] for cost, value in points[1:]})
    records = [record(f"m{cost}", parameters=int(1000 * cost)) for cost, _ in points[1:]]
    axes = drawn(compare_parameters(series_in(made, records))[0], draw_parameters).axes[0]
    [line] = [each for each in axes.get_lines() if each.get_gid() == "pareto"]
    assert points_of(line) == [(1000.0, 40.0), (3000.0, 55.0), (9000.0, 60.0)]


def test_names_cover_neither_points_nor_names() -> None:
    cells = {f"model-{at}": [cell(f"m{at}", measured=50.0 + at % 3)] for at in range(20)}
    records = [record(f"m{at}", parameters=1000 + at) for at in range(20)]
    rows, _ = compare_parameters(series_in(table(cells), records))
    with apply_style():
        figure = draw_parameters(rows, assign_styles(each.name for each in rows))
        figure.draw_without_rendering()
        [axes] = figure.axes
        boxes = [text.get_window_extent() for text in axes.texts]
        frame = axes.get_window_extent()
        points = [axes.transData.transform((row.cost, row.value)) for row in rows]
    assert len(boxes) == 20
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])
    assert not any(box.contains(*point) for box in boxes for point in points)
    assert all(frame.contains(*corner) for box in boxes for corner in (box.min, box.max))


def test_a_model_far_from_the_others_does_not_flatten_the_axis() -> None:
    values = {"A": 80.0, "B": 81.0, "C": 82.0, "D": 81.5, "E": 80.5, "F": 82.5, "lost": 10.0}
    made = table({name: [cell(name, measured=value)] for name, value in values.items()})
    rows, _ = compare_parameters(series_in(made, [record(name) for name in values]))
    [axes] = drawn(rows, draw_parameters).axes
    low, high = axes.get_ylim()
    assert 75 < low < 80 < 82.5 < high < 85
    assert "lost (10)" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("draw", [draw_parameters, draw_time])
def test_one_panel_a_task_and_one_name_a_point(draw: Any) -> None:
    columns = [
        column(f"t{number}", f"Task {number}", unit) for number, unit in enumerate(("percent", "auroc"))
    ]
    made = table({"A": [cell("a"), cell("b")], "B": [cell("c"), cell("d")]}, columns)
    records = [record(each, task=f"t{'ac'.find(each) < 0:d}") for each in "abcd"]
    rows, _ = (compare_parameters if draw is draw_parameters else compare_times)(series_in(made, records))
    figure = drawn(rows, draw)
    assert [axes.get_title() for axes in figure.axes] == ["Task 0", "Task 1"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy (%)", "test macro AUROC"]
    assert not figure.legends, "the names stand at the points"
    assert all([text.get_text() for text in axes.texts] == ["A", "B"] for axes in figure.axes)
    assert [len(containers(figure, panel)) for panel in (0, 1)] == [2, 2]


@pytest.mark.parametrize(
    ("longest", "unit"),
    [
        (0.5, (1.0, "s")),
        (119.0, (1.0, "s")),
        (120.0, (60.0, "min")),
        (7300.0, (3600.0, "h")),
        (2e5, (86400.0, "days")),
    ],
)
def test_times_have_a_unit_that_suits_the_longest(longest: float, unit: tuple[float, str]) -> None:
    assert choose_time_unit([0.1, longest]) == unit


def found(*cells: Cell) -> tuple[tuple[ReportedPair, ...], tuple[str, ...]]:
    made = table({f"M{number}": [each] for number, each in enumerate(cells)})
    return pair_with_reported(series_in(made, [record("a")]))


def test_only_cells_with_both_numbers() -> None:
    rows, notes = found(
        cell("a", reported="62.15", reported_sd="0.50", measured=61.0, sd=2.0, n=3),
        cell("a", measured=50.0),
        Cell(reported="40.00"),
        cell("a", reported="70", measured=71.0),
    )
    numbers = [(row.name, row.reported, row.reported_sd, row.measured, row.sd, row.n) for row in rows]
    assert numbers == [("M0", 62.15, 0.5, 61.0, 2.0, 3), ("M3", 70.0, None, 71.0, None, 1)]
    assert notes == ()


@pytest.mark.parametrize("text", ["x", "nan", "$50$"])
def test_a_reported_value_that_is_no_number_is_in_the_notes(text: str) -> None:
    rows, notes = found(cell("a", reported=text))
    assert rows == ()
    assert notes == (f"M0 on ListOps: not shown: '{text}' is reported, which is no number",)


def test_the_picture_holds_the_rows_and_the_line() -> None:
    rows, _ = found(
        cell("a", reported="62.15", reported_sd="0.50", measured=61.0, sd=2.0),
        cell("a", reported="70", measured=71.0),
    )
    with apply_style():
        figure = draw_reported(rows, assign_styles(each.name for each in rows))
    axes: Any = figure.axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    assert axes.get_lines()[0].get_slope() == 1
    first, second = (each for each in axes.containers if isinstance(each, ErrorbarContainer))
    assert [points_of(each.lines[0])[0] for each in (first, second)] == [(62.15, 61.0), (70.0, 71.0)]
    across, upwards = (bar.get_segments()[0].tolist() for bar in first.lines[2])
    assert across == [pytest.approx([61.65, 61.0]), pytest.approx([62.65, 61.0])]
    assert upwards == [[62.15, 59.0], [62.15, 63.0]]
    assert second.lines[2] == ()
    low, high = axes.get_xlim()
    assert low < 59.0
    assert high > 71.0


@pytest.mark.parametrize(("count", "across"), [(1, 1), (2, 2), (4, 2), (5, 3), (6, 3)])
def test_panels_are_side_by_side(count: int, across: int) -> None:
    columns = [column("listops", f"T{number}") for number in range(count)]
    made = table({"M": [cell("a", reported="50")] * count}, columns)
    rows, _ = pair_with_reported(series_in(made, [record("a")]))
    with apply_style():
        figure: Any = draw_reported(rows, assign_styles(["M"]))
    assert [axes.get_title() for axes in figure.axes] == [f"T{number}" for number in range(count)]
    assert figure.axes[0].get_gridspec().ncols == across
