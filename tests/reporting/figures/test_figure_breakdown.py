"""Accuracy by a property: the points of each model, their bars, and the axis."""

import pytest
from figure_values import cell, column, points_of, series_in, table

from msbench.reporting.figures.breakdown import BinPoint, collect_points, draw_points
from msbench.reporting.figures.style import apply_style, assign_styles
from msbench.reporting.tables.cells import Bin, Cell

BINS = (Bin(2, 4, 3.0, 10), Bin(5, 9, 7.0, 12))
CHANGE = column("listops", "last - first", "points", source="bin")
COLUMNS = (*(column("listops", each.label, source="bin", bin=each) for each in BINS), CHANGE)
TABLE = table(
    {
        "Majority": [
            Cell(measured=60.0, status="trivial-rule"),
            Cell(measured=55.0, status="trivial-rule"),
            Cell(),
        ],
        "Mamba": [
            cell("a", "b", measured=80.0, interval=(75.0, 90.0)),
            cell("a", "b", measured=70.0, interval=(65.0, 72.0)),
            cell("a", "b", measured=-10.0),
        ],
    },
    COLUMNS,
    by="length",
)


def collect(by: str = "length") -> tuple[BinPoint, ...]:
    return collect_points(by, series_in(TABLE, []))


def test_a_row_for_each_bin_of_a_model_then_of_the_rule() -> None:
    shown = [
        (row.name, row.kind, row.mean, row.examples, row.value, row.interval_low, row.interval_high, row.n)
        for row in collect()
    ]
    assert shown == [
        ("Mamba", "model", 3.0, 10, 80.0, 75.0, 90.0, 2),
        ("Mamba", "model", 7.0, 12, 70.0, 65.0, 72.0, 2),
        ("Majority", "rule", 3.0, 10, 60.0, None, None, 0),
        ("Majority", "rule", 7.0, 12, 55.0, None, None, 0),
    ]


def test_the_picture_holds_the_rows() -> None:
    rows = collect()
    with apply_style():
        figure = draw_points(rows, assign_styles(["Mamba"]))
    [axes] = figure.axes
    [bars] = axes.containers
    assert points_of(bars[0]) == [(3.0, 80.0), (7.0, 70.0)]
    ends = [end for segment in bars[2][0].get_segments() for end in segment[:, 1]]
    assert ends == pytest.approx([75.0, 90.0, 65.0, 72.0])
    assert [(3.0, 60.0), (7.0, 55.0)] in [points_of(line) for line in axes.get_lines()]
    assert axes.get_xscale() == "linear"
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["Mamba", "Majority"]


def test_a_distance_and_a_wide_range_are_on_a_logarithmic_axis() -> None:
    with apply_style():
        [axes] = draw_points(collect("distance"), assign_styles(["Mamba"])).axes
        [wide] = draw_points(
            [BinPoint(**{**vars(row), "low": 1}) for row in collect()], assign_styles(["Mamba"])
        ).axes
    assert axes.get_xscale() == "log"
    assert wide.get_xscale() == "log"
