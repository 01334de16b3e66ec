"""Options of the measure: every choice that the paper leaves open, with our reading as the default."""

import hashlib
import json
from typing import Any, Literal

from msbench.config.base import Config, NonNegativeInt, PositiveInt
from msbench.config.layers import Located, validate
from msbench.config.strict_yaml import KeyPath

Entries = Literal["l1", "l2", "same-channel"]
Normaliser = Literal["absolute", "printed"]


class Options(Config):
    """One definition of the measure; results are comparable if their options are equal.

    Parameters
    ----------
    examples : number of test examples, always the same ones (`msbench.analysis.mixing.sample`)
    channels : number of output channels, always the same ones; None is all
    scope : ``layers`` each by itself, or the whole ``network`` from the encoder's output to the last norm's
    entries : how |J| of an output channel with all channels of a position becomes one weight: the sum of
        absolute values, their Euclidean norm, or the same channel's alone
    normaliser : ``absolute`` the sum of the weights; ``printed`` the same norm of the sum of J itself, as in
        the paper's formula, which gives no distribution
    residual : whether a layer includes its residual, which adds a spike at distance 0
    position : the output position, from 0; None is the last real one
    dtype : the precision of all computations
    """

    examples: PositiveInt = 64
    channels: PositiveInt | None = None
    scope: Literal["layers", "network"] = "layers"
    entries: Entries = "l1"
    normaliser: Normaliser = "absolute"
    residual: bool = False
    position: NonNegativeInt | None = None
    dtype: Literal["float32", "float64"] = "float32"

    @property
    def digest(self) -> str:
        """Return the sha256 of the canonical JSON, in hex."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def default(self) -> bool:
        """Return True if this is the measure that is compared with the paper's table."""
        return self == Options()


def from_command_line(position: str = "last", **typed: Any) -> Options:
    """Return options from the command line; ConfigError names an invalid flag."""
    values = {**typed, "position": None if position == "last" else _number(position)}
    origins: dict[KeyPath, str] = {(key,): f"--{key}" for key in values}
    return validate(Options, Located(values, origins, "msbench mixing"))


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text
