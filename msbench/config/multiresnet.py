"""MultiResNet: one learned wavelet over many scales."""

from typing import Annotated

from pydantic import Field

from msbench.config.model import ClassifierConfig
from msbench.config.numbers import Positive


class MultiResNetConfig(ClassifierConfig):
    """MultiResNet (Shi, Wang and Fox 2023) with fading memory: details of all scales, one approximation.

    Norms come after the residuals, as in the code of its authors.
    """

    prenorm: bool = False
    kernel: Annotated[Positive, Field(ge=2)] = 2
    """Taps of a filter; with one tap no scale would reach further than another."""
    depth: Annotated[Positive, Field(le=30)] | None = None
    """Number of scales; None means the fewest that see the task's longest sequence from its end."""
    independent_skip: bool = False
    """Weights of the signal itself start uniform in (-1, 1), whatever the number of streams (ListOps)."""
    bidirectional: bool = False
    """Two blocks a layer with their own parameters, one over the reversed sequence; outputs are averaged."""
