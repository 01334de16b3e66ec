"""InceptionTime: convolutions of several widths in parallel."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from msbench.config.model import ClassifierConfig
from msbench.config.numbers import Positive

Kernels = Annotated[tuple[Positive, ...], Field(min_length=1)]


class InceptionTimeConfig(ClassifierConfig):
    """One network of InceptionTime (Ismail Fawaz et al. 2020; the published classifier averages five).

    `layers` counts modules. `d_model` is the output width of one: the concatenated filters of each kernel and
    of the pooling branch, 32 each as in the paper.
    """

    layers: Positive = 6
    d_model: Positive = 128
    norm: Literal["layer", "rms", "batch"] = "batch"
    """Norm of modules and shortcuts."""
    prenorm: bool = False
    kernels: Kernels = (39, 19, 9)
    """Those of the published PTB-XL values, which are symmetric; the authors' own code has 40, 20, 10."""
    bottleneck: Positive = 32
    """Input channels of the kernels."""
    shortcut_every: Positive = 3
    """Number of modules that a shortcut spans."""

    @model_validator(mode="after")
    def _branches_share_the_width(self) -> Self:
        branches = len(self.kernels) + 1
        if self.d_model % branches:
            raise ValueError(
                f"d_model {self.d_model} is not shared evenly by {branches} branches, one for each of"
                f" kernels {list(self.kernels)} and the pooling; make it a multiple of {branches}"
            )
        return self

    @model_validator(mode="after")
    def _norms_stand_behind_the_convolutions(self) -> Self:
        if self.prenorm:
            raise ValueError(
                "prenorm true: inceptiontime's norms stand behind its convolutions; set prenorm false"
            )
        return self
