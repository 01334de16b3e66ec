"""Selective state space models: Mamba and MS-SSM."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import model_validator

from msbench.config.base import Factor, NonNegativeInt, PositiveFloat, PositiveInt, SteppedConfig
from msbench.config.linear import B_CLIP

Fault = tuple[bool, str]
"""A possible fault: True if it is present, and its message."""
OF_STATES = ("skip", "state_per_stream", "decay_init", "decay_spacing", "raw_decays")
"""Options that need MS-SSM's states, except `state` and step sizes, which suites set for all models."""


class SsmConfig(SteppedConfig):
    """Settings that the blocks of Mamba and MS-SSM share. No step size starts below 1e-4."""

    state: PositiveInt = 16
    expand: Factor = 2
    """Width of the scan in multiples of d_model; MS-SSM's blocks ``glu`` and ``vit`` do not expand."""
    kernel: PositiveInt = 4
    dt_rank: PositiveInt | None = None
    """None means ceil(d_model / 16)."""
    skip: bool = True
    bidirectional: bool = False
    """Two blocks a layer with their own parameters, one over the reversed sequence; outputs are averaged."""


class MambaConfig(SsmConfig):
    """Mamba's selective block (Gu and Dao 2023)."""

    conv_bias: bool = True
    layers_factor: PositiveInt = 1
    """Multiplier of the layers that a suite gives: the paper's row "Mamba 2x Param"."""
    state_factor: PositiveInt = 1
    """Multiplier of the states that a suite gives: the paper's row "Mamba 2x State"."""

    def multiplied(self) -> Self:
        """Return the same model with its factors multiplied in."""
        layers, state = self.layers * self.layers_factor, self.state * self.state_factor
        factors = {"layers_factor": 1, "state_factor": 1}
        return self.model_copy(update={"layers": layers, "state": state, **factors})


