"""What a model reaches against its parameters and its time: which runs count, and what the picture holds."""

from typing import Any

import numpy as np
import pytest
from figure_values import CPU, GPU, cell, column, points_of, record, series_in, table
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from msbench.reporting.figures.accuracy import (
    SEVERAL,
    AccuracyPoint,
    draw_parameters,
    draw_time,
    hardware,
    of_parameters,
    of_time,
    time_unit,
)
from msbench.reporting.figures.look import looks
from msbench.reporting.figures.style import styled
from msbench.reporting.tables.cells import Cell


def timed(identity: str, seconds: float, where: dict[str, Any] = CPU, **changes: Any) -> Any:
    return record(identity, timing={"train_seconds": seconds}, environment=where, **changes)


def drawn(rows: tuple[AccuracyPoint, ...], draw: Any) -> Figure:
    with styled():
        figure: Figure = draw(rows, looks(each.name for each in rows))
    return figure


def containers(figure: Figure, panel: int = 0) -> list[ErrorbarContainer]:
    return [each for each in figure.axes[panel].containers if isinstance(each, ErrorbarContainer)]


def test_a_point_is_the_cell_and_the_parameters_of_its_runs() -> None:
    made = table({"A": [cell("a", "b", measured=51.5, sd=1.5)], "B": [cell("c", measured=40.0)]})
    records = [record("a"), record("b", seed=1), record("c", parameters=2000)]
    rows, notes = of_parameters(series_in(made, records))
    assert [(row.name, row.cost, row.value, row.sd, row.n) for row in rows] == [
        ("A", 1000.0, 51.5, 1.5, 2),
        ("B", 2000.0, 40.0, None, 1),
    ]
    assert notes == ()


def test_what_has_no_number_is_not_drawn_and_told() -> None:
    made = table({"A": [cell("a", "b")], "B": [cell("c")], "C": [Cell(run_ids=("d",), status="diverged")]})
    records = [record("a"), record("b", parameters=7), record("c", parameters=None), record("d")]
    rows, notes = of_parameters(series_in(made, records))
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
    rows, notes = of_time(series_in(made, records))
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
    rows, notes = of_time(series_in(made, records))
    assert [row.hardware for row in rows] == ["A Processor, 2 threads", "NVIDIA H100"]
    assert notes == ()


def test_a_run_that_moved_has_no_time() -> None:
    there, here = ({"host": host, "device": "cpu", "threads": "2"} for host in ("there", "here"))
    moved = record("a", attempts=[there, here])
    assert hardware(moved) == SEVERAL
    assert hardware(record("b", attempts=[here, here])) == "A Processor, 2 threads"
    rows, notes = of_time(series_in(table({"A": [cell("a")]}), [moved]))
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
    assert hardware(record("a", environment=environment)) == expected


def test_the_picture_holds_the_rows() -> None:
    made = table({"A": [cell("a", "b", measured=51.5, sd=1.5)], "B": [cell("c", measured=40.0)]})
    records = [timed("a", 600.0), timed("b", 1200.0), timed("c", 300.0)]
    rows, _ = of_time(series_in(made, records))
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
    rows, _ = of_time(series_in(table({"A": [cell("a"), cell("b")]}, columns), records))
    with styled():
        figure = draw_time(rows, looks(each.name for each in rows))
        figure.draw_without_rendering()
        first, second = (axes.xaxis.label.get_window_extent() for axes in figure.axes)
    assert 0 <= first.x0 < first.x1 < second.x0 < second.x1 <= figure.bbox.width


@pytest.mark.parametrize("draw", [draw_parameters, draw_time])
def test_one_panel_a_task_and_one_entry_a_model(draw: Any) -> None:
    columns = [
        column(f"t{number}", f"Task {number}", unit) for number, unit in enumerate(("percent", "auroc"))
    ]
    made = table({"A": [cell("a"), cell("b")], "B": [cell("c"), cell("d")]}, columns)
    records = [record(each, task=f"t{'ac'.find(each) < 0:d}") for each in "abcd"]
    rows, _ = (of_parameters if draw is draw_parameters else of_time)(series_in(made, records))
    figure = drawn(rows, draw)
    assert [axes.get_title() for axes in figure.axes] == ["Task 0", "Task 1"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["test accuracy (%)", "test macro AUROC"]
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["A", "B"]
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
    assert time_unit([0.1, longest]) == unit
