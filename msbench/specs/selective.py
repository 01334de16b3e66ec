"""Selective state space models: Mamba and MS-SSM."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.specs.model import ClassifierConfig, Positive


class SsmConfig(ClassifierConfig):
    """What Mamba's block and ours share."""

    state: Positive = 16
    expand: Annotated[float, Field(gt=0)] = 2
    """Width of the scan in multiples of d_model; MS-SSM's blocks ``glu`` and ``vit`` do not expand."""
    kernel: Positive = 4
    dt_rank: Positive | None = None
    """None means ceil(d_model / 16)."""
    dt_min: Annotated[float, Field(gt=0)] = 1e-3
    """Step sizes start log-uniform between `dt_min` and `dt_max`, never below 1e-4."""
    dt_max: Annotated[float, Field(gt=0, le=1e3)] = 0.1
    """A state of rate 1 is gone after one step of 20; far larger ones overflow what they multiply."""
    skip: bool = True
    bidirectional: bool = False
    """Two blocks a layer with their own parameters, one over the reversed sequence; outputs are averaged."""

    @model_validator(mode="after")
    def _a_width_is_left(self) -> Self:
        if round(self.expand * self.d_model) < 1:
            raise ValueError(f"expand {self.expand} leaves nothing of d_model {self.d_model}; raise either")
        return self

    @model_validator(mode="after")
    def _step_sizes_are_an_interval(self) -> Self:
        if self.dt_min > self.dt_max:
            raise ValueError(f"dt_min {self.dt_min} is above dt_max {self.dt_max}")
        return self


class MambaConfig(SsmConfig):
    """Mamba's selective block (Gu and Dao 2023)."""

    conv_bias: bool = True


class MsSsmConfig(SsmConfig):
    """MS-SSM: a multi-scale decomposition, one SSM a stream, an input-dependent mixer.

    `state` is the total over the streams [x, d1..dS, aS] unless `state_per_stream`. Field by field the
    readings of the paper: `ssm_input` what the SSMs scan, `parameters_from` what B, C and the step size are
    computed from, `mixer` how streams are weighed, `decay_init` where diag(A) starts.
    """

    state: Positive = 128
    levels: Annotated[int, Field(ge=0)] = 3
    """Levels S of the decomposition, S + 2 streams; 0 leaves one stream, the signal itself."""
    state_per_stream: bool = False
    ssm: Literal["s6", "none"] = "s6"
    decomposition: Literal["wavelet", "shared-conv"] = "wavelet"
    """``shared-conv``: ablation row 4, every stream sees one causal convolution."""
    ssm_input: Literal["stream", "raw"] = "stream"
    parameters_from: Literal["raw", "stream"] = "raw"
    mixer: Literal["linear", "softmax", "static", "static-per-channel"] = "linear"
    mixer_init: Literal["mean", "default"] = "mean"
    """``mean``: the output starts as the mean of the streams; ``default``: torch's own linear layer."""
    decay_init: Literal["scale", "mamba"] = "scale"
    decay_spacing: Literal["even", "random"] = "even"
    input_discretisation: Literal["euler", "raw"] = "euler"
    """``euler``: step size times B; ``raw``: B as printed, without the step size."""
    conv_activation: Literal["none", "silu"] = "none"
    conv_bias: bool = False
    block: Literal["mamba", "glu", "vit"] = "mamba"
