from hypothesis import given
from hypothesis import strategies as st

from msbench.reporting.render.formatting import number_repeats


@given(st.lists(st.text(max_size=3)))
def test_no_two_are_alike(names: list[str]) -> None:
    assert len(set(number_repeats(names))) == len(names)


def test_numbers_go_to_the_later_ones() -> None:
    assert number_repeats(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    assert number_repeats(["a", "a"], "{}-{}") == ["a", "a-2"]
