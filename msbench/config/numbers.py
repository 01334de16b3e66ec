"""Bounded numbers of settings: a record can hold each of them, and the product of any two counts.

Without bounds, a value that no record can hold would only be found after its training.
"""

from typing import Annotated

from pydantic import Field

MOST = 2**31
"""Limit of sizes and counts: products of two are below 2^63, the first number that no record can hold."""

Positive = Annotated[int, Field(ge=1, lt=MOST)]
Natural = Annotated[int, Field(ge=0, lt=MOST)]
DataSeed = Annotated[int, Field(ge=0, lt=2**63)]
"""Seed of msbench's own data generators, which take any seed that a record can hold."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""Seed below 2^32, as numpy's and torch's older generators require."""

Amount = Annotated[float, Field(gt=0, le=1e100)]
"""A number that can be squared and summed without overflow."""
Rate = Annotated[float, Field(ge=0, le=1e100)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
"""A width in multiples of another, which stays a size that a record can hold."""
Part = Annotated[float, Field(gt=0, lt=1)]
"""A fraction strictly between 0 and 1."""
Chance = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
