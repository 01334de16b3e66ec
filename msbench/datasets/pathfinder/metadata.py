"""The line of metadata of every Pathfinder image, in the order of the release's columns."""

from dataclasses import astuple, dataclass
from pathlib import PurePosixPath
from typing import Any, Final, get_type_hints

from msbench.datasets.pathfinder.parameters import Parameters

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


def row(parameters: Parameters, batch: int, index: int, label: int, margin: int) -> ImageMetadata:
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


def parse(line: str) -> ImageMetadata:
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
