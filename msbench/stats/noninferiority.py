"""Test of a mean over seeds against an expectation minus a margin: above, below or undecided.

One-sided t bounds of the mean are compared with the bound ``expected - margin``. Reported and measured values
from the same fixed test set share its noise, so that only the spread of seeds counts; if the test sets differ
(generated data), `sampling` adds their noise in quadrature.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from msbench.stats.distributions import noncentral_t_above, t_quantile
from msbench.stats.proportion import check_confidence
from msbench.stats.summary import Pooled, Summary, summary

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


@dataclass(frozen=True)
class _Part:
    """One independent part of the variance of a difference, with its degrees of freedom."""

    variance: float
    degrees: float = math.inf


def noninferiority(
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
    found = summary(values)
    own = _own(found, pooled, step, n_expected)
    if own is None:
        return Noninferiority("undecided", found.mean)
    return _decided(found.mean, bound, confidence, [own, _Part(sampling**2)])


def seeds_needed(
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
    found = summary(values)
    now = noninferiority(
        values, bound, confidence, pooled, n_expected=n_expected, sampling=sampling, step=step
    )
    if now.state != "undecided":
        return 0
    gap = abs(found.mean - bound)
    if now.low is None or gap == 0:
        return None
    for more in range(1, MOST_SEEDS + 1):
        own = _own(replace(found, n=found.n + more), pooled, step, n_expected)
        if own is not None and _power(gap, confidence, [own, _Part(sampling**2)]) >= power:
            return more
    return None


def _own(found: Summary, pooled: Pooled | None, step: float, n_expected: int) -> _Part | None:
    sd, degrees = (found.sd, found.n - 1) if pooled is None else (pooled.sd, pooled.degrees)
    if sd is None:
        return None
    inverse = 1 / found.n + (1 / n_expected if n_expected else 0)
    return _Part(max(sd, step / math.sqrt(12)) ** 2 * inverse, degrees)


def _combined(parts: Sequence[_Part]) -> tuple[float, float]:
    """Return standard error and Satterthwaite's degrees of freedom of a sum of independent parts."""
    # Divided by the largest first: the square of a small variance would underflow to 0.
    largest = max(part.variance for part in parts)
    if not largest:
        return 0.0, min(part.degrees for part in parts)
    shares = [(part.variance / largest, part.degrees) for part in parts]
    total = sum(share for share, _ in shares)
    unsure = sum(share**2 / degrees for share, degrees in shares)
    return math.sqrt(largest * total), total**2 / unsure if unsure else math.inf


def _decided(mean: float, bound: float, confidence: float, parts: Sequence[_Part]) -> Noninferiority:
    error, degrees = _combined(parts)
    half = t_quantile(confidence, degrees) * error
    low, high = mean - half, mean + half
    state: State = "above" if low >= bound else "below" if high < bound else "undecided"
    return Noninferiority(state, mean, low, high, error, degrees)


def _power(gap: float, confidence: float, parts: Sequence[_Part]) -> float:
    error, degrees = _combined(parts)
    return noncentral_t_above(t_quantile(confidence, degrees), degrees, gap / error)
