"""Reported against measured: cells that have both, their bars, and the line of equal numbers."""

from typing import Any

import pytest
from figure_values import cell, column, points_of, record, series_in, table
from matplotlib.container import ErrorbarContainer

from msbench.reporting.figures.agreement import Pair, draw, pairs
from msbench.reporting.figures.look import looks
from msbench.reporting.figures.style import styled
from msbench.reporting.tables.cells import Cell


def found(*cells: Cell) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    made = table({f"M{number}": [each] for number, each in enumerate(cells)})
    return pairs(series_in(made, [record("a")]))


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
def test_what_is_no_number_is_told(text: str) -> None:
    rows, notes = found(cell("a", reported=text))
    assert rows == ()
    assert notes == (f"M0 on ListOps: not shown: '{text}' is reported, which is no number",)


def test_the_picture_holds_the_rows_and_the_line() -> None:
    rows, _ = found(
        cell("a", reported="62.15", reported_sd="0.50", measured=61.0, sd=2.0),
        cell("a", reported="70", measured=71.0),
    )
    with styled():
        figure = draw(rows, looks(each.name for each in rows))
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
def test_panels_stand_beside_each_other(count: int, across: int) -> None:
    columns = [column("listops", f"T{number}") for number in range(count)]
    made = table({"M": [cell("a", reported="50")] * count}, columns)
    rows, _ = pairs(series_in(made, [record("a")]))
    with styled():
        figure: Any = draw(rows, looks(["M"]))
    assert [axes.get_title() for axes in figure.axes] == [f"T{number}" for number in range(count)]
    assert figure.axes[0].get_gridspec().ncols == across
