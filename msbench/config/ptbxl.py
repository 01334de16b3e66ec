"""Which labels and which signals of PTB-XL."""

from typing import Annotated, Literal

from pydantic import Field

from msbench.config.dataset import DataConfig


class PtbXlConfig(DataConfig):
    """PTB-XL: electrocardiograms of 10 s with 12 leads, at 100 Hz.

    `labels` is one of the six sets of labels of Strodthoff et al. (2020), a task each. `rate` says which of
    the published signals are read: those at 100 Hz, or those at 500 Hz, which are then resampled to 100 Hz.
    `min_likelihood` in percent drops the diagnoses that were less sure; published results drop none. With
    `standardise` one mean and one deviation of all leads of the train split become 0 and 1, else signals are
    in mV.
    """

    dataset: Literal["ptbxl"] = "ptbxl"
    labels: Literal["all", "diagnostic", "subdiagnostic", "superdiagnostic", "form", "rhythm"] = "all"
    rate: Literal[100, 500] = 100
    min_likelihood: Annotated[float, Field(ge=0, le=100)] = 0.0
    standardise: bool = True
