"""Numbers of settings, each with bounds: a record holds every one, and the product of any two counts.

Without bounds a value that no record can hold would be found after the training that it belongs to.
"""

from typing import Annotated

from pydantic import Field

MOST = 2**31
"""Above every size and count: two of them multiply to less than 2^63, the first number no record holds."""

Positive = Annotated[int, Field(ge=1, lt=MOST)]
Natural = Annotated[int, Field(ge=0, lt=MOST)]
DataSeed = Annotated[int, Field(ge=0, lt=2**63)]
"""Of what is drawn by a generator of our own, which takes any seed that a record holds."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""Below 2^32, as numpy's and torch's older generators want it."""

Amount = Annotated[float, Field(gt=0, le=1e100)]
"""What may still be squared and summed."""
Rate = Annotated[float, Field(ge=0, le=1e100)]
Factor = Annotated[float, Field(gt=0, le=1e6)]
"""A width in multiples of another, which stays a size that a record holds."""
Part = Annotated[float, Field(gt=0, lt=1)]
"""A fraction that leaves something on either side."""
Chance = Annotated[float, Field(ge=0, lt=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
