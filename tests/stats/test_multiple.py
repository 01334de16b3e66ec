import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.stats import holm

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


def test_by_hand() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})


def test_none_one_and_what_is_no_probability() -> None:
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
