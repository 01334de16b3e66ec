import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_ind

from msbench.stats import mcnemar, welch

FIRST, SECOND = [0.612, 0.624, 0.633], [0.601, 0.603, 0.598, 0.611, 0.605]


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_it_is_welchs_test_of_scipy(confidence: float) -> None:
    found = welch(FIRST, SECOND, confidence)
    theirs = ttest_ind(FIRST, SECOND, equal_var=False)
    interval = theirs.confidence_interval(confidence)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-10)
    assert found.degrees == pytest.approx(theirs.df, rel=1e-10)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-10)
    assert found.difference == pytest.approx(np.mean(FIRST) - np.mean(SECOND))


def test_sides_can_be_exchanged() -> None:
    one, other = welch(FIRST, SECOND), welch(SECOND, FIRST)
    assert (other.difference, other.low, other.high) == (-one.difference, -one.high, -one.low)
    assert other.p == one.p


@pytest.mark.parametrize(("first", "second"), [([0.6], SECOND), (FIRST, [0.6]), ([], SECOND)])
def test_one_seed_on_a_side_is_refused(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match=r"two seeds or more|no values"):
        welch(first, second)


def test_without_any_spread_the_limits_are_given_and_steps_are_a_spread() -> None:
    assert welch([0.6, 0.6], [0.6, 0.6]).p == 1.0
    apart = welch([0.6, 0.6], [0.5, 0.5])
    assert (apart.p, apart.low) == (0.0, apart.difference)
    stepped = welch([0.6, 0.6], [0.5, 0.5], step=1 / 10)
    error = math.sqrt(2 * 0.1**2 / 12 / 2)
    assert 0.05 < stepped.p < 0.2
    assert stepped.high - stepped.low == pytest.approx(2 * 4.302652729696 * error)


def test_one_side_without_spread_counts_only_the_other() -> None:
    found = welch([0.6, 0.6, 0.6], SECOND)
    assert found.degrees == pytest.approx(4)


@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_the_binomial_test_of_scipy(first: int, second: int) -> None:
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_many_examples() -> None:
    assert mcnemar(25_000, 25_500) == pytest.approx(binomtest(25_000, 50_500).pvalue, rel=1e-9)
    assert mcnemar(0, 50_000) == 0.0
    with pytest.raises(ValueError, match="-1 examples"):
        mcnemar(-1, 5)


def test_exact_size_of_mcnemar() -> None:
    """Over all outcomes of 40 fair coins, it rejects in at most 5 %, and not in far fewer."""
    chance = [math.comb(40, k) / 2**40 for k in range(41)]
    size = sum(share for k, share in enumerate(chance) if mcnemar(k, 40 - k) <= 0.05)
    assert 0.03 < size <= 0.05


def test_size_and_coverage_of_welch_with_three_seeds() -> None:
    source = np.random.default_rng(0)
    found = [
        welch(list(source.normal(0.6, 0.004, 3)), list(source.normal(0.6, 0.01, 3))) for _ in range(4_000)
    ]
    size = np.mean([each.p < 0.05 for each in found])
    coverage = np.mean([each.low <= 0 <= each.high for each in found])
    assert size == pytest.approx(1 - coverage)
    # Satterthwaite's degrees of freedom are approximate: 3 seeds a side stay near 5 %, below or above.
    assert size == pytest.approx(0.05, abs=0.015)
