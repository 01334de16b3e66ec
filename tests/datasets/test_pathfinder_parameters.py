from dataclasses import replace

import pytest

from msbench.datasets.pathfinder.parameters import CONTOUR_LENGTHS, SIZES, find_preset
from msbench.errors import ConfigError


def test_the_hard_level_is_as_documented() -> None:
    hard = {size: find_preset(size, "curv_contour_length_14") for size in SIZES}
    assert {size: (p.contour_length, p.distractor_length) for size, p in hard.items()} == dict.fromkeys(
        SIZES, (14, 4)
    )
    assert {size: p.distractors for size, p in hard.items()} == {32: 5, 64: 5, 128: 17, 256: 7}
    assert {size: p.line_width for size, p in hard.items()} == {32: 1, 64: 2, 128: 3, 256: 4}


def test_path_x_may_have_as_few_distractors_as_documented() -> None:
    counts = [
        find_preset(128, difficulty, documented_distractors=True).distractors
        for difficulty in CONTOUR_LENGTHS
    ]
    assert counts == [17, 11, 8]
    assert find_preset(32, "curv_baseline", documented_distractors=True) == find_preset(32, "curv_baseline")


@pytest.mark.parametrize(
    ("difficulty", "expected"), [("curv_baseline", (6, 2, 10)), ("curv_contour_length_9", (9, 3, 6))]
)
def test_easier_levels_have_shorter_snakes(difficulty: str, expected: tuple[int, int, int]) -> None:
    easier = find_preset(32, difficulty)
    assert (easier.contour_length, easier.distractor_length, easier.distractors) == expected


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="no images of 48 pixels; known: 32, 64, 128, 256"):
        find_preset(48, "curv_baseline")
    with pytest.raises(ConfigError, match="unknown difficulty 'hard'; known: curv_baseline"):
        find_preset(32, "hard")


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("paddle_margins", (), "paddle_margins"),
        ("paddle_margins", (2, 0), "paddle_margins"),
        ("padding", 0, "padding 0 is too small"),
        ("distractors", -1, "distractors -1 is too small"),
        ("contour_length", 1, "contour_length must be 2 or more"),
        ("paddle_thickness", 0.7, "must be an integer"),
    ],
)
def test_impossible_settings_are_refused(setting: str, value: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(find_preset(32, "curv_baseline"), **{setting: value})  # type: ignore[arg-type]
