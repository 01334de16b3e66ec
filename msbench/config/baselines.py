"""Configs of the baselines that are no state space models: gated recurrences, attention and convolutions."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.base import (
    LARGEST_COUNT,
    ClassifierConfig,
    Factor,
    Fraction,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
)

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
    heads: PositiveInt | None = None
    """Blocks on the diagonal of the gates, and heads of the attention; None means one per 32 of d_model."""
    expand: Factor = 1
    """Width of the recurrence in multiples of d_model; the paper's models have about 4/3."""
    kernel: PositiveInt = 4
    window: PositiveInt = 1024
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
    def _heads_divide_widths(self) -> Self:
        heads = self.head_count
        if "recurrent" in self.pattern and self.lru_width % heads:
            raise ValueError(
                f"heads {heads} do not divide the recurrence's width {self.lru_width} (expand {self.expand}"
                f" times d_model {self.d_model}); set heads to a divisor of it"
            )
        if "attention" in self.pattern and self.d_model % (4 * heads):
            raise ValueError(
                f"d_model {self.d_model} is not a multiple of 4 times heads {heads}, but half of each head is"
                " rotated in pairs; set heads to a divisor of a quarter of d_model"
            )
        return self


class TransformerConfig(ClassifierConfig):
    """Multi-head self-attention and a feed-forward network, each with its norm (Vaswani et al. 2017)."""

    positions: Literal["none", "learned"] = "learned"
    """Attention alone ignores order: without positions a sequence is a bag, unless `causal`."""
    heads: PositiveInt = 4
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


class LstmConfig(ClassifierConfig):
    """One LSTM a layer (Hochreiter and Schmidhuber 1997), as wide as the model."""

    bidirectional: bool = False
    """Two LSTMs per layer with their own parameters, one over the reversed sequence; outputs are averaged."""


Kernels = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class InceptionTimeConfig(ClassifierConfig):
    """One network of InceptionTime (Ismail Fawaz et al. 2020; the published classifier averages five).

    `layers` counts modules. `d_model` is the output width of one: the concatenated filters of each kernel and
    of the pooling branch, 32 each as in the paper.
    """

    layers: PositiveInt = 6
    d_model: PositiveInt = 128
    norm: Literal["layer", "rms", "batch"] = "batch"
    """Norm of modules and shortcuts."""
    prenorm: bool = False
    kernels: Kernels = (39, 19, 9)
    """Those of the published PTB-XL values, which are symmetric; the authors' own code has 40, 20, 10."""
    bottleneck: PositiveInt = 32
    """Input channels of the kernels."""
    shortcut_every: PositiveInt = 3
    """Number of modules that a shortcut spans."""

    @model_validator(mode="after")
    def _options_fit(self) -> Self:
        branches = len(self.kernels) + 1
        if self.d_model % branches:
            raise ValueError(
                f"d_model {self.d_model} is not shared evenly by {branches} branches, one for each of"
                f" kernels {list(self.kernels)} and the pooling; make it a multiple of {branches}"
            )
        if self.prenorm:
            raise ValueError(
                "prenorm: true is not supported: the norms of inceptiontime follow its convolutions;"
                " set prenorm: false"
            )
        if self.drop_path:
            raise ValueError(
                "drop_path is not supported: inceptiontime has no residual around each module; set it to 0"
            )
        return self


class MultiResNetConfig(ClassifierConfig):
    """MultiResNet (Shi, Wang and Fox 2023) with fading memory: details of all scales, one approximation.

    Norms come after the residuals, as in the code of its authors.
    """

    prenorm: bool = False
    kernel: Annotated[PositiveInt, Field(ge=2)] = 2
    """Taps of a filter; with one tap no scale would reach further than another."""
    depth: Annotated[PositiveInt, Field(le=30)] | None = None
    """Number of scales; None means the fewest that see the task's longest sequence from its end."""
    independent_skip: bool = False
    """Weights of the signal itself start uniform in (-1, 1), whatever the number of streams (ListOps)."""
    bidirectional: bool = False
    """Two blocks a layer with their own parameters, one over the reversed sequence; outputs are averaged."""


