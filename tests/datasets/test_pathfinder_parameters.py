from typing import Any

import pytest

from msbench.config.data import PathfinderConfig
from msbench.datasets.pathfinder.parameters import CONTOUR_LENGTHS, SIZES, find_preset


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


@pytest.mark.parametrize("setting", [{"size": 48}, {"difficulty": "hard"}])
def test_what_there_is_not_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Input should be"):
        PathfinderConfig(**setting)
