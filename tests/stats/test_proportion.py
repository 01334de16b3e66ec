import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from msbench.stats.proportion import (
    Interval,
    compute_sampling_sd,
    compute_standard_error,
    find_unbeaten_rule,
    wilson,
)


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize(
    ("successes", "n"), [(0, 1), (1, 1), (0, 50), (50, 50), (1, 50), (22, 50), (1240, 2000), (49_999, 50_000)]
)
def test_it_is_that_of_scipy(successes: int, n: int, confidence: float) -> None:
    theirs = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    found = wilson(successes, n, confidence)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), rel=1e-10, abs=1e-15)


def test_it_ends_at_0_and_1_exactly() -> None:
    assert wilson(0, 7).low == 0.0
    assert wilson(7, 7).high == 1.0


def test_half_widths_of_the_benchmarks() -> None:
    """Those of facts that others state: ListOps, 2,000 examples, ± 2.13 points at 62 %."""
    found = wilson(1240, 2000)
    assert (found.high - found.low) / 2 == pytest.approx(0.0213, abs=5e-5)


@pytest.mark.parametrize(("successes", "n"), [(-1, 10), (11, 10), (0, 0)])
def test_counts_that_cannot_be(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="is impossible"):
        wilson(successes, n)


@pytest.mark.parametrize("confidence", [0.0, 0.5, 1.0, 95.0])
def test_a_confidence_that_is_none(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence must be between"):
        wilson(5, 10, confidence)


def test_average_coverage_is_the_confidence() -> None:
    """Exact, by summing over all counts: close to 95 % on average over rates, unlike rate ± 1.96 se."""
    n, rates = 60, np.linspace(0.02, 0.98, 97)
    intervals = [wilson(successes, n) for successes in range(n + 1)]
    simple = [_simple(successes, n) for successes in range(n + 1)]
    assert _coverage(intervals, n, rates) == pytest.approx(0.95, abs=0.006)
    assert _coverage(simple, n, rates) < 0.93


def _simple(successes: int, n: int) -> Interval:
    rate = successes / n
    half = 1.96 * math.sqrt(rate * (1 - rate) / n)
    return Interval(rate - half, rate + half)


def _coverage(intervals: list[Interval], n: int, rates: np.ndarray) -> float:
    lows, highs = np.array([(each.low, each.high) for each in intervals]).T
    within = (lows[:, None] <= rates) & (rates <= highs[:, None])
    return float((binom.pmf(np.arange(n + 1)[:, None], n, rates) * within).sum(axis=0).mean())


def test_noise_of_a_test_set_is_binomial() -> None:
    assert compute_sampling_sd(0.62, 2000) == pytest.approx(binom.std(2000, 0.62) / 2000)
    source = np.random.default_rng(0)
    ours, theirs = source.binomial(2000, 0.62, 20_000) / 2000, source.binomial(500, 0.62, 20_000) / 500
    assert np.std(ours - theirs) == pytest.approx(compute_sampling_sd(0.62, 2000, 500), rel=0.02)


def test_percent_are_refused_as_rates() -> None:
    with pytest.raises(ValueError, match="62 is no rate"):
        compute_sampling_sd(62, 2000)


RULES = {"majority": 0.17, "root operator only": 0.363}


def test_the_error_is_binomial_for_one_seed_and_adds_the_spread_for_more() -> None:
    binomial = math.sqrt(0.363 * 0.637 / 2000)
    assert compute_standard_error(0.363, 2000, None, 1) == pytest.approx(binomial)
    assert compute_standard_error(0.363, 2000, 0.03, 3) == pytest.approx(
        math.hypot(binomial, 0.03 / math.sqrt(3))
    )


@pytest.mark.parametrize(
    ("mean", "rule"),
    [
        (0.0, "majority"),
        (0.10, "majority"),
        (0.186, "majority"),
        (0.188, "root operator only"),
        (0.34, "root operator only"),
        (0.342, "root operator only"),
        (0.384, "root operator only"),
        (0.385, None),
        (0.63, None),
    ],
)
def test_a_mean_at_or_below_a_rule_does_not_beat_it(mean: float, rule: str | None) -> None:
    """Two standard errors at 2,000 examples are 1.68 points at majority and 2.15 at root operator only."""
    assert find_unbeaten_rule(mean, None, 1, 2000, RULES) == rule


def test_a_wide_spread_over_seeds_widens_the_margin() -> None:
    assert find_unbeaten_rule(0.40, None, 1, 2000, RULES) is None
    assert find_unbeaten_rule(0.40, 0.05, 3, 2000, RULES) == "root operator only"


def test_of_two_rules_in_reach_the_nearer_counts() -> None:
    rules = {"majority": 0.1, "one": 0.40, "two": 0.42}
    assert find_unbeaten_rule(0.412, None, 1, 500, rules) == "two"
    assert find_unbeaten_rule(0.407, None, 1, 500, rules) == "one"


def test_below_all_rules_in_reach_the_next_above_counts() -> None:
    rules = {"majority": 0.1, "one": 0.4, "two": 0.6, "three": 0.8}
    assert find_unbeaten_rule(0.5, None, 1, 2000, rules) == "two"
    assert find_unbeaten_rule(0.7, None, 1, 2000, rules) == "three"


def test_no_rules_explain_nothing() -> None:
    assert find_unbeaten_rule(0.1, None, 1, 2000, {}) is None
