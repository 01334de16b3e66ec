import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from msbench.stats.noninferiority import MOST_SEEDS, compute_power, count_seeds_needed, decide_noninferiority
from msbench.stats.summary import Pooled

SEEDS = [0.612, 0.624, 0.633, 0.608]


@pytest.mark.parametrize("bound", [0.58, 0.6, 0.615, 0.64, 0.66])
def test_it_is_the_one_sided_t_test_of_scipy(bound: float) -> None:
    below_it = stats.ttest_1samp(SEEDS, bound, alternative="greater").pvalue
    above_it = stats.ttest_1samp(SEEDS, bound, alternative="less").pvalue
    expected = "above" if below_it <= 0.05 else "below" if above_it < 0.05 else "undecided"
    found = decide_noninferiority(SEEDS, bound)
    interval = stats.ttest_1samp(SEEDS, bound).confidence_interval(0.90)
    assert found.state == expected
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.degrees == 3


def test_the_three_states_are_all_reached() -> None:
    assert [decide_noninferiority(SEEDS, bound).state for bound in (0.58, 0.615, 0.66)] == [
        "above",
        "undecided",
        "below",
    ]


@given(st.floats(-1, 1), st.floats(-1, 1))
def test_one_value_decides_nothing(value: float, bound: float) -> None:
    found = decide_noninferiority([value], bound)
    assert (found.state, found.low, found.high, found.degrees) == ("undecided", None, None, None)


def test_a_pooled_spread_lets_one_value_decide() -> None:
    pooled = Pooled(0.004, 12)
    found = decide_noninferiority([0.62], 0.61, pooled=pooled)
    assert found.state == "above"
    assert found.low == pytest.approx(0.62 - stats.t.ppf(0.95, 12) * 0.004)
    assert decide_noninferiority([0.62], 0.615, pooled=pooled).state == "undecided"
    assert decide_noninferiority([0.62], 0.63, pooled=pooled).state == "below"


def test_a_pooled_spread_replaces_that_of_the_seeds() -> None:
    found = decide_noninferiority(SEEDS, 0.6, pooled=Pooled(0.05, 20))
    assert found.error == pytest.approx(0.05 / 2)
    assert found.degrees == 20


def test_identical_values_decide_by_their_mean_unless_they_come_in_steps() -> None:
    same = [0.7, 0.7, 0.7]
    assert decide_noninferiority(same, 0.7).state == "above"
    assert decide_noninferiority(same, math.nextafter(0.7, 1)).state == "below"
    stepped = decide_noninferiority(same, 0.7, step=1 / 100)
    assert stepped.state == "undecided"
    assert stepped.error == pytest.approx(0.01 / math.sqrt(12) / math.sqrt(3))
    assert decide_noninferiority(SEEDS, 0.6, step=1e-6) == decide_noninferiority(SEEDS, 0.6)


def test_noise_of_another_test_set_is_added_and_does_not_shrink_with_seeds() -> None:
    variance = stats.tvar(SEEDS) / 4
    found = decide_noninferiority(SEEDS, 0.6, sampling=0.01)
    assert found.error == pytest.approx(math.sqrt(variance + 0.01**2))
    assert found.degrees == pytest.approx((variance + 0.01**2) ** 2 / (variance**2 / 3))
    many = decide_noninferiority(SEEDS * 1000, 0.6, sampling=0.01)
    assert many.error == pytest.approx(0.01, rel=0.01)
    assert many.low == pytest.approx(many.mean - 1.645 * 0.01, abs=1e-4)


def test_known_noise_alone_is_normal() -> None:
    found = decide_noninferiority([0.7, 0.7], 0.6, sampling=0.01)
    assert found.degrees == math.inf
    assert found.low == pytest.approx(0.7 - stats.norm.ppf(0.95) * 0.01)


def test_tiny_spreads_do_not_underflow() -> None:
    """Their variances are numbers yet, the squares of those are 0."""
    found = decide_noninferiority([1e-100, 2e-100], 0.0)
    assert found.degrees == pytest.approx(1)
    assert found.error == pytest.approx(5e-101)


@pytest.mark.parametrize("bad", [[], [math.nan, 0.5]])
def test_what_is_no_result_is_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no values|no finite"):
        decide_noninferiority(bad, 0.5)


DRAWS = 4_000


def test_at_the_margin_each_wrong_answer_comes_in_one_of_twenty() -> None:
    source = np.random.default_rng(0)
    for n, pooled in [(3, None), (5, None), (3, Pooled(0.005, 10**6))]:
        states = Counter(
            decide_noninferiority(list(source.normal(0.6, 0.005, n)), 0.6, pooled=pooled).state
            for _ in range(DRAWS)
        )
        deviation = 4 * math.sqrt(0.05 * 0.95 / DRAWS)
        assert states["above"] / DRAWS == pytest.approx(0.05, abs=deviation)
        assert states["below"] / DRAWS == pytest.approx(0.05, abs=deviation)


