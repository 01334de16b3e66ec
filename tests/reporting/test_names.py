from hypothesis import given
from hypothesis import strategies as st

from msbench.reporting.tables.names import unique


@given(st.lists(st.text(max_size=3)))
def test_no_two_are_alike(names: list[str]) -> None:
    assert len(set(unique(names))) == len(names)


def test_numbers_go_to_the_later_ones() -> None:
    assert unique(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    assert unique(["a", "a"], "{}-{}") == ["a", "a-2"]
