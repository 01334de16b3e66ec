"""Correction for multiple comparisons."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def holm(p_values: Mapping[Key, float]) -> dict[Key, float]:
    """Return Holm's (1979) adjusted p-values, under the same keys and in their order.

    The k-th smallest of m is multiplied by m - k + 1, then none is left below the previous one or above 1.
    Those below 0.05 afterwards may be called differences: the chance of a single false one among all is at
    most 0.05, whatever their dependence. ValueError for a value that is not a probability.
    """
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for rank, key in enumerate(sorted(p_values, key=lambda each: p_values[each])):
        p = p_values[key]
        if not 0 <= p <= 1:
            raise ValueError(f"{key}: {p} is no probability")
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        adjusted[key] = largest
    return {key: adjusted[key] for key in p_values}
