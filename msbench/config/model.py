"""What all models share: the config of encoder, norm and pooling, and what stands behind a model's name.

Each family has a module beside this one with its config class. Every reading that a paper leaves open is a
field there; `docs/paper.md` gives the reasons for the defaults of MS-SSM.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from msbench.config.layers import Config
from msbench.config.numbers import Amount, Chance, Positive


class ClassifierConfig(Config):
    """What surrounds the blocks of every model: encoder, depth, norm, dropout, pooling."""

    d_model: Positive = 128
    layers: Positive = 4
    norm: Literal["layer", "rms", "batch"] = "layer"
    prenorm: bool = True
    dropout: Chance = 0.0
    pooling: Literal["mean", "last", "mean-with-padding"] = "mean"
    positions: Literal["none", "learned"] = "none"
    encoder: Literal["embedding", "scalar"] = "embedding"
    """``scalar`` feeds a token id as one real number, as the code behind the published Mamba rows does."""
    padding: Literal["masked", "paper"] = "masked"
    """``paper`` lets padded positions flow through blocks and batch statistics (never through pooling)."""


class SteppedConfig(ClassifierConfig):
    """Systems in continuous time, whose learned step sizes start log-uniform between two bounds."""

    dt_min: Amount = 1e-3
    dt_max: Annotated[float, Field(gt=0, le=1e3)] = 0.1
    """A state of rate 1 is gone after one step of 20; far larger ones overflow what they multiply."""

    @model_validator(mode="after")
    def _step_sizes_are_an_interval(self) -> Self:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min {self.dt_min} is above dt_max {self.dt_max}")
        return self


@dataclass(frozen=True)
class ModelEntry:
    """A model's name stands for a config class and the fields that make it this model and no other.

    `rows` are the rows of the paper's tables that it stands for, as they are printed there.
    """

    config: type[ClassifierConfig]
    summary: str
    family: str
    preset: dict[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module that builds it: with all that it imports, its part of a run's source digest."""
        return f"msbench.models.{self.family.replace('-', '_')}"
