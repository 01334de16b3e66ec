"""The base classes of all configs, and the bounded numbers of their fields.

Without bounds, a value that no record can hold would only be found after its training.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

LARGEST_COUNT = 2**31
"""Limit of sizes and counts: products of two are below 2^63, the first number that no record can hold."""

PositiveInt = Annotated[int, Field(ge=1, lt=LARGEST_COUNT)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=LARGEST_COUNT)]
DataSeed = Annotated[int, Field(ge=0, lt=2**63)]
"""Seed of msbench's own data generators, which take any seed that a record can hold."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""Seed below 2^32, as numpy's and torch's older generators require."""

PositiveFloat = Annotated[float, Field(gt=0, le=1e100)]
"""A number that can be squared and summed without overflow."""
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e100)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
"""A width in multiples of another, which stays a size that a record can hold."""
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
"""A fraction strictly between 0 and 1."""
Probability = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Config(BaseModel):
    """Base of every config: frozen, strict, and without unknown keys.

    Strict: ``"3"``, ``3.0`` and ``true`` are not integers. A whole number is valid for a float, a list for a
    tuple. Defaults are validated too: a float whose default is ``2`` holds 2.0, as if it came from a file.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _one_spelling(cls, value: Any) -> Any:
        return freeze(value)

    def changed(self, names: Iterable[str]) -> list[str]:
        """Return those of these fields that do not have their defaults."""
        fields = type(self).model_fields
        return [name for name in names if getattr(self, name) != fields[name].default]


def freeze(value: Any) -> Any:
    """Return lists as tuples, at any depth, and -0.0 as 0.0: equal values then have one canonical form."""
    if isinstance(value, list | tuple):
        return tuple(freeze(item) for item in value)
    return value + 0.0 if isinstance(value, float) else value


class DataConfig(Config):
    """Base of the datasets' configs."""

    several_labels: ClassVar[bool] = False
    """True if an example may have any number of labels."""
    ragged: ClassVar[bool] = False
    """True if sequences differ in length."""
    dataset: str


class ClassifierConfig(Config):
    """Settings around the blocks of every model: encoder, depth, norm, dropout, pooling."""

    d_model: PositiveInt = 128
    layers: PositiveInt = 4
    norm: Literal["layer", "rms", "batch"] = "layer"
    prenorm: bool = True
    final_norm: bool | None = None
    """A norm between the last block and the pooling; None means as `prenorm`. S5 and the LRU have none."""
    batch_norm_momentum: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of a new batch in running statistics, 1 minus flax's momentum (S5: 0.05 or 0.1; LRU: 0.01)."""
    dropout: Probability = 0.0
    drop_path: Probability = 0.0
    """Chance of dropping the last layer's residual of an example; that of others rises linearly from 0."""
    pooling: Literal["mean", "last", "mean-with-padding"] = "mean"
    positions: Literal["none", "learned"] = "none"
    encoder: Literal["embedding", "scalar"] = "embedding"
    """``scalar`` feeds a token id as one real number, as in the code of the published Mamba rows."""
    embedding_std: PositiveFloat | None = 0.02
    """Of the first token vectors: 0.02 in Mamba, 1 in S4, DSS and MultiResNet.

    None means a dense map of one-hot vectors as in S5: truncated normal, of variance 1 / vocabulary.
    """
    padding: Literal["masked", "paper"] = "masked"
    """``paper`` lets padded positions flow through blocks and batch statistics (never through pooling)."""

    @property
    def has_step_sizes(self) -> bool:
        """True if the model learns step sizes of systems in continuous time."""
        return False

    @model_validator(mode="after")
    def _expanded_widths_are_positive(self) -> Self:
        for name in ("expand", "mlp_expand"):
            factor = getattr(self, name, 1)
            if round(factor * self.d_model) < 1:
                raise ValueError(
                    f"{name} {factor} times d_model {self.d_model} is a width of 0; raise either"
                )
        return self

    @model_validator(mode="after")
    def _options_have_their_part(self) -> Self:
        if self.norm != "batch" and self.changed(["batch_norm_momentum"]):
            raise ValueError(f"batch_norm_momentum needs norm: batch; norm: {self.norm} has no statistics")
        if self.encoder == "scalar" and self.changed(["embedding_std"]):
            raise ValueError("embedding_std needs encoder: embedding; encoder: scalar has no token vectors")
        return self


class SteppedConfig(ClassifierConfig):
    """Base of systems in continuous time, whose learned step sizes start log-uniform between two bounds."""

    dt_min: PositiveFloat = 1e-3
    dt_max: Annotated[float, Field(gt=0, le=1e3)] = 0.1
    """A state of rate 1 has vanished after one step of 20; products with far larger steps overflow."""

    @property
    def has_step_sizes(self) -> bool:
        """True: see `ClassifierConfig`."""
        return True

    @model_validator(mode="after")
    def _step_sizes_are_an_interval(self) -> Self:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min {self.dt_min} is above dt_max {self.dt_max}")
        return self