class SgConvConfig(ClassifierConfig):
    """SGConv (Li et al. 2022): sub-kernels, each longer and weaker than the one before it, end to end."""

    kernel_dim: PositiveInt = 64
    """Parameters of a sub-kernel; the first two are that long, each further one twice the one before."""
    decay_min: PositiveFloat = 2
    """Factor of each channel by which a sub-kernel is weaker than the next finer one.

    The factors are evenly spaced from `decay_min` at the first channel to `decay_max` at the last.
    """
    decay_max: PositiveFloat = 2
    bidirectional: bool = False
    """A second kernel a channel, over later positions; both are added before the one skip and activation."""

    @model_validator(mode="after")
    def _decays_are_an_interval(self) -> Self:
        if self.decay_min > self.decay_max:
            raise ValueError(f"decay_min {self.decay_min} is above decay_max {self.decay_max}; exchange them")
        return self


class BareConfig(ClassifierConfig):
    """Base of networks without norms and residuals around their layers.

    Any `norm` is valid, as suites set one for all models: it is that before the pooling, with `final_norm`.
    """

    prenorm: bool = False

    @model_validator(mode="after")
    def _parts_around_layers_are_absent(self) -> Self:
        if self.prenorm:
            raise ValueError(
                "prenorm: true is not supported: this network has no norms around its layers; set it to false"
            )
        if self.drop_path:
            raise ValueError(
                "drop_path is not supported: this network has no residuals around its layers; set it to 0"
            )
        return self


class CdilConfig(BareConfig):
    """CDIL-CNN (Cheng et al. 2023): circular convolutions, each with twice the dilation of the one before."""

    layers: Annotated[PositiveInt, Field(le=32)] = 9
    """9 reach over 1,023 positions and 11 over 4,095: the authors' for lengths of 1,024 and 4,000."""
    embedding_std: PositiveFloat | None = 1.0
    """As in the source. No norm rescales smaller vectors: at 0.02 the biases outweigh them at first."""
    kernel: Annotated[int, Field(ge=3, lt=LARGEST_COUNT)] = 3
    """Taps of a convolution; an odd number, as many before as after its own position."""

    @model_validator(mode="after")
    def _taps_are_symmetric(self) -> Self:
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel {self.kernel} is even, but the convolutions of cdil see as many positions before as"
                " after their own; make it odd"
            )
        return self


class SpaceTimeConfig(BareConfig):
    """The encoder of SpaceTime (Zhang et al. 2023): autoregressive state spaces and maps of the channels."""

    layers: PositiveInt = 2
    """As in the authors' default encoder."""
    final_norm: bool | None = True
    """Not the authors': without it the first losses are near 40, as kernels start with numbers near 10."""
    state: PositiveInt = 64
    """States of a channel; 64 in the authors' settings."""
    preprocess: bool = True
    """The first layer reads differences of the signal, and residuals of its moving averages."""


class TnnConfig(ClassifierConfig):
    """TNN (Qin et al. 2023): a gated Toeplitz unit and a gated linear unit, each with its norm."""

    expand: Factor = 1
    """Width of the Toeplitz unit in multiples of d_model: in its settings 1 for texts, 2 or 3 for images."""
    mlp_expand: Factor = 1
    """Width inside the gated linear unit in multiples of d_model: from 1 to 3 in its settings."""
    kernel_width: Annotated[int, Field(ge=2, lt=LARGEST_COUNT)] = 32
    """Width of the network that computes the kernels: 16 or 32 in its settings. It has a norm over it."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.99
    """Factor of the kernels per position of distance; 0.99 in its language models, 0.6 to 1 on tasks."""
    dimensions: Literal[1, 2] = 1
    """2 takes a sequence as a square picture and mixes along its rows and its columns, with two kernels."""

    @property
    def inner(self) -> int:
        """Width of the Toeplitz unit."""
        return round(self.expand * self.d_model)


class CkConvConfig(BareConfig):
    """CKCNN (Romero et al. 2022): residual blocks of two convolutions whose kernels a small network computes.

    `layers` counts blocks. `norm` is that after each convolution, and before the pooling with `final_norm`.
    """

    layers: PositiveInt = 2
    pooling: Literal["mean", "last", "mean-with-padding"] = "last"
    """The network is causal and read at its last position."""
    kernel_width: Annotated[int, Field(ge=2, lt=LARGEST_COUNT)] = 32
    """Width of the network that computes a kernel."""
    frequency: PositiveFloat = 25.696
    """The paper's omega_0, of the sines in that network: from 14 to 43 in its settings, here sCIFAR's."""
    kernel_dropout: Probability = 0.0
    """Dropout of the kernels' single values, 0.1 for the paper's large network on sCIFAR."""
    kernel_init: Literal["sine", "torch"] = "sine"
    """Start of that network's weights: as for networks of sines, as the paper has it, or as torch's.

    In the authors' code it is ``torch``, because weight normalisation overwrites what it draws.
    """
    norm_over: Literal["channels", "sequence"] = "channels"
    """``sequence``: the authors' code, whose statistics are over all positions too, so of the future."""

    @model_validator(mode="after")
    def _norms_agree(self) -> Self:
        if self.norm_over == "sequence" and self.norm != "layer":
            raise ValueError(
                f"norm_over: sequence is a layer norm, and norm is {self.norm}; set norm: layer, or"
                " norm_over: channels"
            )
        return self


