"""Tests of the difference between two models, over seeds or example by example on one test set."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from msbench.stats.distributions import half_binomial_below, t_quantile, t_two_sided
from msbench.stats.proportion import check_confidence
from msbench.stats.summary import Summary, summary


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
    fewer than two values on a side. `step` is that of `noninferiority`: no sd is taken below step/√12. With a
    step of 0 and no spread on either side p is 1 for equal means and 0 for others, the limits of the formula.
    """
    check_confidence(confidence)
    ours, theirs = summary(first), summary(second)
    variances = [_variance(each, step) for each in (ours, theirs)]
    difference, total = ours.mean - theirs.mean, sum(variances)
    if not total:
        return Difference(difference, difference, difference, float(difference == 0), ours.n + theirs.n - 2)
    shares = [variance / total for variance in variances]
    degrees = 1 / (shares[0] ** 2 / (ours.n - 1) + shares[1] ** 2 / (theirs.n - 1))
    error = math.sqrt(total)
    half = t_quantile((1 + confidence) / 2, degrees) * error
    p = t_two_sided(difference / error, degrees)
    return Difference(difference, difference - half, difference + half, p, degrees)


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
        raise ValueError(f"{min(only_first, only_second)} examples cannot be")
    fewer = min(only_first, only_second)
    return min(1.0, 2 * half_binomial_below(fewer, only_first + only_second))
