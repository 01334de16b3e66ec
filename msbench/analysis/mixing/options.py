"""Options of the measure, every choice that the paper leaves open, and of the command that applies it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from msbench.config.base import Config, DataConfig, NonNegativeInt, PositiveInt
from msbench.config.layers import LocatedValues, validate
from msbench.config.strict_yaml import KeyPath

SAMPLE_SEED = 0
SAMPLE = (
    "the first of a permutation of the test split by NumPy's PCG64 from seed 0, in the split's order: of a"
    " dataset the same for every model, and part of any larger choice"
)
"""Description of `choose_sample`, for documents."""


class MeasureOptions(Config):
    """One definition of the measure; results are comparable if their options are equal.

    Parameters
    ----------
    examples : number of test examples, always the same ones (`choose_sample`)
    channels : number of output channels, always the same ones; None is all
    scope : ``layers`` each by itself, or the whole ``network`` from the encoder's output to the last norm's
    entries : how |J| of an output channel with all channels of a position becomes one weight: the sum of
        absolute values, their Euclidean norm, or the same channel's alone
    normaliser : ``absolute`` the sum of the weights; ``printed`` the same norm of the sum of J itself, as in
        the paper's formula, which gives no distribution
    residual : whether a layer includes its residual, which adds a spike at distance 0
    position : the output position, from 0; None is the last real one
    dtype : the precision of all computations
    on : the task of the suite whose test examples are used; None is the run's own
    """

    examples: PositiveInt = 64
    channels: PositiveInt | None = None
    scope: Literal["layers", "network"] = "layers"
    entries: Literal["l1", "l2", "same-channel"] = "l1"
    normaliser: Literal["absolute", "printed"] = "absolute"
    residual: bool = False
    position: NonNegativeInt | None = None
    dtype: Literal["float32", "float64"] = "float32"
    on: str | None = None

    @property
    def digest(self) -> str:
        """Return the sha256 of the canonical JSON, in hex."""
        text = json.dumps(self.describe(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return the options as JSON values; `on` only where it is set."""
        return self.model_dump(mode="json", exclude={"on"} if self.on is None else None)

    @property
    def is_default(self) -> bool:
        """Return True if this is the measure that is compared with the paper's table."""
        return self == MeasureOptions()


@dataclass(frozen=True, kw_only=True)
class MixingOptions:
    """The options of ``msbench mixing``; `suite` and `overrides` are those that selected the runs.

    `data` are those of the task `measure.on`, where it is set.
    """

    results: Path
    measure: MeasureOptions
    data: DataConfig | None = None
    trained: bool = True
    device: str = "auto"
    fresh: bool = False
    quiet: bool = False
    suite: str = ""
    overrides: tuple[str, ...] = ()


def parse_measure_options(flags: Mapping[str, Any]) -> MeasureOptions:
    """Return options from those of the command line's values; ConfigError names an invalid flag."""
    values = {name: value for name, value in flags.items() if name in MeasureOptions.model_fields}
    position = values.get("position", "last")
    values["position"] = None if position == "last" else _parse_number(position)
    origins: dict[KeyPath, str] = {(key,): f"--{key}" for key in values}
    return validate(MeasureOptions, LocatedValues(values, origins, "msbench mixing"))


def _parse_number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def choose_sample(available: int, count: int) -> NDArray[np.int64]:
    """Return `count` of the numbers below `available`, ascending; all if there are no more."""
    shuffled = np.random.Generator(np.random.PCG64(SAMPLE_SEED)).permutation(available)
    return np.sort(shuffled[:count]).astype(np.int64)