class OrchidConfig(ClassifierConfig):
    """Orchid (Karami and Ghodsi 2024): convolutions whose kernels depend on the input, then an MLP."""

    positions: Literal["none", "learned"] = "learned"
    """Circular convolutions alone do not see where a sequence begins."""
    kernel: PositiveInt = 3
    """Taps of the short convolutions: 3 by default in its code, 5 in its example."""
    kernel_width: PositiveInt = 64
    """Width of the networks that compute the static kernels; 128 in its example."""
    kernel_depth: NonNegativeInt = 2
    """Inner maps of these networks: 2 for CIFAR-10 and 1 for ImageNet, by the comments in its code."""
    bands: PositiveInt = 1
    """Frequencies of the positions that these networks read: 1 for CIFAR-10 and 16 for ImageNet."""
    frequency: PositiveFloat = 10.0
    """Start of the learned frequencies of their sines."""
    mlp_expand: Factor = 4
    """Width inside the MLP in multiples of d_model."""


class RecurrentConfig(BareConfig):
    """A recurrent network as published before state space models, without norms and residuals."""

    layers: PositiveInt = 1
    """The sources have one; each further layer reads the states of the one below it."""
    embedding_std: PositiveFloat | None = 1.0
    """As in HiPPO's code (torch's default): no norm follows that would enlarge smaller token vectors."""


class RLstmConfig(RecurrentConfig):
    """An LSTM with the auxiliary loss of Trinh et al. 2018: it reproduces a part of what it has read."""

    auxiliary_weight: PositiveFloat = 1.0
    """Weight of the auxiliary loss next to that of the label."""
    segment: PositiveInt = 600
    """Positions that are reproduced, as in the paper; all before the anchor where there are fewer."""
    decoder_width: PositiveInt = 256
    """Width of the decoder's two LSTMs, as in the paper."""


class HippoRnnConfig(RecurrentConfig):
    """A gated RNN with the memory of HiPPO-LegS (Gu et al. 2020)."""

    memory: PositiveInt | None = None
    """Coefficients of the memory; None means as many as `d_model`, as in the authors' code."""

    @property
    def memory_size(self) -> int:
        """`memory`, or its default number if it is not set."""
        return self.memory or self.d_model


class UrGruConfig(RecurrentConfig):
    """A GRU with uniform gate initialisation and refine gates (Gu et al. 2020)."""


class LipschitzRnnConfig(RecurrentConfig):
    """The Lipschitz RNN (Erichson et al. 2021), by Euler's method; defaults are its code's for MNIST."""

    euler_step: PositiveFloat = 0.03
    """The paper's epsilon: time between two positions."""
    beta: Fraction = 0.75
    """Share of the skew-symmetric part of both matrices; 1 leaves out the symmetric part."""
    gamma: NonNegativeFloat = 0.001
    """Damping that is subtracted from their diagonals."""
    init_std: PositiveFloat = 0.1
    """Deviation of their entries at the start, in multiples of 1 / d_model."""


class WaveletFeaturesConfig(BareConfig):
    """A network on wavelet features of whole signals (Strodthoff et al. 2020)."""

    d_model: PositiveInt = 128
    """Width of the hidden layers."""
    layers: PositiveInt = 1
    """Hidden layers between the features and the head."""
    dropout: Probability = 0.25
    """Of single numbers, after each hidden layer."""

    @model_validator(mode="after")
    def _nothing_acts_on_positions(self) -> Self:
        idle = ("final_norm", "batch_norm_momentum", "pooling", "positions", "encoder", "embedding_std")
        if changed := self.changed((*idle, "padding")):
            raise ValueError(
                f"{changed[0]} has no effect: wavelet-features has no sequence of states; leave it out"
            )
        return self
