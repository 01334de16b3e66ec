"""Configs of datasets: one class per dataset, found by name in `DATASETS`."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.dataset import DataConfig
from msbench.config.images import Cifar10Config, ImageNetConfig, MnistConfig
from msbench.config.numbers import DataSeed, Natural, Positive
from msbench.config.pathfinder import PathfinderConfig
from msbench.config.ptbxl import PtbXlConfig
from msbench.config.texts import AanConfig, ImdbConfig

__all__ = [
    "DATASETS",
    "AanConfig",
    "Cifar10Config",
    "DataConfig",
    "ImageNetConfig",
    "ImdbConfig",
    "ListOpsConfig",
    "MnistConfig",
    "PathfinderConfig",
    "PtbXlConfig",
]


class ListOpsConfig(DataConfig):
    """ListOps: nested MIN, MAX, MED and SM over digits. Defaults are Long Range Arena's.

    `source` is ``generated`` (seeded, made here) or ``release`` (the published TSV, imported with
    ``msbench setup listops --from PATH``; the options below then have no effect and must keep
    their defaults). Lengths are counted in tokens without round brackets; both bounds are exclusive.
    """

    dataset: Literal["listops"] = "listops"
    source: Literal["generated", "release"] = "generated"
    train: Positive = 96_000
    validation: Positive = 2_000
    test: Positive = 2_000
    min_length: Natural = 500
    max_length: Annotated[Positive, Field(ge=2)] = 2_000
    max_depth: Annotated[int, Field(ge=2, le=20)] = 10
    max_args: Annotated[int, Field(ge=2, le=20)] = 10
    seed: DataSeed = 0

    @model_validator(mode="after")
    def _bounds_leave_room(self) -> Self:
        if self.max_length - self.min_length < 2:
            low, high = f"min_length {self.min_length}", f"max_length {self.max_length}"
            raise ValueError(f"no length lies strictly between {low} and {high}")
        return self


DATASETS: dict[str, type[DataConfig]] = {
    "listops": ListOpsConfig,
    "pathfinder": PathfinderConfig,
    "cifar10": Cifar10Config,
    "mnist": MnistConfig,
    "imagenet": ImageNetConfig,
    "imdb": ImdbConfig,
    "aan": AanConfig,
    "ptbxl": PtbXlConfig,
}
