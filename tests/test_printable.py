import pytest

from msbench.printable import printable


@pytest.mark.parametrize("text", ["plain", "модель 模型 → δ", " two  blanks ", "é\u0301", "\\x1b", "😀"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1m", "\\x1b[1m"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("left\u202eright", "left\\u202eright"),
        ("\u2066\u200b\ufeff", "\\u2066\\u200b\\ufeff"),
        ("\udc80", "\\udc80"),
        ("\uffff\U0010ffff", "\\uffff\\U0010ffff"),
        ("\u2028", "\\u2028"),
    ],
)
def test_what_hides_reorders_or_is_no_character_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
