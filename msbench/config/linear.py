"""Linear time-invariant state space models: S4, S4D, DSS, Liquid-S4, S5 and the LRU.

`state` counts real numbers in all of them: a complex state, or a conjugate pair stored as one, is two.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.base import (
    ClassifierConfig,
    Fraction,
    PositiveFloat,
    PositiveInt,
    Probability,
    SteppedConfig,
)


class LinearConfig(ClassifierConfig):
    """Settings that all of them share.

    Defaults of norm, depth and rates are `ClassifierConfig`'s; the sources' settings belong in suites.
    """

    state: PositiveInt = 64
    bidirectional: bool = False
    """A second output matrix C reads the reversed sequence, as in the sources; all else is shared."""
    inner_dropout: Probability | None = None
    """Dropout of whole channels inside the block, where each source has it; None means as `dropout`."""

    @model_validator(mode="after")
    def _states_are_pairs(self) -> Self:
        if self.state % 2 and self._complex:
            raise ValueError(f"state {self.state} is odd, but states are pairs of real numbers: make it even")
        return self

    @property
    def dropout_inside(self) -> float:
        """Dropout around the activation."""
        return self.dropout if self.inner_dropout is None else self.inner_dropout

    @property
    def _complex(self) -> bool:
        return True


class CopiedConfig(LinearConfig, SteppedConfig):
    """One system per channel, whose A and B several channels may share."""

    copies: PositiveInt | None = None
    """Number of (A, B) pairs, each for every `copies`-th channel (S4's ``n_ssm``); None: one per channel."""

    @model_validator(mode="after")
    def _copies_divide_the_width(self) -> Self:
        if self.copies is not None and self.d_model % self.copies:
            raise ValueError(f"copies {self.copies} must divide d_model {self.d_model}")
        return self


B_CLIP = 2.0
"""Bound of the first B in the eigenbasis of HiPPO-LegS, in S4's code."""


class S4Config(CopiedConfig):
    """S4 (Gu, Goel and Re 2022): diagonal plus low rank, HiPPO-LegS, bilinear."""

    b_clip: PositiveFloat | None = B_CLIP
    """Bound of the first B in the eigenbasis; None leaves HiPPO's own, up to 41 with 64 states."""


class LiquidS4Config(S4Config):
    """Liquid-S4 (Hasani et al. 2022): S4, and products of `degree` inputs.

    Its published code is `liquid_kernel` ``allcombs``, `powers` ``row-sum``, `liquid_term` ``frozen``.
    """

    b_clip: PositiveFloat | None = None
    """As in `S4Config`; its code is older than S4's bound and has none."""
    degree: Annotated[PositiveInt, Field(ge=2)] = 2
    liquid_kernel: Literal["polyb", "kb", "allcombs"] = "polyb"
    """``polyb`` takes A-bar as 1 and one lag for products of inputs; ``kb`` their whole kernel.

    ``allcombs``, its code's default, is ``polyb`` with products of the last inputs of a sequence, each with
    each, in place of consecutive ones: not causal.
    """
    liquid_term: Literal["trained", "frozen"] = "trained"
    """``frozen``: the factors of products stay those of the random start, as in its code."""
    products: Literal["consecutive", "shifted"] = "consecutive"
    """``shifted``, its code's: each product times its predecessor, at degree 3 u_t u_{t-1}^2 u_{t-2}."""
    powers: Literal["elementwise", "row-sum"] = "elementwise"
    """Powers of B-bar: the paper's equation, or B-bar times its own sum, as the published code has it."""

    @model_validator(mode="after")
    def _products_are_of_neighbours(self) -> Self:
        if self.products == "shifted" and self.liquid_kernel == "allcombs":
            raise ValueError("products: shifted needs liquid_kernel: polyb or kb; allcombs has its own")
        if self.products == "shifted" and self.degree == 2:
            raise ValueError("products: shifted needs degree: 3 or more; two inputs have one product")
        return self


class S4dConfig(CopiedConfig):
    """S4D (Gu et al. 2022): S4 with a diagonal A."""

    spectrum: Literal["lin", "inv", "legs", "real"] = "lin"
    discretisation: Literal["zoh", "bilinear"] = "zoh"
    b_clip: PositiveFloat | None = B_CLIP
    """For ``legs``: bound of the first B; None leaves HiPPO's own."""

    @model_validator(mode="after")
    def _hippo_has_a_b(self) -> Self:
        if self.spectrum != "legs" and self.changed(["b_clip"]):
            raise ValueError(f"b_clip needs spectrum: legs; with spectrum: {self.spectrum} B starts as 1")
        return self

    @property
    def _complex(self) -> bool:
        return self.spectrum != "real"


class DssConfig(LinearConfig, SteppedConfig):
    """DSS (Gupta, Gu and Berant 2022): diagonal, one spectrum for all channels."""

    version: Literal["softmax", "exp", "exp-no-scale"] = "softmax"
    separate_steps: bool = True
    """Separate step sizes for real and imaginary parts, as in the code; the paper has one."""
    horizon: PositiveInt | None = None
    """Steps over which ``softmax`` normalises; None is the task's longest sequence."""
    gate: Literal["full", "none"] = "full"
    """A gated linear unit, or ``none``: a plain linear map, as in the code (``postact: null``)."""


class FlaxConfig(LinearConfig):
    """Models whose sources are written in JAX with flax, whose defaults differ from torch's."""

    gelu: Literal["exact", "tanh"] = "exact"
    """``tanh``: flax's approximation, in the blocks and the head of pairs."""
    dense_init: Literal["torch", "lecun"] = "torch"
    """``lecun``, flax's: linear maps start truncated normal of variance 1 / inputs, their biases at 0."""


class S5Config(FlaxConfig, SteppedConfig):
    """S5 (Smith, Warrington and Linderman 2023): one system with many inputs and outputs."""

    blocks: PositiveInt = 1
    """HiPPO-LegS matrices on the diagonal of the first A."""
    output_init: Literal["truncated-normal", "lecun-normal", "complex-normal"] = "truncated-normal"
    discretisation: Literal["zoh", "bilinear"] = "zoh"
    gate: Literal["full", "half-activated", "half", "none"] = "half-activated"
    """S5's ``full_glu``, ``half_glu1``, ``half_glu2`` and ``gelu``."""

    @property
    def dropout_inside(self) -> float:
        """See `LinearConfig`; without a gate the residual's dropout is the one after the activation."""
        return 0.0 if self.gate == "none" and self.inner_dropout is None else super().dropout_inside

    @model_validator(mode="after")
    def _blocks_are_of_pairs(self) -> Self:
        if self.state % (2 * self.blocks):
            raise ValueError(
                f"state {self.state} must be a multiple of 2 blocks, of {2 * self.blocks}: every block has an"
                " even size"
            )
        return self


class LruConfig(FlaxConfig):
    """LRU (Orvieto et al. 2023): a linear recurrent unit, diagonal and complex, in discrete time."""

    r_min: Fraction = 0.0
    r_max: Fraction = 1.0
    """Decays start uniform on the ring between these radii."""
    max_phase: PositiveFloat = 6.28

    @model_validator(mode="after")
    def _radii_are_an_interval(self) -> Self:
        if self.r_min >= self.r_max:
            raise ValueError(f"r_min {self.r_min} must be below r_max {self.r_max}")
        return self