def test_with_a_new_test_set_the_noise_has_to_be_given() -> None:
    """Accuracies of 3 seeds on a drawn test set of 2,000, at the margin: sampling keeps the error at 5 %."""
    source = np.random.default_rng(1)
    sampling = math.sqrt(0.6 * 0.4 / 2000)
    given, omitted = 0, 0
    for _ in range(DRAWS):
        values = list(0.6 + source.normal(0, sampling) + source.normal(0, 0.004, 3))
        given += decide_noninferiority(values, 0.6, sampling=sampling).state == "above"
        omitted += decide_noninferiority(values, 0.6).state == "above"
    assert given / DRAWS == pytest.approx(0.05, abs=0.014)
    assert omitted / DRAWS > 0.2


@pytest.mark.parametrize(("gap", "sd"), [(0.01, 0.01), (0.01, 0.02), (-0.005, 0.01)])
def test_so_many_seeds_decide_with_the_power_asked(gap: float, sd: float) -> None:
    values = [0.6 + gap - sd / math.sqrt(2), 0.6 + gap + sd / math.sqrt(2)]
    more = count_seeds_needed(values, 0.6)
    assert more is not None
    source = np.random.default_rng(2)
    shares = []
    for n in (2 + more, 2 + more - 1):
        decided = sum(
            decide_noninferiority(list(source.normal(0.6 + gap, sd, n)), 0.6).state != "undecided"
            for _ in range(2_000)
        )
        shares.append(decided / 2_000)
    assert shares[0] > 0.8 - 0.03
    assert shares[1] < 0.8 + 0.03


@pytest.mark.parametrize(("gap", "sd"), [(0.02, 0.03), (0.01, 0.01), (-0.004, 0.01)])
def test_their_number_is_the_first_with_that_power(gap: float, sd: float) -> None:
    values = [0.6 + gap - sd / math.sqrt(2), 0.6 + gap + sd / math.sqrt(2)]
    powers = {
        n: stats.nct.sf(stats.t.ppf(0.95, n - 1), n - 1, abs(gap) * math.sqrt(n) / sd) for n in range(3, 99)
    }
    assert count_seeds_needed(values, 0.6) == min(n for n, power in powers.items() if power >= 0.8) - 2


def test_when_no_number_of_seeds_can_be_named() -> None:
    assert count_seeds_needed([0.7], 0.6) is None
    assert count_seeds_needed([0.59, 0.61], 0.6) is None, "the mean is the bound"
    assert count_seeds_needed([0.50, 0.7002], 0.6) is None, "more than anybody trains"
    assert count_seeds_needed([0.60, 0.62], 0.605, sampling=0.02) is None, (
        "seeds do not help against the test set"
    )


def test_a_decided_cell_needs_no_more_seeds_and_a_pooled_spread_fewer() -> None:
    assert count_seeds_needed(SEEDS, 0.5) == 0
    values = [0.612, 0.624]
    alone, pooled = (
        count_seeds_needed(values, 0.61),
        count_seeds_needed(values, 0.61, pooled=Pooled(0.0085, 30)),
    )
    assert alone is not None
    assert pooled is not None
    assert 0 < pooled < alone <= MOST_SEEDS
    assert count_seeds_needed([0.618], 0.61, pooled=Pooled(0.0085, 30)) == pooled + 1


def test_seeds_of_an_expectation_with_the_same_spread() -> None:
    """Both means share one sd and its degrees of freedom; only ours gains seeds."""
    pooled, values = Pooled(0.01, 6), [0.614, 0.616]
    found = decide_noninferiority(values, 0.6, pooled=pooled, n_expected=4, step=0.0001)
    assert found.error == pytest.approx(0.01 * math.sqrt(1 / 2 + 1 / 4))
    assert found.degrees == 6
    coarse = decide_noninferiority([0.6, 0.6], 0.6, pooled=Pooled(0.0, 6), n_expected=4, step=0.05)
    assert coarse.error == pytest.approx(0.05 / math.sqrt(12) * math.sqrt(1 / 2 + 1 / 4))
    more = count_seeds_needed(values, 0.6, pooled=pooled, n_expected=4)
    assert more is not None
    powers = [
        stats.nct.sf(stats.t.ppf(0.95, 6), 6, 0.015 / (0.01 * math.sqrt(1 / n + 1 / 4)))
        for n in (2 + more - 1, 2 + more)
    ]
    assert powers[0] < 0.8 <= powers[1]


@pytest.mark.parametrize("degrees", [1, 2, 5.5, 40])
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0, 12.0, 80.0])
def test_power_is_the_tail_of_a_noncentral_t(shift: float, degrees: float) -> None:
    expected = stats.nct.sf(stats.t.ppf(0.95, degrees), degrees, shift)
    assert compute_power(shift * 0.02, 0.02, degrees) == pytest.approx(expected, abs=1e-10)


def test_power_with_a_known_spread_is_that_of_a_normal() -> None:
    expected = stats.norm.sf(stats.norm.ppf(0.95) - 0.4)
    assert compute_power(0.4, 1.0, math.inf) == pytest.approx(expected, rel=1e-12)
    assert compute_power(0.4, 1.0, math.inf) == pytest.approx(compute_power(0.4, 1.0, 1e7), rel=1e-5)


def test_importing_the_package_does_not_import_scipy() -> None:
    rooms = "bootstrap, difference, noninferiority, proportion, summary"
    heavy = {"scipy", "pandas", "torch"}
    code = f"import sys; from msbench.stats import {rooms}; print(sorted({heavy} & set(sys.modules)))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
