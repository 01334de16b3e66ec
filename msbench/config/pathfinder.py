"""The Pathfinder images."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.dataset import DataConfig
from msbench.config.numbers import DataSeed

OF_GENERATED = ("images", "seed", "documented_distractors")


class PathfinderConfig(DataConfig):
    """Pathfinder, pixel by pixel: 32 pixels wide it is Long Range Arena's Pathfinder, 128 its Path-X.

    `source` is ``generated`` (drawn here from `seed`, as many as `images`) or ``release`` (read from the
    published archive or a folder in its layout; `images`, `seed` and `documented_distractors` then have no
    effect and must keep their defaults). Images are split as public loaders split the release's.
    """

    dataset: Literal["pathfinder"] = "pathfinder"
    source: Literal["generated", "release"] = "generated"
    size: Literal[32, 64, 128, 256] = 32
    difficulty: Literal["curv_baseline", "curv_contour_length_9", "curv_contour_length_14"] = (
        "curv_contour_length_14"
    )
    """Named as in the release; published results are on the hard one, of 14 paddles."""
    images: Annotated[int, Field(ge=10, le=10_000_000)] = 200_000
    seed: DataSeed = 0
    documented_distractors: bool = False
    """Path-X only: the 8 distractors of the documentation; the released images show about 17."""
    centred: bool = True
    """Brightness from -1 to 1, as in S5 and Mega; else from 0 to 1, as in S4's own settings."""

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        if self.documented_distractors and self.size != 128:
            raise ValueError("documented_distractors needs size: 128; others are as documented")
        if self.source == "release" and (changed := self.changed(OF_GENERATED)):
            raise ValueError(f"source: release takes the images as published; remove {', '.join(changed)}")
        return self
