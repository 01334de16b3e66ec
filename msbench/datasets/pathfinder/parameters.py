"""Parameters of Pathfinder and Path-X images: Long Range Arena's settings of the original generator.

The settings are those that lra_benchmarks/data/pathfinder.py of google-research/long-range-arena documents
for snakes2.py of drewlinsley/pathfinder; every quotient there is Python 2's, rounded down.
"""

from dataclasses import astuple, dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Final, get_type_hints

from msbench.errors import ConfigError

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

    def __post_init__(self) -> None:
        """Raise ConfigError for invalid settings."""
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("distractors", "paddle_retries", "distractor_retries") else None
            smallest = min(value) if isinstance(value, tuple) and value else value
            if value == () or (smallest < least if least is not None else smallest <= 0):
                raise ConfigError(f"pathfinder: {field.name} {value} is too small")
        if self.contour_length < 2:
            raise ConfigError("pathfinder: contour_length must be 2 or more: a snake has two ends")
        if (self.paddle_thickness * self.antialias) % 1:
            raise ConfigError(
                f"pathfinder: paddle_thickness {self.paddle_thickness} times antialias {self.antialias} must "
                "be an integer"
            )

    @property
    def most_paddles(self) -> int:
        """Number of paddles of an image in which every distractor fits."""
        return 2 * self.contour_length + self.distractors * self.distractor_length

    @property
    def line_width(self) -> int:
        """Width of a paddle as drawn, before it is reduced."""
        return round(self.paddle_thickness * self.antialias)


@dataclass(frozen=True)
class _Size:
    """Settings of a size for all difficulties; `distractor_paddles` is divided among distractors."""

    paddle_length: int
    paddle_thickness: float
    paddle_margins: tuple[int, ...]
    seed_distance: int
    marker_radius: float
    continuity: float
    distractor_paddles: int
    snake_contrast: float
    paddle_contrast: float = 1.0
    padding: int = 1


SIZES: Final = {
    32: _Size(2, 0.5, (1,), 7, 1.5, 1.0, 20, snake_contrast=2.0, paddle_contrast=0.75),
    64: _Size(5, 1.0, (1,), 12, 2.5, 1.8, 22, snake_contrast=0.8),
    128: _Size(5, 1.5, (2, 3), 20, 3.0, 1.8, PATH_X_DISTRACTOR_PADDLES, snake_contrast=0.9),
    256: _Size(5, 2.0, (3,), 27, 5.0, 1.8, 30, snake_contrast=1.0, padding=22),
}


def find_preset(window: int, difficulty: str, *, documented_distractors: bool = False) -> Parameters:
    """Return the settings of a size and a difficulty; `documented_distractors` only affects 128 pixels.

    Raises ConfigError where there is no such size or difficulty.
    """
    if window not in SIZES:
        raise ConfigError(f"pathfinder: no images of {window} pixels; known: {', '.join(map(str, SIZES))}")
    if difficulty not in CONTOUR_LENGTHS:
        raise ConfigError(
            f"pathfinder: unknown difficulty {difficulty!r}; known: {', '.join(CONTOUR_LENGTHS)}"
        )
    settings = {field.name: getattr(SIZES[window], field.name) for field in fields(_Size)}
    paddles = settings.pop("distractor_paddles")
    if documented_distractors and window == 128:
        paddles = DOCUMENTED_PATH_X_DISTRACTOR_PADDLES
    contour_length = CONTOUR_LENGTHS[difficulty]
    distractor_length = contour_length // 3
    return Parameters(
        window=window,
        contour_length=contour_length,
        distractor_length=distractor_length,
        distractors=paddles // distractor_length,
        **settings,
    )


CONTRASTS: Final = 1
"""Number of contrasts a paddle may have; in Long Range Arena always this one."""


@dataclass(frozen=True)
class ImageMetadata:
    """Metadata of one image; `label` is 1 where both markers are on one snake."""

    subpath: str
    filename: str
    n: int
    label: int
    continuity: float
    contour_length: int
    distractor_length: int
    paddle_length: int
    paddle_thickness: float
    paddle_margin: int
    n_contrasts: int

    def __str__(self) -> str:
        """Return the line of the release, without its line end."""
        return " ".join(map(str, astuple(self)))


COLUMNS: Final = get_type_hints(ImageMetadata)


def build_row(parameters: Parameters, batch: int, index: int, label: int, margin: int) -> ImageMetadata:
    """Return the row of image `index` of a batch."""
    return ImageMetadata(
        subpath=f"imgs/{batch}",
        filename=f"sample_{index}.png",
        n=index,
        label=label,
        continuity=parameters.continuity,
        contour_length=parameters.contour_length,
        distractor_length=parameters.distractor_length,
        paddle_length=parameters.paddle_length,
        paddle_thickness=parameters.paddle_thickness,
        paddle_margin=margin,
        n_contrasts=CONTRASTS,
    )


def parse_row(line: str) -> ImageMetadata:
    """Parse the row of a line. Raises ValueError saying what is wrong with it."""
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
    return ImageMetadata(**read)
