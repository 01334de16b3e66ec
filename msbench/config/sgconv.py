"""SGConv: one long structured kernel per channel."""

from typing import Self

from pydantic import model_validator

from msbench.config.model import ClassifierConfig
from msbench.config.numbers import Amount, Positive


class SgConvConfig(ClassifierConfig):
    """SGConv (Li et al. 2022): sub-kernels, each longer and weaker than the one before it, end to end."""

    kernel_dim: Positive = 64
    """Parameters of a sub-kernel; the first two are that long, each further one twice the one before."""
    decay_min: Amount = 2
    """Factor of each channel by which a sub-kernel is weaker than the next finer one.

    The factors are evenly spaced from `decay_min` at the first channel to `decay_max` at the last.
    """
    decay_max: Amount = 2
    bidirectional: bool = False
    """A second kernel a channel, over later positions; both are added before the one skip and activation."""

    @model_validator(mode="after")
    def _decays_are_an_interval(self) -> Self:
        if self.decay_min > self.decay_max:
            raise ValueError(f"decay_min {self.decay_min} is above decay_max {self.decay_max}; exchange them")
        return self
