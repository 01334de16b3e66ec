"""Differences between two runs, and values in the spelling of a suite."""

from typing import Any

import pytest

from msbench.config.differences import (
    Change,
    compare_data,
    compare_settings,
    compare_sources,
    flatten,
    format_yaml,
)
from msbench.config.layers import parse_override


def test_settings_are_compared_leaf_by_leaf() -> None:
    before = {"a": {"b": 1, "c": 2}, "d": None, "same": [1, 2]}
    now = {"a": {"b": 1, "c": 5}, "e": "x y", "same": (1, 2)}
    found = compare_settings(before, now)
    assert [str(change) for change in found] == ["a.c 2 → 5", "d null → absent", 'e absent → "x y"']
    assert [change.as_dict() for change in found] == [
        {"kind": "setting", "name": "a.c", "before": 2, "now": 5},
        {"kind": "setting", "name": "d", "before": None},
        {"kind": "setting", "name": "e", "now": "x y"},
    ]
    assert compare_settings(before, before) == ()


def test_flatten_goes_to_the_leaves() -> None:
    assert flatten({"a": {"b": [1, 2]}, "c": {}}) == {"a.b": [1, 2], "c": {}}


def test_source_files_are_named_with_short_digests() -> None:
    before = {"models/mamba.py": "a" * 16, "gone.py": "b" * 16, "same.py": "c" * 16}
    now = {"models/mamba.py": "d" * 16, "same.py": "c" * 16, "added.py": "e" * 16}
    found = compare_sources(before, now, ("1", "2"))
    assert [str(change) for change in found] == [
        f"added.py absent → {'e' * 8}",
        f"gone.py {'b' * 8} → absent",
        f"models/mamba.py {'a' * 8} → {'d' * 8}",
    ]
    assert found[2].as_dict("first", "second")["second"] == "d" * 16
    assert compare_sources(before, now, ("1", "1")) == ()
    whole = (Change("source", "all source files", "1", "2"),)
    assert compare_sources({}, now, ("1", "2")) == compare_sources(before, {}, ("1", "2")) == whole


def test_data_differ_by_their_digest_alone() -> None:
    assert compare_data("a", "a") == ()
    assert compare_data("a" * 64, "b" * 64) == (Change("data", "data", "a" * 64, "b" * 64),)


@pytest.mark.parametrize(
    "value",
    [
        *(1e-3, 2.0, 1e-05, 3e16, -0.5, 7, 0, True, False, None),
        *("", "mean", "two words", "1e-3", "007", "no", "null", "true", "~", "1:30", "a: b", "# x", "[s4]"),
        *(
            'say "no"',
            "it's",
            "back\\slash",
            "two\nlines",
            "MS-SSM→δ",
            "модель",
            "*a",
            "&a",
            "- a",
            "\x7f",
            "😀",
        ),
        *([], [1, 2.5, None, True], ["recurrent", "attention"], ["two words", "a, b", "1e5"]),
    ],
)
def test_a_value_is_read_back_as_it_is_spelled(value: Any) -> None:
    read = parse_override(f"train.key={format_yaml(value)}").values["train"]["key"]
    assert read == value
    assert type(read) is type(value)
