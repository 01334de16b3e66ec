"""The Transformer's encoder, the baseline of most tables."""

from typing import Literal, Self

from pydantic import model_validator

from msbench.config.model import ClassifierConfig
from msbench.config.numbers import Factor, Positive


class TransformerConfig(ClassifierConfig):
    """Multi-head self-attention and a feed-forward network, each with its norm (Vaswani et al. 2017)."""

    positions: Literal["none", "learned"] = "learned"
    """Attention alone ignores order: without positions a sequence is a bag, unless `causal`."""
    heads: Positive = 4
    """Long Range Arena's Transformers have 4 or 8."""
    mlp_expand: Factor = 4
    """Width inside the feed-forward network in multiples of d_model."""
    causal: bool = False
    """Each position sees only itself and earlier ones."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.d_model % self.heads:
            raise ValueError(
                f"heads {self.heads} do not divide d_model {self.d_model}; set heads to a divisor of it"
            )
        return self

    @model_validator(mode="after")
    def _the_network_has_a_width(self) -> Self:
        if round(self.mlp_expand * self.d_model) < 1:
            raise ValueError(
                f"mlp_expand {self.mlp_expand} leaves nothing of d_model {self.d_model}; raise either"
            )
        return self
