"""Accuracy on a test set: its confidence interval, its noise, and the trivial rules that may explain it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist


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
        raise ValueError(f"{successes} successes of {n} examples is impossible")
    check_confidence(confidence)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, shrink = successes / n, 1 + z**2 / n
    centre = (rate + z**2 / (2 * n)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(low, high)


def compute_sampling_sd(rate: float, n: int, n_expected: int | None = None) -> float:
    """Return the standard deviation of an accuracy near `rate`, a fraction, due to the draw of the test set.

    sqrt(rate (1 - rate) / n). With `n_expected`, that of the difference of two accuracies from independent
    test sets of `n` and `n_expected` examples. Do not use it if both are from the same test set: that noise
    is shared and cancels.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"{rate} is no rate between 0 and 1")
    inverse = 1 / n + (1 / n_expected if n_expected else 0)
    return math.sqrt(rate * (1 - rate) * inverse)


def compute_standard_error(rate: float, n_test: int, sd: float | None, n: int) -> float:
    """Return the standard error, as a fraction, of a mean accuracy near `rate`.

    Seeds share the test split, so the binomial part does not shrink with `n`; the spread `sd` of seeds does.
    """
    between_seeds = 0.0 if sd is None else sd / math.sqrt(n)
    return math.hypot(compute_sampling_sd(rate, n_test), between_seeds)


def find_unbeaten_rule(
    mean: float, sd: float | None, n: int, n_test: int, rules: Mapping[str, float]
) -> str | None:
    """Return the trivial rule that a mean accuracy does not beat, or None if it beats them all.

    It beats a rule by more than two standard errors. The rule is the nearest within that, else the next one
    above the mean. `mean`, `sd` and the rules are fractions.
    """
    if not rules:
        return None
    margin = {name: 2 * compute_standard_error(rate, n_test, sd, n) for name, rate in rules.items()}
    weakest = min(rules, key=lambda name: rules[name])
    if mean <= rules[weakest] + margin[weakest]:
        return weakest
    near = [name for name, rate in rules.items() if abs(mean - rate) <= margin[name]]
    above = [name for name, rate in rules.items() if rate > mean]
    return min(near or above, key=lambda name: abs(mean - rules[name]), default=None)


def check_confidence(confidence: float) -> None:
    """Raise ValueError for an invalid confidence, such as 95."""
    if not 0.5 < confidence < 1:
        raise ValueError(f"confidence must be between 0.5 and 1, such as 0.95, not {confidence}")
