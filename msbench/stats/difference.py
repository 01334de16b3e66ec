"""Tests of the difference between two models, over seeds or example by example, and of many at once."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msbench.stats.proportion import check_confidence
from msbench.stats.summary import Summary, summarise

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """First minus second, its two-sided confidence interval, and the p-value of no difference."""

    difference: float
    low: float
    high: float
    p: float
    degrees: float


def welch(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95, *, step: float = 0.0
) -> Difference:
    """Apply Welch's (1947) two-sided t-test to means over seeds, whose spreads may differ.

    t = difference / error, error² = sd₁²/n₁ + sd₂²/n₂, degrees of freedom by Satterthwaite. ValueError for
    fewer than two values on a side. `step` is that of `decide_noninferiority`: no sd is taken below step/√12.
    With a step of 0 and no spread on either side p is 1 for equal means and 0 for others, the limits of the
    formula.
    """
    from scipy.special import stdtr, stdtrit

    check_confidence(confidence)
    ours, theirs = summarise(first), summarise(second)
    variances = [_variance(each, step) for each in (ours, theirs)]
    difference, total = ours.mean - theirs.mean, sum(variances)
    if not total:
        return Difference(difference, difference, difference, float(difference == 0), ours.n + theirs.n - 2)
    shares = [variance / total for variance in variances]
    degrees = 1 / (shares[0] ** 2 / (ours.n - 1) + shares[1] ** 2 / (theirs.n - 1))
    error = math.sqrt(total)
    half = float(stdtrit(degrees, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(degrees, -abs(difference / error)))
    return Difference(difference, difference - half, difference + half, p, degrees)


def find_detectable_difference(found: Difference, power: float = 0.8, confidence: float = 0.95) -> float:
    """Return the true difference that Welch's test would find with probability `power` with as many seeds.

    `found` is a result of `welch` with the same confidence. Its standard error is taken as the true one: the
    difference is so many of them as shift the noncentral t-distribution beyond the two-sided critical value.
    """
    from scipy.special import nctdtrinc, stdtrit

    critical = float(stdtrit(found.degrees, (1 + confidence) / 2))
    return (found.high - found.low) / 2 / critical * float(nctdtrinc(found.degrees, 1 - power, critical))


def _variance(found: Summary, step: float) -> float:
    """Return the variance of the mean."""
    if found.sd is None:
        raise ValueError("Welch's test needs two seeds or more on both sides")
    return max(found.sd**2, step**2 / 12) / found.n


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided p-value of McNemar's (1947) exact test of two models on the same examples.

    The arguments count the examples that only the one or only the other has right. If the models are equally
    good, each of those falls to either side like a fair coin; examples that both have right, or both wrong,
    carry no information. 1 if there are none.
    """
    if only_first < 0 or only_second < 0:
        raise ValueError(f"{min(only_first, only_second)} is no number of examples")
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(only_first, only_second), only_first + only_second, 0.5)))


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
