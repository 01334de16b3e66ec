"""A suite of six runs on a real Slurm: whatever befalls a job, its run ends as an unbroken one does.

Chosen by ``pytest -m slurm``: it starts slurmctld and slurmd for itself, as root, and takes about a minute.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from same_results import assert_same
from slurm_cluster import CPUS, missing, slurm, started, until
from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.results import store
from msbench.results.record import RunRecord
from msbench.runs.launchers.slurm_jobs import Submission, list_submissions

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
]
SUITE = """\
name: six
title: Six fates
protocol: scaled
caption: For tests.
tasks:
  listops-tiny:
    data: {dataset: listops, train: 60, validation: 20, test: 20, min_length: 3, max_length: 20,
           max_depth: 4, max_args: 3}
model: {d_model: 8, layers: 1, dropout: 0.1}
train: {epochs: 50, batch_size: 20, lr: 1e-2, warmup_epochs: 0.5}
models:
  mamba: {train: {epochs: 2}}
  msssm-s6: {model: {levels: 2}, train: {lr: 1e30}}
  lru: {}
  hawk: {}
  s4d-lin: {}
  mamba-2x-state: {train: {epochs: 120}}
"""
FINISHED, FAILED, KILLED = "mamba", "msssm-s6", "lru"
CANCELLED, LIMITED, PREEMPTED = "hawk", "s4d-lin", "mamba-2x-state"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Not below pytest's folder: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="msbench-slurm-"))
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    try:
        with started(folder):
            yield
    finally:
        shutil.rmtree(folder)


class Six:
    """The suite, its results, and how they stand."""

    def __init__(self, folder: Path) -> None:
        self.suite, self.results, self.profile = (
            folder / "six.yaml",
            folder / "results",
            folder / "slurm.yaml",
        )
        self.suite.write_text(SUITE, encoding="utf-8")
        self.profile.write_text("time: 30\npartition: low\ncpus: 1\nmemory: 100M\n", encoding="utf-8")

    def submit(self, *words: str) -> Result:
        shared = ["--launcher", "slurm", "--profile", str(self.profile), "--results", str(self.results)]
        done = CliRunner().invoke(app, ["run", str(self.suite), *shared, *words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    def states(self) -> dict[str, str]:
        listed = CliRunner().invoke(app, ["list", "runs", "--json", "--results", str(self.results)])
        assert listed.exit_code == 0, listed.stderr
        return {row["model"]: row["status"] for row in json.loads(listed.stdout)}

    def reach(self, **expected: str) -> None:
        """Wait until ``msbench list runs`` shows these states."""
        wanted = {key.replace("_", "-"): value for key, value in expected.items()}
        until(lambda: wanted.items() <= self.states().items(), f"{wanted}; at last {self.states()}")

    def submissions(self) -> list[Submission]:
        found, warnings = list_submissions(self.results)
        assert warnings == []
        return found

    def get_job_id(self, model: str) -> str:
        """The id of the job that a model's run was submitted as, the last time."""
        (last,) = (
            made.get_job_id(index)
            for made in self.submissions()[-1:]
            for index, run in enumerate(made.runs)
            if run.model == model
        )
        return last

    def in_training(self, actions: dict[str, Callable[[], object]]) -> None:
        """Do something to each of these models' runs as soon as it has closed an epoch."""
        base = self.results / "six" / "listops-tiny"

        def done() -> bool:
            for model in [model for model in actions if list(base.glob(f"{model}/*/metrics.csv"))]:
                actions.pop(model)()
            return not actions

        until(done, "training")

    def records(self) -> dict[str, RunRecord]:
        found, warnings = store.read_records(self.results)
        assert warnings == []
        return {record.model: record for record in found}


def field(job: str, name: str) -> str:
    """A field of what Slurm reports on a job."""
    words = slurm("scontrol", "show", "job", job).split()
    return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))


def process_of(job: str) -> int:
    """The process of a job's batch script, which is the run itself."""
    own = f"SLURM_ARRAY_TASK_ID={job.rpartition('_')[2]}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_job = b"msbench.cli.array_job" in (path / "cmdline").read_bytes()
            if is_job and own in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
        except OSError:  # it has ended
            continue
    raise AssertionError(f"no process of {job}")


@pytest.mark.usefixtures("cluster")
def test_six_runs_meet_six_fates_and_end_as_unbroken_ones(tmp_path: Path) -> None:
    six = Six(tmp_path)
    submitted = six.submit()
    assert submitted.exit_code == 0, submitted.stderr
    (first,) = six.submissions()
    assert len(first.runs) == CPUS
    assert set(six.states().values()) <= {"pending", "running"}
    assert six.submit().exit_code == 0
    assert len(six.submissions()) == 1  # all are in the queue

    limited, preempted = six.get_job_id(LIMITED), six.get_job_id(PREEMPTED)
    six.in_training(
        {
            KILLED: lambda: os.kill(process_of(six.get_job_id(KILLED)), signal.SIGKILL),
            CANCELLED: lambda: slurm("scancel", six.get_job_id(CANCELLED)),
            # As Slurm does ahead of a time limit.
            LIMITED: lambda: slurm("scancel", "--batch", "--signal=USR1", limited),
        }
    )
    six.in_training({PREEMPTED: lambda: None})
    slurm("sbatch", "--partition=high", f"--cpus-per-task={CPUS}", "--output=/dev/null", "--wrap=sleep 600")
    six.reach(
        **{KILLED: "stopped", CANCELLED: "interrupted", LIMITED: "pending", PREEMPTED: "pending"},
        **{FAILED: "diverged"},
    )
    # Pre-emption spares whoever had ended, and nobody else: the first of them may have been met by it too.
    assert six.states()[FINISHED] in ("finished", "pending")
    assert {field(job, "Restarts") for job in (limited, preempted)} == {"1"}
    failed = six.get_job_id(FAILED)
    assert field(failed, "Requeue") == "1"  # not for want of leave is it not requeued

    second = six.submit()  # those two alone are nobody's any more; what diverged would diverge again
    assert second.exit_code == 3
    assert [run.model for run in six.submissions()[-1].runs] == [KILLED, CANCELLED]
    slurm("scancel", "--partition=high", "--user=root")
    for job in slurm("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i").split():
        # Spares us Slurm's delay of two minutes; what has been started meanwhile had none.
        slurm("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
    ended = dict.fromkeys((FINISHED, KILLED, CANCELLED, LIMITED, PREEMPTED), "finished")
    six.reach(**ended, **{FAILED: "diverged"})

    found = six.records()
    resumed = {model: found[model].resumed for model in (KILLED, CANCELLED, LIMITED, PREEMPTED)}
    assert set(resumed.values()) == {1}
    assert found[FAILED].resumed == 0
    until(lambda: field(failed, "ExitCode") == "3:0", "the failed job to end")
    assert six.submit("--wait").exit_code == 3
    assert len(six.submissions()) == 2
    check_bit_equal(six, tmp_path / "unbroken")


def check_bit_equal(six: Six, unbroken: Path) -> None:
    words = ["run", str(six.suite), "--results", str(unbroken), "--device", "cpu", "-q"]
    assert CliRunner().invoke(app, words).exit_code == 3
    assert_same(six.results, unbroken)
