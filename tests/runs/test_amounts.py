"""What set-up shows of its progress: amount, rate and time left."""

import itertools
import sys
from collections.abc import Iterator

import pytest

from msbench import console
from msbench.runs.amounts import AmountRate, log_amounts, show_amounts


@pytest.fixture
def ticks() -> Iterator[float]:
    """A clock that goes on by ten seconds each time it is read."""
    return itertools.count(100.0, 10.0)


def test_rate_and_time_left_are_of_what_this_stage_has_gained(ticks: Iterator[float]) -> None:
    rate = AmountRate(lambda: next(ticks))
    # A resumed download: what was there before took no time.
    assert rate.describe("fetching a", 4_000_000, 10_000_000) == "4,000,000 of 10,000,000"
    assert rate.describe("fetching a", 6_000_000, 10_000_000) == (
        "6,000,000 of 10,000,000, 200k/s, 20 s left"
    )
    assert rate.describe("fetching a", 10_000_000, 10_000_000) == "10,000,000 of 10,000,000, 300k/s"
    assert rate.describe("generating b", 0, 50) == "0 of 50"
    assert rate.describe("generating b", 5, 50) == "5 of 50, 0.5/s, 2 min left"
    # Begun anew under the same name, as when a server sends the whole file again.
    assert rate.describe("generating b", 1, 50) == "1 of 50"
    assert rate.describe("generating b", 2, 50) == "2 of 50, 0.1/s, 8 min left"


def test_without_time_or_gain_there_is_no_rate() -> None:
    rate = AmountRate(lambda: 5.0)
    assert [rate.describe("x", done, 2) for done in (1, 1, 2)] == ["1 of 2", "1 of 2", "2 of 2"]


def test_a_log_gets_a_line_a_tenth(ticks: Iterator[float]) -> None:
    said: list[str] = []
    report = log_amounts(said.append, lambda: next(ticks))
    for done in range(0, 101, 5):
        report("fetching", done, 100)
    assert len(said) == 11
    assert said[0] == "fetching: 0 of 100"
    assert said[5] == "fetching: 50 of 100, 0.5/s, 2 min left"


def test_a_terminal_gets_a_bar_and_messages_above_it(
    ticks: Iterator[float], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with show_amounts(quiet=False, clock=lambda: next(ticks)) as report:
        report("fetching \x1b[2J[b]x[/b]", 0, 1000)
        console.say("a message")
        report("fetching \x1b[2J[b]x[/b]", 250, 1000)
    shown = capsys.readouterr().err
    assert "250 of 1,000, 25/s, 30 s left" in shown
    assert "fetching \\x1b[2J[b]x[/b]" in shown  # no markup, and nothing that a terminal obeys
    assert "a message\n" in shown
    assert "fetching:" not in shown  # no lines as in a log


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_amounts(quiet=True) as report:
        report("fetching", 0, 10)
    assert capsys.readouterr().err == ""
