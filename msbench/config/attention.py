"""Configs of models with another attention than the Transformer's."""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.base import ClassifierConfig, Factor, NonNegativeInt, PositiveFloat, PositiveInt


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

    feature_map: Literal["elu", "cosine", "random"] = "elu"
    """Of the Linear Transformer, of cosFormer and of the Performer; see `msbench.models.linear_attention`."""
    features: PositiveInt | None = None
    """Random features of the Performer; None means w ln w, w the width of a head, as in its code."""
    causal: bool = False
    """Each position sees only itself and earlier ones: a recurrence, which can run step by step."""

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.d_model // self.heads

    @property
    def feature_count(self) -> int:
        """Number of features of a query."""
        if self.feature_map == "random":
            return self.features or max(1, int(self.head_width * math.log(self.head_width)))
        return self.head_width * (2 if self.feature_map == "cosine" else 1)

    @model_validator(mode="after")
    def _options_fit_the_features(self) -> Self:
        if self.feature_map != "random" and self.features is not None:
            raise ValueError(
                f"features needs feature_map: random (performer); with {self.feature_map} their number is"
                f" {self.feature_count}, from the width of a head: leave it out"
            )
        if self.feature_map == "random" and self.causal:
            raise ValueError(
                "causal: true is not supported by performer: its keys are scaled by the largest of all, later"
                " ones too; use linear-transformer or cosformer"
            )
        return self


class LocalAttentionConfig(AttentionConfig):
    """Attention within blocks (Tay et al. 2020): a position sees those of its own block."""

    block: PositiveInt = 50
    """Positions of a block; those of Long Range Arena's ListOps."""


class LinformerConfig(AttentionConfig):
    """Attention to a few learned sums of all positions (Wang et al. 2020), instead of the positions."""

    rank: PositiveInt = 256
    """Sums of keys and values (the paper's k): 128 or 256 there, 16 in Long Range Arena's code."""
    sharing: Literal["heads", "keys-and-values", "layers"] = "heads"
    """Uses of a matrix of sums: all heads of a layer; keys and values too; or those of all layers."""


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


class FlashConfig(ClassifierConfig):
    """FLASH (Hua et al. 2022): a gated attention unit a layer, without a feed-forward network."""

    positions: Literal["none", "learned"] = "learned"
    """The paper adds scaled sines to the input, and rotates queries and keys as well."""
    key_dim: PositiveInt = 128
    """Width of queries and keys (s)."""
    expand: Factor = 2
    """Width of gates and values (e) in multiples of d_model."""
    chunk: PositiveInt | None = 256
    """Positions per chunk (C), with linear attention to all others; None: the quadratic unit (GAU) alone."""

    @model_validator(mode="after")
    def _keys_are_pairs(self) -> Self:
        if self.key_dim % 2:
            raise ValueError(
                f"key_dim {self.key_dim} is odd, but queries and keys are rotated in pairs: make it even"
            )
        return self


class MegaConfig(ClassifierConfig):
    """Mega (Ma et al. 2022): attention of a moving average, gated, then a feed-forward network.

    Depth, width and norm are those of suites; with ``prenorm: false`` norms follow the gate and the network,
    as in the authors' settings for text.
    """

    state: PositiveInt = 16
    """States of a channel's moving average in each direction (the paper's h): 16 in all its settings."""
    key_dim: PositiveInt = 64
    """Width of queries and keys (z); 64 for text, 96 for Image, 32 for Path-X."""
    expand: Factor = 2
    """Width of the values (v) in multiples of d_model."""
    mlp_expand: Factor = 2
    """Width inside the feed-forward network in multiples of d_model."""
    attention: Literal["softmax", "laplace", "relu2"] = "softmax"
    """From scores to weights; ``laplace`` is the paper's for images, ``relu2`` that of FLASH."""
    chunk: PositiveInt | None = None
    """Positions per chunk, beyond which nothing attends (Mega-chunk: 128); None: all see all."""

    @model_validator(mode="after")
    def _gates_are_no_residuals(self) -> Self:
        if self.drop_path:
            raise ValueError("drop_path is not supported: mega has gates in place of residuals; set it to 0")
        return self


class HTransformerConfig(AttentionConfig):
    """H-Transformer-1D (Zhu and Soricut 2021): attention to far positions through means of their keys."""

    block: Annotated[PositiveInt, Field(multiple_of=2)] = 16
    """Positions of a block, even: the paper's N_r. Its authors' code has 2 in encoders, 16 in decoders."""


class LongformerConfig(AttentionConfig):
    """Attention within windows, and from and to a few global positions (Beltagy et al. 2020)."""

    window: PositiveInt = 64
    """Half of it, rounded down, is how far a query sees to either side; the paper's have 32 to 512."""
    global_tokens: NonNegativeInt = 0
    """First positions that see all and are seen by all, with projections of their own."""


class BigBirdConfig(AttentionConfig):
    """Attention to near, global and random blocks (Zaheer et al. 2020)."""

    block: PositiveInt = 16
    """Positions of a block; 64 in the paper, whose sequences are longer."""
    random_blocks: NonNegativeInt = 3
    """Random blocks of keys for each block of queries of a head, those that it sees anyway not counted."""


class SparseTransformerConfig(AttentionConfig):
    """Causal attention within blocks and to summaries of earlier ones (Child et al. 2019, fixed pattern)."""

    block: PositiveInt | None = None
    """Positions of a block; None means the square root of the task's longest sequence, rounded up."""
    summaries: PositiveInt = 8
    """Last positions of a block that all later ones see, at most all; the paper has 8 to 32."""

    @model_validator(mode="after")
    def _summaries_are_in_the_block(self) -> Self:
        if self.block is not None and self.summaries > self.block:
            raise ValueError(
                f"summaries {self.summaries} are more than the block of {self.block} has; lower them"
            )
        return self


class ReformerConfig(AttentionConfig):
    """Reformer (Kitaev et al. 2020): attention within chunks of positions that a hash has sorted."""

    chunk: PositiveInt = 64
    """Positions of a chunk; a query sees its own and the one before it."""
    rounds: PositiveInt = 1
    """Rounds of hashing; the paper has 1 to 8."""
    buckets: Annotated[PositiveInt, Field(multiple_of=2)] | None = None
    """Values of a hash, even; None means a power of two near twice the chunks of the longest sequence."""


class SinkhornConfig(AttentionConfig):
    """Sinkhorn Transformer (Tay et al. 2020): attention within blocks and to a learned order of them."""

    block: PositiveInt = 32
    """Positions of a block; 50 in Long Range Arena's code."""
    iterations: PositiveInt = 8
    """Divisions of the sorting matrix by the sums of its rows and columns; the paper has 5 to 8."""
    temperature: PositiveFloat = 0.75
    """By which the sorting network's numbers are divided: the smaller, the closer to one block each."""
