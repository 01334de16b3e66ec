"""Messages on invalid values, in the terms of the file."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from msbench.config.base import Config
from msbench.config.messages import (
    describe_error,
    describe_unknown_key,
    format_bytes,
    format_duration,
    format_value,
)


class Layer(Config):
    rate: float = 1.0


class Everything(Config):
    number: Annotated[float, Field(gt=0)] = 1
    whole: int = 1
    flag: bool = True
    text: str = "x"
    choice: Literal["mean", "last"] = "mean"
    pair: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)
    layers: dict[str, Layer | None] | None = None


def messages_of(value: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Everything.model_validate(value)
    return [describe_error(Everything, detail, "model 'm'") for detail in caught.value.errors()]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"number": "abc"}, "must be a number, not 'abc'"),
        ({"number": float("nan")}, "must be a finite number, not nan"),
        ({"number": float("inf")}, "must be a finite number, not inf"),
        ({"number": 0}, "must be greater than 0, not 0"),
        ({"whole": 100.0}, "must be a whole number, not 100.0"),
        ({"whole": True}, "must be a whole number, not true"),
        ({"whole": "3"}, "must be a whole number, not '3'"),
        ({"whole": None}, "must be a whole number, not null"),
        ({"flag": "no"}, "must be true or false, not 'no'"),
        ({"flag": 0}, "must be true or false, not 0"),
        ({"text": 1.1}, "must be text (in quotes), not 1.1"),
        ({"text": False}, "must be text (in quotes), not false"),
        ({"choice": "meen"}, "must be 'mean' or 'last', not 'meen'; did you mean 'mean'?"),
        ({"choice": 3}, "must be 'mean' or 'last', not 3"),
        ({"pair": 0}, "must be a list, not 0"),
        ({"pair": []}, "must not be empty"),
        ({"layers": [1]}, "must be a mapping, not a list"),
        ({"layers": {"a": 3}}, "must be a mapping, not 3"),
        ({"layers": {"a": {"rat": 3}}}, "unknown key of model 'm'; did you mean 'rate'? known: rate"),
    ],
)
def test_each_kind_of_fault(values: object, message: str) -> None:
    assert messages_of(values) == [message]


def test_an_unknown_key_without_a_near_one() -> None:
    assert describe_unknown_key("zzz", ["lr", "epochs"]) == "unknown key; known: lr, epochs"


def test_long_values_are_cut_and_stay_on_one_line() -> None:
    text = format_value("line\n" * 100)
    assert len(text) == 60
    assert "\n" not in text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (999, "999 B"),
        (1500, "1.5 kB"),
        (3_210_000, "3.21 MB"),
        (64 * 10**9, "64 GB"),
        (3 * 10**15, "3,000 TB"),
    ],
)
def test_bytes_are_readable(count: int, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (29.4, "29 s"),
        (30.5, "1 min"),
        (3569, "59 min"),
        (3571, "1 h 0 min"),
        (7800, "2 h 10 min"),
        (86_340, "23 h 59 min"),
        (86_400, "1 d 0 h"),
        (1e7, "115 d 18 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
