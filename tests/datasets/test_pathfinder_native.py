"""The C++ engine against the plain one, bit by bit, and what happens without it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msbench.datasets.pathfinder import generate as pathfinder_native
from msbench.datasets.pathfinder import snakes as pathfinder_snakes
from msbench.datasets.pathfinder.generate import choose_engine, draw_images
from msbench.datasets.pathfinder.parameters import Parameters, find_preset
from msbench.errors import DataError

HARD = "curv_contour_length_14"


@pytest.fixture
def compiled() -> None:
    if pathfinder_native.find_native_function() is None:
        pytest.skip("the C++ library was not built")


@pytest.fixture
def forget() -> Iterator[None]:
    """Look for the library anew in the test and after it."""
    pathfinder_native.find_native_function.cache_clear()
    yield
    pathfinder_native.find_native_function.cache_clear()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("parameters", "images"),
    [
        (find_preset(32, HARD), 6),
        (find_preset(32, "curv_baseline"), 20),
        (find_preset(64, "curv_contour_length_9"), 2),
        (find_preset(128, "curv_contour_length_9"), 3),
        (find_preset(256, HARD), 4),
        (replace(find_preset(32, HARD), contour_length=3, distractors=30, distractor_retries=30), 4),
        (replace(find_preset(32, "curv_baseline"), distractors=0, padding=3, paddle_retries=0), 4),
    ],
)
def test_both_engines_draw_the_same(parameters: Parameters, images: int) -> None:
    cpp, python = (
        draw_images(parameters, 5, range(990, 990 + images), engine) for engine in ("cpp", "python")
    )
    for name, ours, theirs in zip(cpp._fields, cpp, python, strict=True):
        assert np.array_equal(ours, theirs), name


@pytest.mark.usefixtures("compiled")
def test_snakes_without_room_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_snakes, "MOST_ATTEMPTS", 3)
    with pytest.raises(DataError, match="two snakes of 41 paddles found no room"):
        draw_images(replace(find_preset(32, HARD), contour_length=41), 0, range(1), "cpp")


@pytest.mark.usefixtures("forget")
def test_without_a_library_images_are_drawn_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pathfinder_native, "LIBRARY", tmp_path)
    assert choose_engine() == "python"


@pytest.mark.usefixtures("compiled", "forget")
def test_a_library_of_older_sources_is_not_passed_over_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder_native, "FUNCTION", "msbench_of_tomorrow")
    with pytest.warns(RuntimeWarning, match="without C.., slowly: .*msbench_of_tomorrow"):
        assert choose_engine() == "python"


def test_the_plain_engine_can_draw_nothing() -> None:
    assert len(pathfinder_snakes.draw_snakes(find_preset(32, HARD), np.zeros(0, np.uint64)).labels) == 0
