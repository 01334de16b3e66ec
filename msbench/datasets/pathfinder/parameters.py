"""Parameters of Pathfinder and Path-X images: Long Range Arena's settings of the original generator.

The settings are those that lra_benchmarks/data/pathfinder.py of google-research/long-range-arena documents
for snakes2.py of drewlinsley/pathfinder; every quotient there is Python 2's, rounded down.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Final

CONTOUR_LENGTHS: Final = {"curv_baseline": 6, "curv_contour_length_9": 9, "curv_contour_length_14": 14}
"""Paddles of a target snake, by the release's name of the difficulty: easy, intermediate, hard."""

PATH_X_DISTRACTOR_PADDLES: Final = 35 * 2
"""Divided by the length of a distractor: 17 distractors on the hard level. Closer to the released images, by
their fraction of lit pixels, than the documented value.
"""
DOCUMENTED_PATH_X_DISTRACTOR_PADDLES: Final = 35


@dataclass(frozen=True)
class Parameters:
    """Settings of the generator; lengths are pixels of the image, and a snake's length is in paddles.

    Parameters
    ----------
    window : side of the image
    padding : outermost pixels that no mask of a paddle may cover
    paddle_length, paddle_thickness : of one paddle; the thickness times `antialias` is an integer
    paddle_margins : space around a paddle; one of these is drawn for each image
    antialias : how many times larger paddles and markers are drawn before they are reduced
    seed_distance : between the tails of the two target snakes, which start twice as far from the border
    marker_radius : of the two discs
    contour_length : paddles of each of the two target snakes
    continuity : straightness of a snake: its bend times this stays below 90 degrees
    distractor_length : paddles of a distractor
    distractors : number of attempts; one that does not fit is left out
    snake_contrast : brightness of distractors, where markers have 1
    paddle_contrast : brightness of target snakes as a fraction of that of distractors, which are brighter
        where it is below 1: a quirk of the original, which does not apply this factor to distractors
    paddle_retries, distractor_retries : further attempts after the first
    """

    window: int
    paddle_length: int
    paddle_thickness: float
    paddle_margins: tuple[int, ...]
    seed_distance: int
    marker_radius: float
    contour_length: int
    continuity: float
    distractor_length: int
    distractors: int
    snake_contrast: float
    paddle_contrast: float = 1.0
    padding: int = 1
    antialias: int = 2
    paddle_retries: int = 2
    distractor_retries: int = 4

    @property
    def most_paddles(self) -> int:
        """Number of paddles of an image in which every distractor fits."""
        return 2 * self.contour_length + self.distractors * self.distractor_length

    @property
    def line_width(self) -> int:
        """Width of a paddle as drawn, before it is reduced."""
        return round(self.paddle_thickness * self.antialias)


SIZES: Final = {
    32: partial(
        Parameters, 32, 2, 0.5, (1,), 7, 1.5, continuity=1.0, snake_contrast=2.0, paddle_contrast=0.75
    ),
    64: partial(Parameters, 64, 5, 1.0, (1,), 12, 2.5, continuity=1.8, snake_contrast=0.8),
    128: partial(Parameters, 128, 5, 1.5, (2, 3), 20, 3.0, continuity=1.8, snake_contrast=0.9),
    256: partial(Parameters, 256, 5, 2.0, (3,), 27, 5.0, continuity=1.8, snake_contrast=1.0, padding=22),
}
"""Settings of each size for all difficulties."""
DISTRACTOR_PADDLES: Final = {32: 20, 64: 22, 128: PATH_X_DISTRACTOR_PADDLES, 256: 30}
"""Paddles by size, divided among distractors."""


def find_preset(window: int, difficulty: str, *, documented_distractors: bool = False) -> Parameters:
    """Return the settings of a size and a difficulty; `documented_distractors` only affects 128 pixels."""
    documented = documented_distractors and window == 128
    paddles = DOCUMENTED_PATH_X_DISTRACTOR_PADDLES if documented else DISTRACTOR_PADDLES[window]
    contour_length = CONTOUR_LENGTHS[difficulty]
    distractor_length = contour_length // 3
    return SIZES[window](
        contour_length=contour_length,
        distractor_length=distractor_length,
        distractors=paddles // distractor_length,
    )


COLUMNS: Final[dict[str, type]] = {
    **dict.fromkeys(("subpath", "filename"), str),
    **dict.fromkeys(("n", "label"), int),
    "continuity": float,
    **dict.fromkeys(("contour_length", "distractor_length", "paddle_length"), int),
    "paddle_thickness": float,
    **dict.fromkeys(("paddle_margin", "n_contrasts"), int),
}
"""Fields of an image's line in the release, in order."""


def parse_row(line: str) -> tuple[str, int]:
    """Return an image's path and its label: 1 where both markers are on one snake.

    Raises ValueError saying what is wrong with the line.
    """
    values = line.split()
    if len(values) != len(COLUMNS):
        raise ValueError(f"{len(values)} fields instead of {len(COLUMNS)}")
    read: dict[str, Any] = {}
    for (name, kind), value in zip(COLUMNS.items(), values, strict=True):
        try:
            read[name] = kind(value)
        except ValueError:
            raise ValueError(f"{name} {value!r} is no number") from None
    if read["label"] not in (0, 1):
        raise ValueError(f"the label {read['label']} is neither 0 nor 1")
    path = PurePosixPath(read["subpath"], read["filename"])
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{path} leads out of the folder")
    return str(path), read["label"]
