"""The confidence interval of a rate, and the noise of a test set."""

import math
from dataclasses import dataclass

from msbench.stats.distributions import normal_quantile


@dataclass(frozen=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the interval of the rate from `successes` of `n` examples, for one run quoted on its own.

    The rates p with (rate - p)² <= z² p (1 - p) / n (Wilson 1927): unlike rate ± z·se it stays within 0 and
    1, and has a width even if all or none succeeded. ValueError for impossible counts.
    """
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n} examples cannot be")
    check_confidence(confidence)
    z = normal_quantile((1 + confidence) / 2)
    rate, shrink = successes / n, 1 + z**2 / n
    centre = (rate + z**2 / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high)


def sampling_sd(rate: float, n: int, n_expected: int | None = None) -> float:
    """Return the standard deviation of an accuracy near `rate`, a fraction, due to the draw of the test set.

    sqrt(rate (1 - rate) / n). With `n_expected`, that of the difference of two accuracies from independent
    test sets of `n` and `n_expected` examples. Do not use it if both are from the same test set: that noise
    is shared and cancels.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"{rate} is no rate between 0 and 1")
    inverse = 1 / n + (1 / n_expected if n_expected else 0)
    return math.sqrt(rate * (1 - rate) * inverse)


def check_confidence(confidence: float) -> None:
    """Raise ValueError for an invalid confidence, such as 95."""
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must be between 0.5 and 1, such as 0.95, not {confidence}")
