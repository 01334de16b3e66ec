"""What the values of a record have to be, where their type alone does not say it: others compute with them.

A record may come from elsewhere. What is refused when it is read costs a line; what is not ends the table
that it is one cell of.
"""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, FiniteFloat

from msbench.config.run import SECTIONS

RUN_ID = re.compile(r"[0-9a-f]{12}")
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
MAPPINGS = ("git", "packages", "cudnn", "container")
"""Parts of an environment that have parts of their own."""
LARGEST = 2**63


def check_plain(values: dict[str, Any]) -> dict[str, Any]:
    """`values` where every number is finite, and of 64 bits where it is whole."""
    if not _holds(values):
        raise ValueError("has a number that is not finite, or too large")
    return values


def check_spec(values: dict[str, Any]) -> dict[str, Any]:
    """`values` where the parts of a run's settings are settings."""
    for name in SECTIONS:
        if not isinstance(values.get(name) or {}, dict):
            raise ValueError(f"{name} is no mapping")
    return check_plain(values)


def _holds(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_holds, value.values()))
    if isinstance(value, list):
        return all(map(_holds, value))
    if isinstance(value, int):
        return abs(value) < LARGEST
    return not isinstance(value, float) or math.isfinite(value)


def check_environment(values: dict[str, Any]) -> dict[str, Any]:
    """`values` where its parts have the shape that they were written in."""
    for name in MAPPINGS:
        if not isinstance(values.get(name) or {}, dict):
            raise ValueError(f"{name} is no mapping")
    gpus = values.get("gpus") or []
    if not isinstance(gpus, list) or not all(isinstance(each, str) for each in gpus):
        raise ValueError("gpus are no list of names")
    return check_plain(values)


Spec = Annotated[dict[str, Any], AfterValidator(check_spec)]
Environment = Annotated[dict[str, Any], AfterValidator(check_environment)]
# Strict: of true and "0.6" pydantic would otherwise make the numbers 1.0 and 0.6.
Number = Annotated[FiniteFloat, Field(ge=-1e100, le=1e100, strict=True)]
"""What may still be squared and summed."""
Duration = Annotated[FiniteFloat, Field(ge=0, le=1e15, strict=True)]
"""Seconds, and what is counted in one."""
Fraction = Annotated[FiniteFloat, Field(ge=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=0, lt=LARGEST, strict=True)]
Size = Annotated[int, Field(ge=1, lt=LARGEST, strict=True)]
"""The number of examples of a split: there is no result on none."""
