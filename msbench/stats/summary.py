"""Number, mean and spread of the seeds of one cell, and the spread that several cells share."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msbench.stats.proportion import Interval, check_confidence


@dataclass(frozen=True)
class Summary:
    """Number, mean and sd of values: `sd` is that of the sample (divisor n - 1); None for a single value."""

    n: int
    mean: float
    sd: float | None


@dataclass(frozen=True)
class Pooled:
    """A standard deviation from several groups, with its degrees of freedom."""

    sd: float
    degrees: int


def compute_sd(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (divisor n - 1), or None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def compute_mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """Return the interval of the mean by Student's t with n - 1 degrees of freedom; None below two values."""
    check_confidence(confidence)
    if len(values) < 2:
        return None
    from scipy.special import stdtrit

    half = (
        float(stdtrit(len(values) - 1, (1 + confidence) / 2))
        * statistics.stdev(values)
        / math.sqrt(len(values))
    )
    mean = statistics.fmean(values)
    return Interval(mean - half, mean + half)


def summarise(values: Iterable[float]) -> Summary:
    """Summarise one value or more; ValueError if there is none or one is not finite.

    Exact in rational arithmetic and rounded once, so that identical values have exactly their value as mean
    and exactly 0 as sd.
    """
    found = list(values)
    if not found:
        raise ValueError("no values")
    for value in found:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no finite value")
    return Summary(len(found), statistics.mean(found), compute_sd(found))


def pool_sd(groups: Iterable[Sequence[float]]) -> Pooled | None:
    """Return the spread that groups of seeds share, each about its own mean; None if no group has two values.

    sd² = Σ (n_g - 1) sd_g² / Σ (n_g - 1): the within-group mean square of a one-way analysis of variance. It
    assumes that the spread is the same in all groups. Groups of fewer than two values contribute nothing.
    """
    found = [summarise(group) for group in groups if len(group) > 1]
    degrees = sum(each.n - 1 for each in found)
    if not degrees:
        return None
    squares = math.fsum((each.n - 1) * each.sd**2 for each in found if each.sd is not None)
    return Pooled(math.sqrt(squares / degrees), degrees)