class MsSsmConfig(SsmConfig):
    """MS-SSM: a multi-scale decomposition, one SSM per stream, an input-dependent mixer.

    `state` is the total over the streams [x, d1..dS, aS] unless `state_per_stream`. Interpretations of the
    paper by field: `ssm_input` is the input of the SSMs, `parameters_from` the source of B, C and the step
    size, `raw_input` the raw input of that option, `mixer` the weighting of streams, `decay_init` the
    initialisation of diag(A). Options that contradict each other are refused.
    """

    state: PositiveInt = 128
    levels: NonNegativeInt = 3
    """Levels S of the decomposition, S + 2 streams; 0 leaves one stream, the signal itself."""
    raw_stream: bool = True
    """``false`` leaves the signal itself out: S + 1 streams, those of the transform alone."""
    state_per_stream: bool = False
    ssm: Literal["s6", "s4", "s4d", "s4-dplr", "none"] = "s6"
    """All but ``s6`` are constant in time: B, C and step sizes do not depend on the input.

    ``s4`` is real and diagonal, with the exact zero-order hold; ``s4d`` S4D-Lin, complex and diagonal;
    ``s4-dplr`` S4 itself, diagonal plus low rank. With ``none`` the streams are mixed as they are, and
    `state`, which a suite gives to all of its models, has no effect.
    """
    b_clip: PositiveFloat | None = B_CLIP
    """``s4-dplr`` only: bound of the first B, as in S4; None leaves HiPPO's own."""
    learned_b: bool = False
    """``s4`` only: B is learned; otherwise it is 1, as C takes its place in a diagonal system."""
    decomposition: Literal["wavelet", "shared-conv", "none"] = "wavelet"
    """``shared-conv``: ablation row 4, every stream sees one causal convolution; ``none``: the signal."""
    ssm_input: Literal["stream", "raw"] = "stream"
    parameters_from: Literal["raw", "stream"] = "raw"
    raw_input: Literal["expanded", "token", "sum"] = "expanded"
    """The raw input of `parameters_from` and of the mixer: ``token`` is the block's input, unexpanded;
    ``sum`` is no raw input but SiLU of the sum of the streams, like Mamba's after its convolution.
    """
    input_conv: bool = False
    """Keep Mamba's short convolution and SiLU, before every use of the expanded input."""
    step_sizes: Literal["own", "shared"] = "own"
    """For ``s6``. ``shared``: one projection of the raw input, and one bias, for all streams."""
    mixer: Literal["linear", "softmax", "static"] = "linear"
    mixer_channels: Literal["shared", "per-channel", "low-rank"] = "shared"
    """One weight per stream for all channels, or one for each channel, its matrix full or of `mixer_rank`."""
    mixer_rank: PositiveInt | None = None
    """None means ceil(d_model / 16)."""
    mixer_bias: bool = True
    mixer_init: Literal["mean", "default"] = "mean"
    """``mean``: the output starts as the mean of the streams; ``default``: torch's own linear layer."""
    decay_init: Literal["scale", "mamba"] = "scale"
    """``scale``: the coarser a stream, the slower its decays; ``mamba``: equal decays for all streams."""
    decay_spacing: Literal["even", "random"] = "even"
    raw_decays: Literal["fastest", "slowest"] = "fastest"
    """Decays of the stream of the signal itself, with `decay_init` ``scale``."""
    input_discretisation: Literal["euler", "raw"] = "euler"
    """For ``s6``. ``euler``: step size times B; ``raw``: B as printed, without the step size."""
    conv_activation: Literal["none", "silu"] = "none"
    conv_bias: bool = False
    block: Literal["mamba", "glu", "vit"] = "mamba"

    @property
    def streams(self) -> int:
        """Number of streams m: S + 2 if there are levels; without any only the signal itself, as a^0 is x."""
        return self.levels + 1 + self.raw_stream if self.levels else 1

    @property
    def has_step_sizes(self) -> bool:
        """See `ClassifierConfig`."""
        return self.ssm != "none"

    @property
    def paired(self) -> bool:
        """True if states are complex, in conjugate pairs that count as two."""
        return self.ssm in ("s4d", "s4-dplr")

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        parts = (self._of_the_system, self._of_the_states, self._of_the_streams, self._of_the_mixer)
        for wrong, message in (fault for part in parts for fault in part()):
            if wrong:
                raise ValueError(message)
        return self

    def _of_the_system(self) -> Iterator[Fault]:
        constant = self.ssm != "s6"
        why = f"needs ssm: s6; with ssm: {self.ssm} nothing is computed from the input"
        yield constant and self.parameters_from == "stream", f"parameters_from: stream {why}"
        yield constant and self.input_discretisation == "raw", f"input_discretisation: raw {why}"
        yield constant and self.dt_rank is not None, f"dt_rank {why}"
        shared = self.step_sizes == "shared"
        yield constant and shared, f"step_sizes: shared {why}"
        apart = shared and self.parameters_from == "stream"
        yield apart, "step_sizes: shared needs parameters_from: raw; streams have different inputs"
        yield shared and self.levels == 0, "step_sizes: shared needs levels: 1 or more; 0 has one stream"
        yield self.ssm != "s4" and self.learned_b, "learned_b: true needs ssm: s4, whose B is 1 without it"
        other = self.ssm != "s4-dplr" and bool(self.changed(["b_clip"]))
        yield other, f"b_clip needs ssm: s4-dplr; with ssm: {self.ssm} no B is HiPPO's"
        unread = self.ssm_input == "raw" and self.parameters_from == "raw"
        yield unread, "ssm_input: raw needs parameters_from: stream; otherwise nothing reads the streams"

    def _of_the_states(self) -> Iterator[Fault]:
        for key in self.changed(OF_STATES) if self.ssm == "none" else ():
            yield True, f"{key} needs states; with ssm: none there are none: leave it out"
        odd, fewest = self.state % 2 == 1, 2 * self.streams
        what = f"state {self.state} with ssm: {self.ssm}"
        yield self.paired and odd, f"{what} is odd, but states are conjugate pairs: make it even"
        too_few = self.paired and not self.state_per_stream and self.state < fewest
        yield too_few, f"{what} leaves a stream without a pair; {self.streams} streams need {fewest} or more"
        random = self.paired and self.decay_spacing == "random"
        yield random, f"decay_spacing: random needs ssm: s6 or s4; {self.ssm} has one decay a stream"

    def _of_the_streams(self) -> Iterator[Fault]:
        one, slowest = self.levels == 0, self.raw_decays == "slowest"
        yield one and not self.raw_stream, "raw_stream: false needs levels: 1 or more; 0 has no other stream"
        yield slowest and not self.raw_stream, "raw_decays: slowest needs raw_stream: true"
        yield slowest and one, "raw_decays: slowest needs levels: 1 or more; 0 has no other stream"
        yield slowest and self.decay_init == "mamba", "raw_decays: slowest needs decay_init: scale"
        unfiltered = self.decomposition == "none" or (self.decomposition == "wavelet" and one)
        where = f"levels: {self.levels} with decomposition: {self.decomposition}"
        yield unfiltered and self.conv_bias, f"conv_bias: true needs filters; {where} has none"
        narrow = self.raw_input == "token" and self.block != "mamba"
        yield narrow, f"raw_input: token needs block: mamba; block: {self.block} does not expand its input"
        bare = self.input_conv and self.block != "mamba"
        yield bare, f"input_conv: true needs block: mamba; block: {self.block} has no such convolution"

    def _of_the_mixer(self) -> Iterator[Fault]:
        static, softmax = self.mixer == "static", self.mixer == "softmax"
        low = self.mixer_channels == "low-rank"
        yield not low and self.mixer_rank is not None, "mixer_rank needs mixer_channels: low-rank"
        yield low and static, "mixer_channels: low-rank needs a mixer with a matrix; static has none"
        yield softmax and self.levels == 0, "mixer: softmax needs levels: 1 or more; one stream has weight 1"
        bare = not self.mixer_bias
        yield bare and static, "mixer_bias: false needs a mixer with a matrix; static is its bias"
        mean = bare and self.mixer == "linear" and self.mixer_init == "mean"
        yield (
            mean,
            "mixer_bias: false needs mixer_init: default; without a bias the mixer cannot start at the mean",
        )
