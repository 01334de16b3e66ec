"""Labels and signals of PTB-XL."""

from typing import Annotated, Literal

from pydantic import Field

from msbench.config.dataset import DataConfig


class PtbXlConfig(DataConfig):
    """PTB-XL: electrocardiograms of 10 s with 12 leads, at 100 Hz.

    `labels` is one of the six sets of labels of Strodthoff et al. (2020), a task each. `rate` selects the
    published signals that are read: those at 100 Hz, or those at 500 Hz, which are then resampled to 100 Hz.
    `min_likelihood` in percent drops less certain diagnoses; published results drop none. With `standardise`
    signals have mean 0 and deviation 1 over all leads of the train split together, else they are in mV.
    """

    dataset: Literal["ptbxl"] = "ptbxl"
    labels: Literal["all", "diagnostic", "subdiagnostic", "superdiagnostic", "form", "rhythm"] = "all"
    rate: Literal[100, 500] = 100
    min_likelihood: Annotated[float, Field(ge=0, le=100)] = 0.0
    standardise: bool = True
