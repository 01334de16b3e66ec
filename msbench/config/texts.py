"""Datasets of texts that a model reads character by character, or byte by byte."""

from typing import Literal, Self

from pydantic import model_validator

from msbench.config.dataset import DataConfig
from msbench.config.numbers import DataSeed, Part, Positive


class TextConfig(DataConfig):
    """Tokenisation of texts.

    `tokens` are ``characters``: Unicode ones, case kept, as in S4 and S5; or ``bytes``, as in Long Range
    Arena. The first `max_length` tokens of a text are kept, including the ``<eos>`` at its end.
    """

    tokens: Literal["characters", "bytes"] = "characters"
    max_length: Positive = 4096
    eos: bool = True
    """End each text in ``<eos>``. Long Range Arena's bytes have none."""
    min_frequency: Positive = 1
    """Characters with fewer occurrences in training texts share one token: unknown. Bytes are all known."""

    @model_validator(mode="after")
    def _some_text_is_left(self) -> Self:
        if self.eos and self.max_length < 2:
            raise ValueError(f"max_length {self.max_length} has room for <eos> alone; set eos to false")
        return self

    @model_validator(mode="after")
    def _every_option_acts(self) -> Self:
        if self.tokens == "bytes" and self.changed(["min_frequency"]):
            raise ValueError("min_frequency counts characters; with tokens: bytes leave it out")
        return self


class ImdbConfig(TextConfig):
    """Long Range Arena's Text: is a film review positive? Defaults are the set-up of S4 and S5.

    Validation is `validation`, a fraction, of the published training half, the same for a `split_seed`
    on every machine; the published test half is the test split.
    """

    dataset: Literal["imdb"] = "imdb"
    min_frequency: Positive = 15
    validation: Part = 0.1
    split_seed: DataSeed = 0


class AanConfig(TextConfig):
    """Long Range Arena's Retrieval: does one paper cite the other? Defaults are the set-up of S4 and S5."""

    dataset: Literal["aan"] = "aan"
    max_length: Positive = 4000
