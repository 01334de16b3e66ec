"""Configs of the Transformers whose attention is another function of queries, keys and values."""

from typing import Literal, Self

from pydantic import model_validator

from msbench.config.base import ClassifierConfig, Factor, PositiveInt


class AttentionConfig(ClassifierConfig):
    """Base of models with an attention of several heads and a feed-forward network, each with its norm."""

    positions: Literal["none", "learned"] = "learned"
    """As in the Transformer: an attention that ignores order would otherwise see a bag."""
    heads: PositiveInt = 4
    """Long Range Arena's models have 4 or 8."""
    mlp_expand: Factor = 4
    """Width inside the feed-forward network in multiples of d_model."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> Self:
        if self.d_model % self.heads:
            raise ValueError(
                f"heads {self.heads} do not divide d_model {self.d_model}; set heads to a divisor of it"
            )
        return self


class LinearAttentionConfig(AttentionConfig):
    """Attention whose weights are products of features, computed without the l x l matrix of them."""

    feature_map: Literal["elu"] = "elu"
    """``elu``: elu(x) + 1 (Katharopoulos et al. 2020)."""
    causal: bool = False
    """Each position sees only itself and earlier ones: a recurrence, which can run step by step."""


class LocalAttentionConfig(AttentionConfig):
    """Attention within blocks (Tay et al. 2020): a position sees those of its own block."""

    block: PositiveInt = 50
    """Positions of a block; those of Long Range Arena's ListOps."""


class LunaConfig(AttentionConfig):
    """Luna (Ma et al. 2021): attention to and from a second sequence, which runs through all layers."""

    prenorm: bool = False
    """The norms of Luna follow its residuals."""
    packed: PositiveInt = 256
    """Positions of the second sequence."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        if self.prenorm:
            raise ValueError(
                "prenorm: true is not supported: the norms of luna follow its residuals; set prenorm: false"
            )
        if self.drop_path:
            raise ValueError(
                "drop_path is not supported: luna has no residual around its stack of layers; set it to 0"
            )
        return self
