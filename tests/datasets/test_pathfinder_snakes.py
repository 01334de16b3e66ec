"""The plain engine against a slow second implementation, and what must hold of all snakes."""

from dataclasses import replace

import numpy as np
import pytest
from pathfinder_witness import Witness

from msbench.datasets.pathfinder import snakes as pathfinder_snakes
from msbench.datasets.pathfinder.generate import choose_engine, draw_images, find_markers, render_images
from msbench.datasets.pathfinder.parameters import Parameters, find_preset
from msbench.datasets.pathfinder.snakes import RandomStream, hash_first_state
from msbench.datasets.pathfinder.tables import DEGREES, OVERLAP, add_marker, tables
from msbench.errors import DataError

HARD = "curv_contour_length_14"
SMALL = find_preset(32, HARD)
PATH_X = find_preset(128, HARD)


@pytest.mark.parametrize(
    ("parameters", "images"),
    [
        (replace(SMALL, contour_length=5), 6),
        (replace(SMALL, contour_length=3, distractors=12, snake_contrast=0.3, padding=2), 3),
        (replace(find_preset(64, HARD), contour_length=4), 2),
        (replace(PATH_X, contour_length=3, distractors=4), 2),
    ],
)
def test_images_are_those_of_a_slow_witness(parameters: Parameters, images: int) -> None:
    drawings = draw_images(parameters, 11, range(images), "python")
    for number, image in enumerate(render_images(parameters, drawings)):
        witness = Witness(parameters, RandomStream(hash_first_state(11, 0, number)))
        assert (witness.draw() == image).all()
        assert witness.label == drawings.labels[number]
        assert witness.distractors == drawings.distractors[number]
        assert witness.margin == parameters.paddle_margins[drawings.margins[number]]


@pytest.mark.parametrize("parameters", [SMALL, PATH_X])
def test_markers_are_on_one_snake_just_where_the_label_says_so(parameters: Parameters) -> None:
    drawings = draw_images(parameters, 2, range(6), choose_engine())
    images = render_images(parameters, drawings)
    assert {0, 1} == set(drawings.labels.tolist())
    for number, image in enumerate(images):
        places = drawings.paddles[number, : 2 * parameters.contour_length, 1:].tolist()
        snakes = places[::2], places[1::2]
        start, end = (list(tip) for tip in find_markers(parameters, drawings, number))
        tails, ends = [snake[0] for snake in snakes], [snake[-1] for snake in snakes]
        assert start in tails
        assert end in ends
        assert (tails.index(start) == ends.index(end)) == bool(drawings.labels[number])
        layer = np.zeros_like(image)
        for tip in (start, end):
            add_marker(layer, (tip[0], tip[1]), parameters)
        # A marker has brightness 1, which an image that has brighter paddles shows as less than 255.
        brightest = max(1.0, parameters.snake_contrast)
        assert (image[layer == 255] >= int(255 / brightest)).all()


def test_snakes_go_on_and_keep_clear_of_each_other() -> None:
    drawings = draw_images(PATH_X, 3, range(4), choose_engine())
    for number, margin in enumerate(drawings.margins.tolist()):
        made = tables(PATH_X)[margin]
        reach = PATH_X.paddle_length + made.margin
        paddles = drawings.paddles[number, : 2 * PATH_X.contour_length]
        assert (paddles[2:, 0] >= DEGREES).all()
        assert (paddles[:2, 0] < DEGREES).all()
        steps = np.hypot(*(paddles[4:, 1:] - paddles[2:-2, 1:]).T)
        assert ((steps > reach) & (steps < 2 * reach + 2)).all()
        canvases = np.zeros((len(paddles), *made.canvas.shape), np.int32)
        half = made.masks.shape[1] // 2
        for canvas, (orientation, y, x) in zip(canvases, paddles.tolist(), strict=True):
            top, left = made.border + y - half, made.border + x - half
            canvas[top : top + 2 * half + 1, left : left + 2 * half + 1] = made.masks[orientation]
        # Masks of a paddle's two predecessors, one on each snake, are not there yet when it is placed.
        for later in range(3, len(paddles)):
            merged = canvases[: later - 2].max(axis=0)
            assert (merged + canvases[later]).max() < OVERLAP


def test_snakes_without_room_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_snakes, "MOST_ATTEMPTS", 3)
    with pytest.raises(DataError, match="two snakes of 40 paddles found no room in 3 attempts on 32 x 32"):
        draw_images(replace(SMALL, contour_length=40), 0, range(1), "python")


def test_numbers_below_a_bound_are_uniform_and_those_of_splitmix() -> None:
    stream = RandomStream(1234567)
    assert [stream.below(2**64) for _ in range(2)] == [6457827717110365317, 3203168211198807973]
    counts = np.bincount([stream.below(7) for _ in range(7_000)], minlength=7)
    assert abs(counts - 1_000).max() < 5 * np.sqrt(1_000)
