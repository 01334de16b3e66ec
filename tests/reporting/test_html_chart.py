import math

import pytest

from msbench.reporting.render.html.runs import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    draw_chart,
)


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_a_line_spans_the_box_from_low_to_high() -> None:
    drawn = draw_chart("Loss", {"train": [(1, 2.0), (2, 1.5), (3, 1.0)]})
    assert drawn is not None
    ((name, path),) = drawn.lines
    assert name == "train"
    middle = ((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2)
    assert points(path) == [(LEFT, TOP), middle, (WIDTH - RIGHT, HEIGHT - BOTTOM)]
    assert [text for _, text in drawn.x_ticks] == ["1", "3"]
    assert drawn.y_ticks == ((HEIGHT - BOTTOM, "1"), (TOP, "2"))
    assert drawn.description == "Loss, epoch 1 to 3: train from 2 to 1"


def test_two_lines_share_their_axes() -> None:
    lines = {"train": [(0, 0.0), (9, 10.0)], "validation": [(0, 5.0)]}
    drawn = draw_chart("Accuracy", lines)
    assert drawn is not None
    assert points(drawn.lines[1][1]) == [(LEFT, (TOP + HEIGHT - BOTTOM) / 2)]
    assert drawn.dots[1][1:] == (LEFT, (TOP + HEIGHT - BOTTOM) / 2)


@pytest.mark.parametrize("value", [0.0, -2.0, 1e-30, 1e30])
def test_one_epoch_is_a_dot_within_the_box(value: float) -> None:
    drawn = draw_chart("Loss", {"train": [(0, value)]})
    assert drawn is not None
    ((_, x, y),) = drawn.dots
    assert LEFT < x < WIDTH - RIGHT
    assert TOP < y < HEIGHT - BOTTOM
    assert len(drawn.x_ticks) == 1


def test_what_is_not_finite_is_no_point() -> None:
    drawn = draw_chart("Loss", {"train": [(0, math.nan), (1, 3.0), (2, math.inf), (math.nan, 1.0)]})
    assert drawn is not None
    assert len(points(drawn.lines[0][1])) == 1
    assert draw_chart("Loss", {"train": [(0, math.nan)]}) is None
    assert draw_chart("Loss", {}) is None


def test_long_logs_are_thinned_and_keep_both_ends() -> None:
    drawn = draw_chart("Loss", {"train": [(epoch, 1 / (epoch + 1)) for epoch in range(10_001)]})
    assert drawn is not None
    path = points(drawn.lines[0][1])
    assert len(path) <= MOST_POINTS + 1
    assert path[0] == (LEFT, TOP)
    assert path[-1] == (WIDTH - RIGHT, HEIGHT - BOTTOM)
