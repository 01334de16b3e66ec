"""The paired bootstrap of a difference in accuracy on one test set."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msbench.stats.proportion import Interval, check_confidence


@dataclass(frozen=True)
class Paired:
    """First minus second, its percentile interval, and the two-sided p-value of no difference."""

    difference: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first_correct: NDArray[np.bool_],
    second_correct: NDArray[np.bool_],
    seed: int,
    draws: int = 10_000,
    confidence: float = 0.95,
) -> Paired:
    """Return the difference in accuracy of two models on the same examples (n,), resampled in pairs.

    An example counts as +1 (only the first is right), -1 (only the second) or 0, and the difference of a
    sample depends only on how many of each it has. Drawing n examples with replacement and counting them is
    drawing from the multinomial distribution over the three with the observed shares: exactly the same
    bootstrap, in memory of three numbers per draw. ValueError for unequal numbers of examples, or none.
    """
    if first_correct.shape != second_correct.shape or first_correct.ndim != 1 or not len(first_correct):
        raise ValueError(f"{first_correct.shape} and {second_correct.shape} answers are no pairs")
    n = len(first_correct)
    gained = int((first_correct & ~second_correct).sum())
    lost = int((~first_correct & second_correct).sum())
    shares = np.array([gained, lost, n - gained - lost]) / n
    counts = np.random.default_rng(seed).multinomial(n, shares, size=draws)
    return percentiles((gained - lost) / n, (counts[:, 0] - counts[:, 1]) / n, confidence)


def percentiles(difference: float, drawn: NDArray[np.float64], confidence: float) -> Paired:
    """Return interval and p-value from resampled differences (draws,).

    p is twice the smaller share of draws on or beyond 0, with the observed sample counted as one more draw in
    each: p is never 0 (Davison and Hinkley 1997).
    """
    found = percentile_interval(drawn, confidence)
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (len(drawn) + 1))
    return Paired(difference, found.low, found.high, p)


def percentile_interval(drawn: NDArray[np.float64], confidence: float) -> Interval:
    """Return Efron's (1979) percentile interval of resampled values (draws,)."""
    check_confidence(confidence)
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(float(low), float(high))
