"""`submission.json`: read as every file of results is, which somebody else may have written."""

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from msbench.errors import ConfigError
from msbench.runs.launchers import slurm_jobs


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / slurm_jobs.FILE)
    with pytest.raises(ConfigError, match=r"submission\.json: cannot be read: not a regular file"):
        slurm_jobs.read_submission(tmp_path / slurm_jobs.FILE)


def test_submissions_that_cannot_be_listed_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that wait in the queue would be submitted once more."""

    def stale(*_: object) -> Any:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "glob", stale)
    with pytest.raises(ConfigError, match=r"\.slurm: cannot be read: Stale file handle"):
        slurm_jobs.list_submissions(tmp_path)


@pytest.mark.parametrize("name", ["../../0123456789ab", "0123456789abc", "0123456789ab\n", ""])
def test_the_id_of_a_run_is_nothing_but_one(name: str) -> None:
    values: dict[str, Any] = {"task": "t", "model": "m", "seed": 0, "words": ()}
    assert slurm_jobs.SubmittedRun(run_id="0123456789ab", **values).run_id
    with pytest.raises(ValidationError, match="run_id"):
        slurm_jobs.SubmittedRun(run_id=name, **values)


@pytest.mark.parametrize("mark", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_line_of_squeue_ends_at_a_line_feed_alone(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a part of somebody's name of a job would be a job of ours."""
    answer = f"other{mark}msbench-a|1|PENDING\nmsbench-a|0|RUNNING\r\n"
    done = subprocess.CompletedProcess([], 0, answer, "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    states = slurm_jobs.query_states(["msbench-a"])
    assert states == {(f"other{mark}msbench-a", 1): "PENDING", ("msbench-a", 0): "RUNNING"}
