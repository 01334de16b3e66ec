"""What a model is made of: one config class a family, found by model name in `MODELS`.

Every reading of the paper that it leaves open is a field here; `docs/paper.md` gives the reasons for the
defaults.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from msbench.config import Config

Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class ClassifierConfig(Config):
    """What surrounds the blocks of every model: encoder, depth, norm, dropout, pooling."""

    d_model: Positive = 128
    layers: Positive = 4
    norm: Literal["layer", "rms", "batch"] = "layer"
    prenorm: bool = True
    dropout: Fraction = 0.0
    pooling: Literal["mean", "last", "mean-with-padding"] = "mean"
    positions: Literal["none", "learned"] = "none"
    encoder: Literal["embedding", "scalar"] = "embedding"
    """``scalar`` feeds a token id as one real number, as the code behind the published Mamba rows does."""
    padding: Literal["masked", "paper"] = "masked"
    """``paper`` lets padded positions flow through blocks and batch statistics (never through pooling)."""


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
    dt_max: Annotated[float, Field(gt=0)] = 0.1
    skip: bool = True
    bidirectional: bool = False
    """Two blocks a layer with their own parameters, one over the reversed sequence; outputs are averaged."""

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


@dataclass(frozen=True)
class ModelEntry:
    """A model's name stands for a config class and the fields that make it this model and no other."""

    config: type[ClassifierConfig]
    summary: str
    family: str
    preset: dict[str, Any] = field(default_factory=dict)


MODELS: dict[str, ModelEntry] = {
    "msssm-s6": ModelEntry(MsSsmConfig, "MS-SSM with selective (S6) scans", "ms-ssm"),
    "mamba": ModelEntry(MambaConfig, "Mamba: selective SSM", "mamba"),
}
