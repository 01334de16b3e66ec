import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.stats.summary import Summary, pool_sd, summarise

FINITE = st.floats(-1e6, 1e6)


@given(st.lists(FINITE, min_size=2, max_size=20))
def test_mean_and_sample_deviation(values: list[float]) -> None:
    found = summarise(values)
    assert found.n == len(values)
    assert found.mean == pytest.approx(np.mean(values), rel=1e-9, abs=1e-9)
    assert found.sd == pytest.approx(np.std(values, ddof=1), rel=1e-6, abs=1e-6)


def test_one_value_has_no_spread() -> None:
    assert summarise([0.8]) == Summary(1, 0.8, None)


@given(FINITE, st.integers(2, 9))
def test_identical_values_are_their_mean_exactly(value: float, n: int) -> None:
    assert summarise([value] * n) == Summary(n, value, 0.0)


@pytest.mark.parametrize("values", [[], [math.nan], [0.5, math.inf], [0.5, -math.inf]])
def test_no_mean_of_nothing_or_of_what_is_not_finite(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"no values|no finite value"):
        summarise(values)


def test_pooled_spread_is_the_mean_square_within_groups() -> None:
    source = np.random.default_rng(0)
    groups = [list(source.normal(mean, 2.0, size)) for mean, size in [(0, 3), (50, 5), (-7, 2)]]
    found = pool_sd([*groups, [1e6]])
    squares = sum((value - statistics.fmean(group)) ** 2 for group in groups for value in group)
    assert found is not None
    assert (found.sd, found.degrees) == pytest.approx((math.sqrt(squares / 7), 7))


@pytest.mark.parametrize("groups", [[], [[0.5]], [[0.5], [0.7]]])
def test_single_seeds_have_no_spread_to_pool(groups: list[list[float]]) -> None:
    assert pool_sd(groups) is None
