"""Pages: whole into a pipe, wrapped at a terminal, verbatim in both."""

import io
import sys

import pytest

from msbench.reporting.compare.page import Facts, Grid, print_page

HOSTILE = "[s4]_base [/s4] MS-SSM→δ 模型 " + "word " * 40
COMMAND = "msbench run x --set 'train.lr=1' " + "--seed 1 " * 20


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def parts() -> list[Facts | Grid]:
    return [
        Facts("[title]", [("name", HOSTILE.strip()), ("again", COMMAND.strip())], frozenset({"again"})),
        Facts("nothing", []),
        Grid("grid", ("a", "b"), [("[x]", None), (1, "y" * 100)]),
        Grid("empty", ("a",), []),
    ]


def test_a_pipe_gets_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_page(parts())
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["[title]", f"  name   {HOSTILE.strip()}", f"  again  {COMMAND.strip()}", ""]
    assert lines[4:] == ["grid", "  a    b", "  [x]", f"  1    {'y' * 100}"]


def test_a_terminal_wraps_words_but_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    print_page(parts())
    lines = terminal.getvalue().splitlines()
    assert f"  again  {COMMAND.strip()}" in lines
    wrapped = lines[1 : lines.index(f"  again  {COMMAND.strip()}")]
    assert len(wrapped) > 2
    assert all(len(line) <= 80 for line in wrapped)
    assert all(line.startswith(" " * 9) for line in wrapped[1:])
    assert " ".join(" ".join(wrapped).split()) == "name " + " ".join(HOSTILE.split())
    assert "\x1b" not in terminal.getvalue()


def test_lines_of_a_value_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_page([Facts("t", [("failure", "one\ntwo")])], after=True)
    assert capsys.readouterr().out == "\nt\n  failure  one\n           two\n"
