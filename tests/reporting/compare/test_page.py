"""Pages: whole into a pipe, wrapped at a terminal, verbatim in both."""

import io
import sys

import pytest

from msbench.reporting.compare.page import BAR, ROWS, Facts, Grid, draw_bar, print_page, select_rows

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


@pytest.mark.parametrize("count", [0, 1, 2, ROWS, ROWS + 1, 35, 1000])
@pytest.mark.parametrize("keep", [(), (0,), (17,), (5, 9), (10**6,)])
def test_a_long_curve_keeps_its_ends_and_what_is_asked(count: int, keep: tuple[int, ...]) -> None:
    chosen = select_rows(count, keep)
    assert len(chosen) <= ROWS
    assert chosen == sorted(set(chosen))
    assert {0, count - 1} <= set(chosen) or not count
    assert {index for index in keep if index < count} <= set(chosen)
    assert len(chosen) >= min(count, ROWS - 2)


def test_bars_are_in_proportion() -> None:
    assert [len(draw_bar(value, 0.0, 1.0)) for value in (0.0, 0.5, 1.0)] == [
        1,
        1 + round(0.5 * (BAR - 1)),
        BAR,
    ]
    assert len(draw_bar(0.5, 0.5, 0.5)) == BAR


def test_at_a_narrow_terminal_a_grid_loses_nothing_and_breaks_no_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"word-{number}" for number in range(12)]
    grid = Grid("title", ("run", "why"), [("0123456789ab", " ".join(words))])
    monkeypatch.setenv("COLUMNS", "40")
    print_page([grid])
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_page([grid])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split()[4:] == words
