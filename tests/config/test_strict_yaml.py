"""YAML 1.2 numbers, refused ambiguities, and errors with positions."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msbench.config.strict_yaml import parse, parse_scalar
from msbench.errors import ConfigError


def place(line: int) -> str:
    return f"x.yaml:{line}"


def values(text: str | bytes) -> object:
    return parse(text, place)[0]


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", "0.001", ".001", "1.e-3", "+1e-03", "10e-4"])
def test_every_spelling_of_a_float_is_that_float(text: str) -> None:
    assert values(f"lr: {text}") == {"lr": 0.001}


@pytest.mark.parametrize(
    ("text", "number"),
    [("010", 10), ("0o10", 8), ("0x1F", 31), ("-3", -3), ("+3", 3), ("0", 0), ("00", 0)],
)
def test_integers_are_decimal_unless_they_say_otherwise(text: str, number: int) -> None:
    value = parse_scalar(text)
    assert type(value) is int
    assert value == number


def test_an_exponent_makes_a_float() -> None:
    assert type(parse_scalar("1e2")) is float
    assert type(parse_scalar("1.0")) is float


def test_infinity_and_nan() -> None:
    assert parse_scalar("-.inf") == -math.inf
    assert parse_scalar(".INF") == math.inf
    nan = parse_scalar(".nan")
    assert isinstance(nan, float)
    assert math.isnan(nan)


WORDS = ["no", "No", "NO", "off", "yes", "on", "y", "n", "tRue", "nULL", "inf", "nan", "e3", ".", "=", "-"]
NEARLY_NUMBERS = ["1:30", "2024-01-02", "2024-01-02T10:00:00Z", "1_000", "0b1", "1.2.3", "0o9", "-0x1", "1 2"]


@pytest.mark.parametrize("text", WORDS + NEARLY_NUMBERS)
def test_text_stays_text(text: str) -> None:
    assert parse_scalar(text) == text


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_booleans(text: str) -> None:
    assert values(f"[{text}, {text}]") == [True, True]
    assert parse_scalar("false") is False


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nulls(text: str) -> None:
    assert values(f"a: {text}") == {"a": None}


def test_quoted_and_block_scalars_are_text() -> None:
    assert values("""{a: "3", b: '1e-3', c: "null", d: "true", e: ""}""") == {
        "a": "3",
        "b": "1e-3",
        "c": "null",
        "d": "true",
        "e": "",
    }
    assert values("a: |\n  3\n") == {"a": "3\n"}


def test_keys_are_text_as_typed() -> None:
    assert values("no: 1\n010: 2\n~: 3\n1e-3: 4\ntrue: 5\n") == {
        "no": 1,
        "010": 2,
        "~": 3,
        "1e-3": 4,
        "true": 5,
    }


def test_an_empty_document_is_none() -> None:
    assert parse("# nothing\n", place) == (None, {})


def test_every_key_and_item_has_its_line() -> None:
    _, lines = parse("a:\n  b: 1\n  c:\n    - 2\n    -\n      d: 3\n", place)
    assert lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "c"): 3,
        ("a", "c", 0): 4,
        ("a", "c", 1): 6,
        ("a", "c", 1, "d"): 6,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train:\n  lr: 1\n  epochs: 2\n  lr: 3\n", "x.yaml:4: train.lr: duplicate key; first on line 2"),
        ("tasks:\n  a: {}\n  'a': {}\n", "x.yaml:3: tasks.a: duplicate key; first on line 2"),
        ("{1: 2, '1': 3}", "x.yaml:1: 1: duplicate key; first on line 1"),
        ("a:\n  - b: 1\n    b: 2\n", "x.yaml:3: a.0.b: duplicate key; first on line 2"),
    ],
)
def test_a_key_given_twice_names_both_lines(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, place)
    assert str(caught.value) == message


UTF16 = "; if the file is UTF-16 or UTF-32, save it as UTF-8"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\t2\n", "x.yaml:2: column 3: a tab; use spaces (or \\t in double quotes)"),
        ("a:\n\tb: 2\n", "x.yaml:2: column 1: a tab; use spaces (or \\t in double quotes)"),
        ("a: 1e-3\t\n", "x.yaml:1: column 8: a tab; use spaces (or \\t in double quotes)"),
        (
            "a: 1\nb: x\x00y\n",
            f"x.yaml:2: column 5: character U+0000 is not allowed{UTF16}",
        ),
        ("a: \x1b[31m\n", "x.yaml:1: column 4: character U+001B is not allowed"),
        (b"a: 1\nb: caf\xe9\n", "x.yaml:2: column 7: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        (
            b"\xff\xfe" + "a: 1\n".encode("utf-16-le"),
            "x.yaml:1: column 1: byte 0xff is not UTF-8; save the file as UTF-8",
        ),
        (
            "a: 1\n".encode("utf-16-le"),
            f"x.yaml:1: column 2: character U+0000 is not allowed{UTF16}",
        ),
        (
            "a: 1\n".encode("utf-16-be"),
            f"x.yaml:1: column 1: character U+0000 is not allowed{UTF16}",
        ),
        (
            "a: 1\n".encode("utf-32-be"),
            f"x.yaml:1: column 1: character U+0000 is not allowed{UTF16}",
        ),
        ("a: &x 1\nb: *x\n", "x.yaml:1: column 4: anchors and aliases are refused"),
        ("b: *x\n", "x.yaml:1: column 4: anchors and aliases are refused"),
        ("a: !!python/object/apply:os.getcwd []\n", "x.yaml:1: column 4: tags are refused"),
        ("a: !function f\n", "x.yaml:1: column 4: tags are refused"),
        ("a: !!str 3\n", "x.yaml:1: column 4: tags are refused"),
        ("a: {<<: {b: 1}}\n", "x.yaml:1: column 5: merge keys are refused"),
        ("? [a]\n: 1\n", "x.yaml:1: column 3: a key must be text"),
        ("?\n: 1\n", "x.yaml:1: column 2: a key must be text"),
        ("a: 1\n" + "b: " + "9" * 301, "x.yaml:2: column 4: a number of more than 300 digits"),
        ("a: 0x" + "f" * 9000, "x.yaml:1: column 4: a number of more than 300 digits"),
    ],
)
def test_refused_in_one_line_with_its_position(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, place)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("a: [1, 2\nb: 3\n", "x.yaml:2: column 2: "),
        ("a: 1\n  b: 2\n", "x.yaml:2: column 4: "),
        ("a: 'x\n", "x.yaml:2: column 1: "),
        ("a: 1\n---\nb: 2\n", "x.yaml:2: column 1: "),
        ("a: @b\n", "x.yaml:1: column 4: "),
    ],
)
def test_broken_yaml_is_one_line_with_its_position(text: str, position: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, place)
    assert str(caught.value).startswith(position)
    assert "\n" not in str(caught.value)


def test_nesting_without_end_is_an_error_and_no_crash() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        parse("[" * 5000, place)


SUITE = "# a comment\nname: quick\ntrain:\n  lr: 1e-3\n  notes: |\n    two\n    lines\nseeds: [0, 1]\n"


@pytest.mark.parametrize(
    "data",
    [SUITE.replace("\n", "\r\n").encode(), b"\xef\xbb\xbf" + SUITE.encode(), "\ufeff" + SUITE],
    ids=["crlf", "bom", "bom-text"],
)
def test_line_ends_and_bom_change_nothing(data: str | bytes) -> None:
    assert parse(data, place) == parse(SUITE, place)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_as_a_float_is_read_as_that_float(number: float) -> None:
    assert parse_scalar(repr(number)) == number


@given(st.integers())
def test_what_python_writes_as_an_integer_is_read_as_that_integer(number: int) -> None:
    assert parse_scalar(str(number)) == number


def complaint(text: str | bytes) -> str:
    """The message of parsing, or an invented line of the right form if there is none."""
    try:
        parse(text, place)
    except ConfigError as error:
        return str(error)
    return "x.yaml:0: fine"


@given(st.binary(max_size=60))
def test_any_bytes_are_values_or_a_one_line_error(data: bytes) -> None:
    assert re.fullmatch(r"x\.yaml:\d+: .+", complaint(data))


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,? \n\r0.e~<=", max_size=40))
def test_any_punctuation_is_values_or_a_one_line_error(text: str) -> None:
    assert re.fullmatch(r"x\.yaml:\d+: .+", complaint(text))
