import json
import re
import subprocess
import sys
from typing import Any

import pytest

from msbench import console
from msbench.console import command_line, encodable, printable


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


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("caf\udce9", "caf\\udce9"),
        ("é 模型 \U0001f600", "é 模型 \U0001f600"),
        (
            {"a\udce9": ["b\udce9", ("c\ud83d", 1, None, 0.5, True)]},
            {"a\\udce9": ["b\\udce9", ("c\\ud83d", 1, None, 0.5, True)]},
        ),
    ],
)
def test_what_no_encoding_can_write_becomes_its_escape(value: Any, written: Any) -> None:
    assert encodable(value) == written


@pytest.mark.parametrize(
    "word",
    [
        b"plain",
        b"a b",
        b"it's",
        b"caf\xe9",
        b"\xff$(x) `y` 'z' \\ \"q\" *?",
        "é/\udce9".encode(errors="surrogateescape"),
    ],
)
def test_a_shell_reads_the_bytes_of_a_command(word: bytes) -> None:
    line = command_line(["printf", "%s", word.decode(errors="surrogateescape")])
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout == word


OBEYED = re.compile(r"^\s*::|##\[", re.MULTILINE)
"""What the runner of GitHub Actions obeys: ``TryParseV2`` and ``TryParse`` in its ``ActionCommand.cs``."""


@pytest.mark.parametrize(
    "text",
    [
        "::error::x",
        "fine\n::add-mask::1",
        "fine\n  ::stop-commands::x",
        "fine\u2028\r::error::x",
        "a ##[error]x",
        "###[add-mask]1",
        "::\n::##[group]",
    ],
)
def test_no_text_becomes_a_command_of_github(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.say(text)
    console.say(f"msbench: {text}")
    console.out(text)
    console.out_rows((text, "n"), [(text, 1)], title=text)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    console.out_rows((text, "n"), [(f"{'x' * 40}{text}", 1)], title=text)
    shown = capsys.readouterr()
    assert not OBEYED.search(shown.out + "\n" + shown.err)
    console.out_json({text: [text]})
    written = capsys.readouterr().out
    assert not OBEYED.search(written)
    assert json.loads(written) == {"schema_version": console.JSON_VERSION, text: [text]}


def test_a_command_that_is_meant_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    console.say_command("::error title=x::a%0Ab\n::add-mask::1")
    assert capsys.readouterr().err == "::error title=x::a%0Ab\\n::add-mask::1\n"


@pytest.mark.parametrize("text", ["a::b", "std::vector", "a: :b", "# [x]", "##", ":"])
def test_what_is_no_command_stays(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    console.out(text)
    assert capsys.readouterr().out == f"{text}\n"
