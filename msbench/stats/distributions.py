"""Quantiles and tails of the normal, t, noncentral t and binomial distributions.

Imports scipy.special inside the functions that need it: scipy.stats would take seconds to import, and other
functions need neither.
"""

import math
from statistics import NormalDist


def normal_quantile(probability: float) -> float:
    """Return the value below which a standard normal variable lies with this probability."""
    return NormalDist().inv_cdf(probability)


def t_quantile(probability: float, degrees: float) -> float:
    """Return the quantile of Student's t with these degrees of freedom, which may be infinite."""
    from scipy.special import stdtrit

    return normal_quantile(probability) if math.isinf(degrees) else float(stdtrit(degrees, probability))


def t_two_sided(t: float, degrees: float) -> float:
    """Return the probability of a t at least as far from 0."""
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -abs(t)))


def noncentral_t_above(t: float, degrees: float, shift: float) -> float:
    """Return the probability that t with noncentrality `shift` exceeds `t`."""
    from scipy.special import nctdtr

    if math.isinf(degrees):
        return NormalDist().cdf(shift - t)
    return 1 - float(nctdtr(degrees, shift, t))


def half_binomial_below(successes: int, n: int) -> float:
    """Return P(at most `successes` of `n` fair coins), as a regularised incomplete beta function."""
    from scipy.special import betainc

    return 1.0 if successes >= n else float(betainc(n - successes, successes + 1, 0.5))
