import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_ind

from msbench.stats.difference import find_detectable_difference, holm, mcnemar, welch

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


@pytest.mark.parametrize("n", [3, 5])
def test_a_detectable_difference_is_detected_so_often(n: int) -> None:
    """Simulated with equal spreads, where Welch's degrees of freedom vary little."""
    rng = np.random.default_rng(0)
    sd, draws = 0.01, 20_000
    # Values with exactly this mean and spread, and the degrees of freedom of the test that knows them.
    spread = np.linspace(-1, 1, n)
    values = list(0.6 + spread / spread.std(ddof=1) * sd)
    least = find_detectable_difference(welch(values, values))
    first, second = rng.normal(0.6 + least, sd, (draws, n)), rng.normal(0.6, sd, (draws, n))
    found = ttest_ind(first, second, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.015)


def test_without_spread_any_difference_is_detectable() -> None:
    assert find_detectable_difference(welch([0.6, 0.6, 0.6], [0.5, 0.5, 0.5])) == 0


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
    with pytest.raises(ValueError, match="-1 is no number of examples"):
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


PROBABILITIES = st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=12)


@given(PROBABILITIES)
def test_adjusted_values_are_larger_in_the_same_order_and_probabilities(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    assert list(adjusted) == list(p_values)
    for key, p in p_values.items():
        assert p <= adjusted[key] <= min(1.0, len(p_values) * p) or adjusted[key] == p
    ranked = sorted(p_values, key=lambda key: p_values[key])
    assert [adjusted[key] for key in ranked] == sorted(adjusted.values())


@given(PROBABILITIES)
def test_the_smallest_is_that_of_bonferroni(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    key = min(p_values, key=lambda each: p_values[each])
    assert adjusted[key] == min(1.0, len(p_values) * p_values[key])


def test_holm_by_hand() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_holm_of_none_of_one_and_of_invalid_values() -> None:
    assert holm({}) == {}
    assert holm({("msssm", "text"): 0.2}) == {("msssm", "text"): 0.2}
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"text: .* is no probability"):
            holm({"image": 0.5, "text": bad})


def test_a_false_difference_among_many_comes_in_one_table_of_twenty() -> None:
    source, tables = np.random.default_rng(0), 4_000
    drawn = source.random((tables, 8))
    wrong = np.mean([min(holm(dict(enumerate(row))).values()) <= 0.05 for row in drawn.tolist()])
    assert wrong == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / tables))
    assert np.mean(drawn.min(axis=1) <= 0.05) > 0.3, "without it, in one of three"
