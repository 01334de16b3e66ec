import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.reporting.render.formatting import number_repeats
from msbench.reporting.tables.cells import Unit


def unit(digits: int) -> Unit:
    return Unit("test_accuracy", 100.0, digits, "accuracy in percent")


@pytest.mark.parametrize(
    ("mean", "sd", "most", "texts"),
    [
        (62.834, 0.714, 2, ("62.83", "0.71")),
        (62.834, 1.414, 2, ("62.8", "1.4")),
        (62.834, 12.3, 2, ("63", "12")),
        (62.834, 123.4, 2, ("63", "123")),
        (62.834, 0.0123, 2, ("62.83", "0.01")),
        (62.834, 1e-9, 2, ("62.83", "0.00")),
        (62.834, 0.0, 2, ("62.83", "0.00")),
        (62.834, None, 2, ("62.83", "")),
        (62.834, 9.96, 2, ("63", "10")),
        (62.834, 0.996, 2, ("62.8", "1.0")),
        (0.9391, 0.0021, 3, ("0.939", "0.002")),
        (0.9391, 0.021, 3, ("0.939", "0.021")),
        (0.9391, 0.21, 3, ("0.94", "0.21")),
    ],
)
def test_a_spread_leaves_two_digits_at_most_those_of_the_unit(
    mean: float, sd: float | None, most: int, texts: tuple[str, str]
) -> None:
    assert unit(most).format_mean(mean, sd) == texts


@given(st.floats(0, 100), st.floats(0, 1e6), st.integers(0, 4))
def test_mean_and_spread_end_at_the_same_decimal(mean: float, sd: float, most: int) -> None:
    value, spread = unit(most).format_mean(mean, sd)
    assert value.partition(".")[2].__len__() == spread.partition(".")[2].__len__() <= most
    if sd and unit(most).count_decimals(sd) < most:
        assert len(spread.replace(".", "").lstrip("0")) >= 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_no_number_is_never_shown(bad: float) -> None:
    with pytest.raises(ValueError, match="cannot be shown"):
        unit(2).format_mean(bad, None)
    with pytest.raises(ValueError, match="cannot be shown"):
        unit(2).format_mean(60.0, bad)


@given(st.lists(st.text(max_size=3)))
def test_no_two_are_alike(names: list[str]) -> None:
    assert len(set(number_repeats(names))) == len(names)


def test_numbers_go_to_the_later_ones() -> None:
    assert number_repeats(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    assert number_repeats(["a", "a"], "{}-{}") == ["a", "a-2"]
