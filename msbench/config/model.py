"""Settings that all models share: encoder, norm and pooling; and the entry of a model's name.

Each family has a module next to this one with its config class. Every choice that a paper leaves open is a
field there; `docs/paper.md` gives the reasons for the defaults of MS-SSM.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from msbench.config.layers import Config
from msbench.config.numbers import Amount, Chance, Positive


class ClassifierConfig(Config):
    """Settings around the blocks of every model: encoder, depth, norm, dropout, pooling."""

    d_model: Positive = 128
    layers: Positive = 4
    norm: Literal["layer", "rms", "batch"] = "layer"
    prenorm: bool = True
    dropout: Chance = 0.0
    pooling: Literal["mean", "last", "mean-with-padding"] = "mean"
    positions: Literal["none", "learned"] = "none"
    encoder: Literal["embedding", "scalar"] = "embedding"
    """``scalar`` feeds a token id as one real number, as in the code of the published Mamba rows."""
    padding: Literal["masked", "paper"] = "masked"
    """``paper`` lets padded positions flow through blocks and batch statistics (never through pooling)."""


class SteppedConfig(ClassifierConfig):
    """Systems in continuous time, whose learned step sizes start log-uniform between two bounds."""

    dt_min: Amount = 1e-3
    dt_max: Annotated[float, Field(gt=0, le=1e3)] = 0.1
    """A state of rate 1 has vanished after one step of 20; products with far larger steps overflow."""

    @model_validator(mode="after")
    def _step_sizes_are_an_interval(self) -> Self:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min {self.dt_min} is above dt_max {self.dt_max}")
        return self


@dataclass(frozen=True)
class ModelEntry:
    """Entry of a model's name: a config class, and the fields that make it this model and no other.

    `rows` are the rows of the paper's tables that it stands for, as printed there.
    """

    config: type[ClassifierConfig]
    summary: str
    family: str
    preset: dict[str, Any] = field(default_factory=dict)
    rows: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module that builds it; with all its imports, it is part of a run's source digest."""
        return f"msbench.models.{self.family.replace('-', '_')}"
