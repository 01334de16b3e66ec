"""One element of an array, in this process: which signal puts it back into the queue, and how often."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_commands import Commands, install

from msbench.cli import array_job
from msbench.results import store
from msbench.runs.launchers import slurm_jobs
from msbench.runs.launchers.slurm_jobs import Submission, SubmittedRun
from msbench.training.metrics import ProgressCallback

Start = Callable[..., int]


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    return install(tmp_path / "bin", monkeypatch)


@pytest.fixture
def start(tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Starts the only element of an array, as its batch script does."""
    words = ("run", str(tiny_file), "--model", "mamba", "--results", str(tmp_path / "results"), "--quiet")
    run = SubmittedRun(run_id="0" * 12, task="listops-tiny", model="mamba", seed=0, words=words)
    made = Submission(
        name="msbench-tiny-0", suite="tiny", submitted="", host="", max_requeues=2, runs=(run,), job_id="77"
    )
    slurm_jobs.write_submission(tmp_path, made)

    def started(restarts: int = 0, number: signal.Signals | None = None) -> int:
        monkeypatch.setattr(sys, "argv", ["element", str(tmp_path / slurm_jobs.FILE)])
        # The number of the job is the array's for one of its elements.
        for name, value in {
            "JOB_ID": 77,
            "ARRAY_JOB_ID": 77,
            "ARRAY_TASK_ID": 0,
            "RESTART_COUNT": restarts,
        }.items():
            monkeypatch.setenv(f"SLURM_{name}", str(value))
        with monkeypatch.context() as patch:
            if number is not None:
                patch.setattr(ProgressCallback, "epoch", lambda *_: os.kill(os.getpid(), number))
            return array_job.main()

    return started


def outcome(results: Path) -> list[tuple[str, int]]:
    return [(record.status, record.resumed) for record in store.read_records(results)[0]]


def test_the_warning_of_a_time_limit_saves_and_requeues(
    start: Start, commands: Commands, tmp_path: Path
) -> None:
    assert start(0, signal.SIGUSR1) == 143
    assert commands.requeued == ["requeue 77_0"]
    assert outcome(tmp_path / "results") == [("interrupted", 0)]
    assert start(1) == 0
    assert outcome(tmp_path / "results") == [("finished", 1)]
    assert commands.requeued == ["requeue 77_0"]


def test_a_warning_after_the_last_requeue_saves(start: Start, commands: Commands, tmp_path: Path) -> None:
    assert start(2, signal.SIGUSR1) == 143
    assert commands.requeued == []
    assert outcome(tmp_path / "results") == [("interrupted", 0)]


def test_a_cancelled_job_saves_and_is_not_requeued(start: Start, commands: Commands, tmp_path: Path) -> None:
    assert start(0, signal.SIGTERM) == 143
    assert commands.requeued == []
    assert outcome(tmp_path / "results") == [("interrupted", 0)]


def test_a_job_that_was_restarted_too_often_is_left_alone(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(3) == 3
    assert "started 4 times: not run again (max_requeues: 2)" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_warning_before_training_requeues_too(
    start: Start, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msbench.cli.main", lambda: os.kill(os.getpid(), signal.SIGUSR1))
    assert start() == 143
    assert commands.requeued == ["requeue 77_0"]


def test_a_failed_run_ends_its_job_as_failed(
    start: Start, commands: Commands, tmp_path: Path, tiny_file: Path
) -> None:
    tiny_file.write_text(tiny_file.read_text().replace("lr: 1e-2", "lr: 1e30"), encoding="utf-8")
    assert start() == 3
    assert outcome(tmp_path / "results") == [("diverged", 0)]
    assert commands.requeued == []


def test_what_another_user_wrote_is_not_done(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert start() == 2
    assert "belongs to another user" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_folder_of_another_user_is_not_trusted(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stat = Path.stat

    def foreign(path: Path, **how: bool) -> os.stat_result:
        found = stat(path, **how)
        return os.stat_result([*found[:4], 12345, *found[5:]]) if path == tmp_path else found

    monkeypatch.setattr(Path, "stat", foreign)
    assert start() == 2
    assert f"{tmp_path}: belongs to another user" in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_file_that_is_no_submission_is_named(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / slurm_jobs.FILE).write_text('{"name": "../../etc"}', encoding="utf-8")
    assert start() == 2
    assert f"{tmp_path / slurm_jobs.FILE}: not a submission: name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        ((), {}, "give the path of one submission.json"),
        (("a", "b"), {}, "give the path of one submission.json"),
        (("nowhere.json",), {}, "nowhere.json: cannot be read: No such file"),
        (("tiny.yaml",), {}, "tiny.yaml: not a submission: "),
        (
            ("{file}",),
            {"SLURM_ARRAY_TASK_ID": "1"},
            "SLURM_ARRAY_TASK_ID=1: must be a whole number from 0 to 0",
        ),
        (("{file}",), {"SLURM_ARRAY_TASK_ID": "-1"}, "SLURM_ARRAY_TASK_ID=-1: must be a whole number"),
        (("{file}",), {"SLURM_ARRAY_TASK_ID": "x"}, "SLURM_ARRAY_TASK_ID=x: must be a whole number"),
        (("{file}",), {"SLURM_ARRAY_TASK_ID": ""}, "SLURM_ARRAY_TASK_ID=: must be a whole number"),
        (("{file}",), {"SLURM_RESTART_COUNT": "x"}, "SLURM_RESTART_COUNT=x: must be a whole number"),
    ],
)
@pytest.mark.usefixtures("start")
def test_what_starts_no_element_is_one_message(
    words: tuple[str, ...],
    variables: dict[str, str],
    message: str,
    tiny_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tiny_file.parent)
    for name, value in {"SLURM_ARRAY_TASK_ID": "0", **variables}.items():
        monkeypatch.setenv(name, value)
    file = str(tmp_path / slurm_jobs.FILE)
    monkeypatch.setattr(sys, "argv", ["element", *(word.format(file=file) for word in words)])
    assert array_job.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("msbench: ")
    assert message in line
