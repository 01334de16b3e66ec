import string

import pytest
from figure_values import NAMES
from hypothesis import given
from hypothesis import strategies as st

from msbench.reporting.figures.series import LONGEST, clean, name_in_legend, shorten
from msbench.reporting.figures.style import COLOURS, LINES, MARKERS, assign_styles, format_compact


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a\nb", "a b"),
        (" \x1b[1m\n\x00", "[1m"),
        ("", "(no name)"),
        ("\u202eabc", "abc"),
        ("\udc80x", "x"),
        ("$x$", "$x$"),
    ],
)
def test_names_on_one_line(name: str, expected: str) -> None:
    assert clean(name) == expected


@given(st.text(max_size=60))
def test_no_name_is_too_long_empty_or_unprintable(name: str) -> None:
    short = shorten(name)
    assert 0 < len(short) <= LONGEST
    assert not any(mark in short for mark in "\n\r\t\x00\x1b\udc80")


def test_long_names_keep_both_ends() -> None:
    assert shorten(string.ascii_letters, 10) == "abcdef…XYZ"
    assert shorten("a" * LONGEST) == "a" * LONGEST


@given(st.lists(st.text(max_size=3)))
def test_no_two_names_are_shown_alike(names: list[str]) -> None:
    assert len(set(name_in_legend(names).values())) == len(set(names)) == len(name_in_legend(names))


def test_looks_are_apart_and_stay_with_their_names() -> None:
    names = [*NAMES, *(f"model {number}" for number in range(30))]
    found = assign_styles(names)
    assert (
        len({(look.colour, look.marker) for look in found.values()})
        == len(names)
        <= len(COLOURS) * len(MARKERS)
    )
    assert (
        len({(look.colour, look.line) for look in list(found.values())[:28]})
        == 28
        == len(COLOURS) * len(LINES)
    )
    assert assign_styles(names[:3]) == {name: found[name] for name in names[:3]}


@pytest.mark.parametrize(
    ("value", "text"),
    [(67466, "67.5k"), (1e7, "10M"), (2.5e9, "2.5G"), (0.05, "0.05"), (0.0, "0"), (-1500.0, "-1.5k")],
)
def test_numbers_of_ticks(value: float, text: str) -> None:
    assert format_compact(value) == text
