"""Printing into a pipe and at a terminal."""

import io
import json
import os
import subprocess
import sys

import pytest

from msbench import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No escapes at a terminal, in any test that does not ask for them."""
    monkeypatch.setenv("NO_COLOR", "1")


ROWS = [("[s4]_base", "a" * 120, None), ("[/s4]", "short", 3)]


def test_a_pipe_gets_every_character_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    console.out_rows(("name", "text", "n"), ROWS, title="[t]")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "[t]"
    assert lines[2].split() == ["[s4]_base", "a" * 120]
    assert lines[3].split() == ["[/s4]", "short", "3"]
    assert len(lines) == 4


def test_a_terminal_shows_names_with_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    console.out_rows(("name", "text", "n"), ROWS)
    text = terminal.getvalue()
    assert "[s4]_base" in text
    assert "[/s4]" in text
    assert "a" * 120 in text  # neither cut nor broken


def test_long_columns_go_below_at_a_narrow_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [("one", 1, "a few words " * 9, "x"), ("three", 3, "short", None)]
    header = ("name", "n", "what", "rows")
    console.out_rows(header, rows, below=2)
    assert len(capsys.readouterr().out.splitlines()) == 3
    for columns, lines in ((25, 11), (60, 5), (200, 3)):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("COLUMNS", str(columns))
        console.out_rows(header, rows, below=2)
        text = terminal.getvalue()
        assert len(text.splitlines()) == lines
        assert all(len(line) <= columns for line in text.splitlines())
        if columns == 25:
            assert text.splitlines()[:2] == ["name   n", "    what · rows"]
            assert text.splitlines()[-2:] == ["three  3", "    short"]
        elif columns == 60:
            assert text.splitlines()[0] == "name   n  what · rows"
            assert text.splitlines()[2].startswith(" " * 10)
            assert text.splitlines()[-1] == "three  3  short"


@pytest.mark.parametrize(("key", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "xterm")])
def test_only_a_terminal_that_wants_them_gets_escapes(
    key: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(key, value)
    console.out_rows(("name", "text", "n"), ROWS)
    assert "\x1b" not in capsys.readouterr().out
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    console.out_rows(("name", "n"), [("a", 1)])
    assert terminal.getvalue() == (
        "\x1b[1mname  n\x1b[0m\na     1\n" if value == "xterm" else "name  n\na     1\n"
    )


def test_a_wrapped_line_is_one_line_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "model.state 20, " * 10 + "data.a-long-name"
    console.out_wrapped(text, "  ")
    assert capsys.readouterr().out == f"{text}\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    console.out_wrapped(text, "  ")
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == text


def test_as_many_columns_go_below_as_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    header = ("run", "suite", "task", "status", "with")
    for columns, first in (
        (60, "0123456789ab  laptop-listops  listops-short  finished"),
        (40, "0123456789ab"),
    ):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("COLUMNS", str(columns))
        console.out_rows(
            header, [("0123456789ab", "laptop-listops", "listops-short", "finished", "x " * 40)], below=1
        )
        lines = terminal.getvalue().splitlines()
        assert max(map(len, lines)) <= columns
        assert any(line.startswith(first) for line in lines)


def test_a_path_below_a_row_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    path = "results/listops-short/" + "a-long-name/" * 5
    console.out_rows(("run", "why"), [("id", f"{path}: is damaged")], below=1)
    assert f"    {path}:" in terminal.getvalue().splitlines()


def test_no_rows_is_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    console.out_rows(("a", "b"), [])
    assert capsys.readouterr().out.split() == ["a", "b"]


def test_json_is_one_document_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    console.out_json({"b": 1, "a": "→"})
    text = capsys.readouterr().out
    assert json.loads(text) == {"a": "→", "b": 1, "schema_version": console.JSON_VERSION}
    with pytest.raises(ValueError, match="JSON"):
        console.out_json(float("nan"))


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("[red]x")
    assert capsys.readouterr() == ("", "[red]x\n")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_no_character_of_a_json_document_is_lost(encoding: str) -> None:
    value = {"δ": "é\u2028\u202e 你 \U0001f600"}
    program = f"from msbench import console; console.prepare_streams(); console.out_json({value!a})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout.decode(encoding)) == {**value, "schema_version": console.JSON_VERSION}
