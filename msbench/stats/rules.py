"""Trivial rules (majority class, root operator only, ...): whether a model has learned more than these."""

import math
from collections.abc import Mapping

from msbench.stats import sampling_sd


def standard_error(rate: float, n_test: int, sd: float | None, n: int) -> float:
    """Return the standard error, as a fraction, of a mean accuracy near `rate`.

    Seeds share the test split, so the binomial part does not shrink with `n`; the spread `sd` of seeds does.
    """
    between_seeds = 0.0 if sd is None else sd / math.sqrt(n)
    return math.hypot(sampling_sd(rate, n_test), between_seeds)


def learned_rule(
    mean: float, sd: float | None, n: int, n_test: int, rules: Mapping[str, float]
) -> str | None:
    """Return the trivial rule that explains a mean accuracy, or None if the model beats or misses them all.

    A rule explains a mean within two standard errors of it; the weakest rule also explains all below it.
    `mean`, `sd` and the rules are fractions.
    """
    if not rules:
        return None
    margin = {name: 2 * standard_error(rate, n_test, sd, n) for name, rate in rules.items()}
    weakest = min(rules, key=lambda name: rules[name])
    if mean <= rules[weakest] + margin[weakest]:
        return weakest
    near = [name for name, rate in rules.items() if abs(mean - rate) <= margin[name]]
    return min(near, key=lambda name: abs(mean - rules[name]), default=None)
