"""Validated types for the fields of a record, beyond what plain types check.

A record may come from another machine. A bad value refused on reading costs one warning; a bad value let
through would break the whole table that uses it.
"""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, FiniteFloat

from msbench.config.run import SECTIONS

RUN_ID = re.compile(r"[0-9a-f]{12}")
RunId = Annotated[str, Field(pattern=f"^{RUN_ID.pattern}$")]
MAPPINGS = ("git", "packages", "cudnn", "container")
"""Environment entries that are mappings themselves."""
LARGEST = 2**63


def check_plain(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` if all numbers are finite and integers fit in 64 bits; raise ValueError if not."""
    if not _holds(values):
        raise ValueError("has a number that is not finite, or too large")
    return values


def check_spec(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` if every section of a run's settings is a mapping; raise ValueError if not."""
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
    """Return `values` if its entries have the types that msbench writes; raise ValueError if not."""
    for name in MAPPINGS:
        if not isinstance(values.get(name) or {}, dict):
            raise ValueError(f"{name} is no mapping")
    gpus = values.get("gpus") or []
    if not isinstance(gpus, list) or not all(isinstance(each, str) for each in gpus):
        raise ValueError("gpus are no list of names")
    return check_plain(values)


Spec = Annotated[dict[str, Any], AfterValidator(check_spec)]
Environment = Annotated[dict[str, Any], AfterValidator(check_environment)]
# Strict: pydantic would otherwise convert true and "0.6" to the numbers 1.0 and 0.6.
Number = Annotated[FiniteFloat, Field(ge=-1e100, le=1e100, strict=True)]
"""A number that can be squared and summed without overflow."""
Duration = Annotated[FiniteFloat, Field(ge=0, le=1e15, strict=True)]
"""Seconds, or a rate per second."""
Fraction = Annotated[FiniteFloat, Field(ge=0, le=1, strict=True)]
Count = Annotated[int, Field(ge=0, lt=LARGEST, strict=True)]
Size = Annotated[int, Field(ge=1, lt=LARGEST, strict=True)]
"""The number of examples of a split: at least one, as there is no result on none."""
