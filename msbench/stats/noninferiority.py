"""Test of a mean over seeds against an expectation minus a margin: above, below or undecided.

One-sided t bounds of the mean are compared with the bound ``expected - margin``. Reported and measured values
from the same fixed test set share its noise, so that only the spread of seeds counts; if the test sets differ
(generated data), `sampling` adds their noise in quadrature.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from msbench.stats.proportion import check_confidence
from msbench.stats.summary import Pooled, Summary, summarise

State = Literal["above", "below", "undecided"]
MOST_SEEDS = 100
"""Larger numbers of seeds are not suggested."""


@dataclass(frozen=True)
class Noninferiority:
    """`low` and `high` are one-sided bounds of the mean, each at the requested confidence.

    They and `degrees` are None for a single value without a known spread. `error` is their standard error.
    """

    state: State
    mean: float
    low: float | None = None
    high: float | None = None
    error: float | None = None
    degrees: float | None = None


def decide_noninferiority(
    values: Sequence[float],
    bound: float,
    confidence: float = 0.95,
    pooled: Pooled | None = None,
    *,
    n_expected: int = 0,
    sampling: float = 0.0,
    step: float = 0.0,
) -> Noninferiority:
    """Compare the mean of `values`, one per seed, with `bound`: the expectation minus the margin.

    above if mean - t·error >= bound, below if mean + t·error < bound, else undecided, with error² = sd²/n +
    sampling² and t the quantile of Student's t at `confidence`: n - 1 degrees of freedom, those of `pooled`
    if its sd replaces the sample's, and Satterthwaite's (1946) with `sampling`, which counts as known. A
    single value without `pooled` is undecided, whatever it is. If the expectation is a mean over `n_expected`
    seeds with the same spread, sd² (1/n + 1/n_expected) replaces sd²/n.

    `step` is the distance between neighbouring values (1 / n_test for an accuracy): the sd is never taken
    below step/√12, that of rounding to it, so that few seeds which agree by chance on a small test set do not
    look noise-free. With a step of 0 identical values have no spread, and the mean alone decides.
    """
    check_confidence(confidence)
    from scipy.special import stdtrit

    found = summarise(values)
    estimated = _standard_error(found, pooled, step, n_expected, sampling)
    if estimated is None:
        return Noninferiority("undecided", found.mean)
    error, degrees = estimated
    half = float(stdtrit(degrees, confidence)) * error
    low, high = found.mean - half, found.mean + half
    state: State = "above" if low >= bound else "below" if high < bound else "undecided"
    return Noninferiority(state, found.mean, low, high, error, degrees)


def count_seeds_needed(
    values: Sequence[float],
    bound: float,
    confidence: float = 0.95,
    power: float = 0.8,
    pooled: Pooled | None = None,
    *,
    n_expected: int = 0,
    sampling: float = 0.0,
    step: float = 0.0,
) -> int | None:
    """Return how many more seeds like these decide with this power; 0 if these already do.

    The smallest N with P(T > t) >= power, T noncentral t with shift |mean - bound| / error(N): the power of
    the test over N fresh seeds, if mean and sd were the true ones. None if it cannot be determined: a single
    value without `pooled`, a mean on the bound, or more than `MOST_SEEDS` more.
    """
    found = summarise(values)
    now = decide_noninferiority(
        values, bound, confidence, pooled, n_expected=n_expected, sampling=sampling, step=step
    )
    if now.state != "undecided":
        return 0
    gap = abs(found.mean - bound)
    if now.low is None or gap == 0:
        return None
    for more in range(1, MOST_SEEDS + 1):
        larger = _standard_error(replace(found, n=found.n + more), pooled, step, n_expected, sampling)
        if larger is not None and compute_power(gap, *larger, confidence) >= power:
            return more
    return None


def compute_power(gap: float, error: float, degrees: float, confidence: float = 0.95) -> float:
    """Return the probability that a mean is decided to be above a bound when the true mean is `gap` above it.

    P(T >= t) for T noncentral t with shift gap / error, `error` the standard error of the difference.
    """
    from scipy.special import nctdtr, stdtrit

    return 1 - float(nctdtr(degrees, gap / error, stdtrit(degrees, confidence)))


def _standard_error(
    found: Summary, pooled: Pooled | None, step: float, n_expected: int, sampling: float
) -> tuple[float, float] | None:
    """Return the standard error and Satterthwaite's degrees of freedom of mean - bound; None if unknown."""
    sd, degrees = (found.sd, found.n - 1) if pooled is None else (pooled.sd, pooled.degrees)
    if sd is None:
        return None
    inverse = 1 / found.n + (1 / n_expected if n_expected else 0)
    between_seeds = max(sd, step / math.sqrt(12)) * math.sqrt(inverse)
    if not between_seeds:
        return sampling, math.inf if sampling else degrees
    error = math.hypot(between_seeds, sampling)
    # Squared as products: a power raises an error where it overflows.
    ratio = (error / between_seeds) * (error / between_seeds)
    return error, degrees * ratio * ratio
