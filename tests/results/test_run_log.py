"""run.log: entries in order, appended, none for an attempt that never began, and never through a link."""

import os
import re
from pathlib import Path

import pytest

from msbench.results.run_log import RunLog

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


def test_entries_of_all_attempts_follow_each_other(tmp_path: Path) -> None:
    for attempt in (1, 2):
        log = RunLog(tmp_path)
        log.write(f"held {attempt}")
        log.begin(f"attempt {attempt}\nits settings")
        log.write("a traceback:\n  line 1\x1b[31m\n")
    lines = (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
    assert [re.sub(TIME, "T", line) for line in lines] == [
        line
        for attempt in (1, 2)
        for line in (
            f"T attempt {attempt}",
            "    its settings",
            f"T held {attempt}",
            "T a traceback:",
            "      line 1\\x1b[31m",
        )
    ]


def test_an_attempt_that_never_began_writes_nothing(tmp_path: Path) -> None:
    RunLog(tmp_path).write("a message")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_link_or_a_pipe_is_replaced(tmp_path: Path, kind: str) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    if kind == "link":
        (tmp_path / "run.log").symlink_to(other)
    else:
        os.mkfifo(tmp_path / "run.log")
    RunLog(tmp_path).begin("begun")
    assert (tmp_path / "run.log").read_text().endswith(" begun\n")
    assert other.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "run.log").mkdir()
    with pytest.raises(IsADirectoryError) as found:
        RunLog(tmp_path).begin("begun")
    assert found.value.filename == str(tmp_path / "run.log")
