"""Griffin and Hawk: gated linear recurrences, with and without local attention."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.model import ClassifierConfig
from msbench.config.numbers import Factor, Positive

HEAD_WIDTH = 32
"""Width of a head if their number is not set; the source has 128 and 256, on widths from 1024 on."""


class GriffinConfig(ClassifierConfig):
    """Griffin's residual blocks (De et al. 2024): a temporal block, then a gated MLP, each with its norm."""

    norm: Literal["layer", "rms", "batch"] = "rms"
    pattern: Annotated[tuple[Literal["recurrent", "attention"], ...], Field(min_length=1)] = (
        "recurrent",
        "recurrent",
        "attention",
    )
    """The temporal blocks, repeated over the layers; with fewer layers than blocks, the last ones.

    So Griffin has its attention with two layers too, where the source's would be Hawk.
    """
    heads: Positive | None = None
    """Blocks on the diagonal of the gates, and heads of the attention; None means one per 32 of d_model."""
    expand: Factor = 1
    """Width of the recurrence in multiples of d_model; the paper's models have about 4/3."""
    kernel: Positive = 4
    window: Positive = 1024
    """Positions before its own that a query sees, as in the source's code."""
    mlp_expand: Factor = 3
    bidirectional: bool = False
    """Two temporal blocks per layer with their own parameters, one over the reversed sequence; averaged."""

    @property
    def head_count(self) -> int:
        """`heads`, or their default number if it is not set."""
        return self.heads or max(1, self.d_model // HEAD_WIDTH)

    @property
    def lru_width(self) -> int:
        """Width of the recurrence."""
        return round(self.expand * self.d_model)

    @model_validator(mode="after")
    def _widths_are_whole(self) -> Self:
        for field, name in ((self.expand, "expand"), (self.mlp_expand, "mlp_expand")):
            if round(field * self.d_model) < 1:
                raise ValueError(f"{name} {field} leaves nothing of d_model {self.d_model}; raise either")
        return self

    @model_validator(mode="after")
    def _heads_divide_widths(self) -> Self:
        heads = self.head_count
        if "recurrent" in self.pattern and self.lru_width % heads:
            raise ValueError(
                f"heads {heads} do not divide the recurrence's width {self.lru_width} (expand {self.expand}"
                f" times d_model {self.d_model}); set heads to a divisor of it"
            )
        if "attention" in self.pattern and self.d_model % (4 * heads):
            raise ValueError(
                f"d_model {self.d_model} is no multiple of 4 times heads {heads}, and half of each head is"
                " rotated in pairs; set heads to a divisor of a quarter of d_model"
            )
        return self
