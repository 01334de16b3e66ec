"""Submission of a suite as one array: what is handed over, and what never is."""

import errno
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest
from slurm_commands import Commands, install
from typer.testing import CliRunner, Result

from msbench.cli import app
from msbench.results import store
from msbench.runs.launchers import slurm, slurm_jobs
from msbench.runs.launchers.slurm_jobs import Submission, list_submissions

pytest.importorskip("submitit")
SHELL = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "0"}


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    (tmp_path / "slurm.yaml").write_text("time: 60\ncpus: 1\npartition: a b\n", encoding="utf-8")
    return install(tmp_path / "bin", monkeypatch)


def run(tmp_path: Path, *words: str) -> Result:
    shared = [
        "--launcher",
        "slurm",
        "--profile",
        str(tmp_path / "slurm.yaml"),
        "--results",
        str(tmp_path / "results"),
    ]
    return CliRunner().invoke(app, ["run", str(tmp_path / "tiny.yaml"), *shared, *words])


def statuses(tmp_path: Path) -> dict[str, str]:
    listed = CliRunner().invoke(app, ["list", "runs", "--json", "--results", str(tmp_path / "results")])
    return {row["model"]: row["status"] for row in json.loads(listed.stdout)}


def only(tmp_path: Path) -> Submission:
    (found,), warnings = list_submissions(tmp_path / "results")
    assert warnings == []
    return found


@pytest.mark.usefixtures("tiny_file")
def test_a_suite_is_one_array_and_is_submitted_once(tmp_path: Path, commands: Commands) -> None:
    words = [
        "--set",
        "train.lr=2e-2",
        "--device",
        "cpu",
        "--devices",
        "2",
        "--scan",
        "torch",
        "--deterministic",
    ]
    words += ["--container", "apptainer", "--image", "a.sif"]
    first = run(tmp_path, *words, "--json")
    assert first.exit_code == 0, first.stderr
    assert commands.times("submissions") == 1
    made = only(tmp_path)
    assert "#SBATCH --array=0-1%2\n" in commands.script
    assert "#SBATCH --partition='a b'\n" in commands.script
    assert f"#SBATCH --job-name={made.name}\n" in commands.script
    assert json.loads(first.stdout)["submission"]["job_id"] == made.job_id == "77"
    assert [element.model for element in made.runs] == ["msssm-s6", "mamba"]
    for element in made.runs:
        line = shlex.join(element.words)
        assert "--set train.lr=2e-2" in line
        assert line.endswith(f"--results {tmp_path / 'results'} {shlex.join(words[2:])}")
    # Nothing is named after what Slurm runs, and nothing of it is a pickle.
    folder = tmp_path / "results" / ".slurm" / made.name
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(folder.glob("*.pkl"))

    commands.queue(f"{made.name}|0|PENDING", f"{made.name}|1|RUNNING")
    assert statuses(tmp_path) == {"msssm-s6": "pending", "mamba": "running"}
    again = run(tmp_path, *words)
    assert (again.exit_code, commands.times("submissions")) == (0, 1)
    assert "pending as job 77_0" in again.stdout
    assert "nothing to submit" in again.stderr

    commands.queue(f"{made.name}|0|CANCELLED", f"{made.name}|1|RUNNING")
    assert statuses(tmp_path) == {"msssm-s6": "stopped", "mamba": "running"}
    assert run(tmp_path, *words).exit_code == 0
    _, second = list_submissions(tmp_path / "results")[0]
    assert [element.model for element in second.runs] == ["msssm-s6"]
    assert "#SBATCH --array=0-0%1\n" in commands.script


@pytest.mark.usefixtures("tiny_file")
def test_jobs_count_as_submitted_where_slurm_cannot_be_asked(tmp_path: Path, commands: Commands) -> None:
    assert run(tmp_path).exit_code == 0
    commands.has("away")
    assert statuses(tmp_path) == {"msssm-s6": "submitted", "mamba": "submitted"}
    assert run(tmp_path).exit_code == 0
    assert commands.times("submissions") == 1
    (commands.folder / "squeue").unlink()
    assert set(statuses(tmp_path).values()) == {"submitted"}


@pytest.mark.usefixtures("tiny_file")
def test_slurm_is_asked_once_and_only_of_what_has_not_ended(tmp_path: Path, commands: Commands) -> None:
    assert run(tmp_path).exit_code == 0
    before = commands.times("questions")
    statuses(tmp_path)
    assert commands.times("questions") == before + 1
    trained = ["run", str(tmp_path / "tiny.yaml"), "--results", str(tmp_path / "results"), "-q"]
    time.sleep(1)  # records count whole seconds
    assert CliRunner().invoke(app, trained).exit_code == 0
    assert statuses(tmp_path) == {"msssm-s6": "finished", "mamba": "finished"}
    assert commands.times("questions") == before + 1


@pytest.mark.usefixtures("tiny_file")
def test_a_refused_submission_leaves_nothing_behind(tmp_path: Path, commands: Commands) -> None:
    commands.has("refuse")
    refused = run(tmp_path)
    assert refused.exit_code == 2
    assert "not submitted: sbatch: error: invalid partition" in refused.stderr
    assert list_submissions(tmp_path / "results") == ([], [])
    assert not list((tmp_path / "results" / ".slurm").glob("msbench-*"))


@pytest.mark.usefixtures("tiny_file")
def test_a_dry_run_shows_the_script_and_touches_nothing(tmp_path: Path, commands: Commands) -> None:
    shown = run(tmp_path, "--dry-run", "--json")
    assert shown.exit_code == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert "#SBATCH --signal=B:USR1@120\n" in document["script"]
    assert "export MSBENCH_OFFLINE=1\n" in document["script"]
    assert [row["model"] for row in document["runs"]] == ["msssm-s6", "mamba"]
    assert not (tmp_path / "results").exists()
    assert commands.times("submissions") == 0


@pytest.mark.usefixtures("tiny_file")
def test_an_enclosing_job_leaks_nothing_into_the_new_one(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = ("SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT", "SUBMITIT_EXECUTOR", "LOCAL_RANK", "SLURM_CONF")
    for name in (*jobs, "SBATCH_JOB_NAME", "SBATCH_ACCOUNT"):
        monkeypatch.setenv(name, "5")
    assert run(tmp_path).exit_code == 0
    leaked = {name for name in commands.environment if name.startswith(("SLURM_", "SUBMITIT_", "SBATCH_"))}
    # sbatch takes a name from there rather than from the script, by which jobs are then looked for.
    assert leaked == {"SLURM_CONF", "SBATCH_ACCOUNT"}
    assert "LOCAL_RANK" not in commands.environment
    assert os.environ["SLURM_ARRAY_JOB_ID"] == "5"


@pytest.mark.usefixtures("tiny_file")
def test_a_folder_that_a_shell_would_take_apart_stays_one_word(tmp_path: Path, commands: Commands) -> None:
    hostile = tmp_path / "a $(touch gone); b"
    assert run(tmp_path, "--results", str(hostile)).exit_code == 0
    last = commands.script.rstrip().splitlines()[-1]
    assert shlex.split(last)[-1].startswith(f"{hostile}/.slurm/msbench-tiny-")
    percent = run(tmp_path, "--results", str(tmp_path / "50%j"))
    assert percent.exit_code == 2
    assert "'%'" in percent.stderr
    lines = run(tmp_path, "--results", str(tmp_path / "a\ntouch gone"))
    assert lines.exit_code == 2
    assert "a line break" in lines.stderr
    assert commands.times("submissions") == 1


@pytest.mark.usefixtures("tiny_file")
def test_missing_commands_are_reported_before_any_work(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    (commands.folder / "sbatch").unlink()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(commands.folder))
        assert "no sbatch on PATH" in run(tmp_path).stderr
    monkeypatch.setitem(sys.modules, "submitit.slurm", None)
    absent = run(tmp_path)
    assert absent.exit_code == 2
    assert "pip install 'msssm-bench[slurm]'" in absent.stderr
    assert not (tmp_path / "results").exists()


def test_options_of_one_launcher_are_refused_by_the_other(tiny_file: Path) -> None:
    for words in (["--wait"], ["--profile", "x.yaml"], ["--launcher", "slrum"]):
        refused = CliRunner().invoke(app, ["run", str(tiny_file), *words])
        assert refused.exit_code == 2
    assert "did you mean 'slurm'" in refused.stderr


@pytest.mark.usefixtures("tiny_file")
def test_the_script_trains_its_run_as_the_suite_was(tmp_path: Path, commands: Commands) -> None:
    assert run(tmp_path, "--model", "mamba").exit_code == 0
    (tmp_path / "tiny.yaml").write_text("name: edited since\n", encoding="utf-8")
    done = subprocess.run(
        ["bash", commands.folder / "script.sh"], env={**os.environ, **SHELL}, timeout=120, check=False
    )
    assert done.returncode == 0
    (record,), _ = store.read_records(tmp_path / "results")
    assert (record.run_id, record.status) == (only(tmp_path).runs[0].run_id, "finished")
    commands.queue()
    assert statuses(tmp_path) == {"mamba": "finished"}


@pytest.mark.usefixtures("tiny_file", "commands")
def test_data_that_cannot_be_set_up_are_not_left_to_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tmp_path / "tiny.yaml").read_text(encoding="utf-8")
    missing = "  image:\n    data: {dataset: mnist}\nmodel:"
    (tmp_path / "tiny.yaml").write_text(text.replace("model:", missing, 1), encoding="utf-8")
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    partly = run(tmp_path)
    assert partly.exit_code == 6, partly.stderr
    assert "MSBENCH_OFFLINE forbids downloading it" in partly.stderr
    assert {element.task for element in only(tmp_path).runs} == {"listops-tiny"}


@pytest.mark.usefixtures("tiny_file")
def test_waiting_ends_with_the_jobs_and_reports_failures(tmp_path: Path, commands: Commands) -> None:
    commands.queue()
    waited = run(tmp_path, "--wait")
    # Nothing is in the queue, and nothing was trained.
    assert waited.exit_code == 3


@pytest.mark.usefixtures("tiny_file")
def test_waiting_is_for_the_jobs_of_this_suite_alone(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path).exit_code == 0
    other = only(tmp_path)
    commands.queue(f"{other.name}|0|RUNNING", f"{other.name}|1|PENDING")
    text = (tmp_path / "tiny.yaml").read_text(encoding="utf-8")
    (tmp_path / "tiny.yaml").write_text(text.replace("name: tiny", "name: second", 1), encoding="utf-8")
    monkeypatch.setattr(slurm, "time", None)  # no waiting, however long
    assert run(tmp_path, "--wait").exit_code == 3
    assert commands.times("submissions") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "cudda"], "did you mean 'cuda'"),
        (["--scan", "trition"], "did you mean 'triton'"),
        (["--container", "dokcer"], "did you mean 'docker'"),
        (["--devices", "4"], "--devices 4: the profile gives a run 2 GPUs"),
    ],
)
@pytest.mark.usefixtures("tiny_file")
def test_what_would_end_every_job_at_once_is_not_submitted(
    words: list[str], message: str, tmp_path: Path, commands: Commands
) -> None:
    (tmp_path / "slurm.yaml").write_text("time: 60\ngpus: a100:2\n", encoding="utf-8")
    refused = run(tmp_path, *words)
    assert refused.exit_code == 2
    assert message in refused.stderr
    assert commands.times("submissions") == 0


@pytest.mark.usefixtures("tiny_file")
def test_a_full_disk_leaves_no_half_of_a_submission(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = slurm_jobs.write_submission

    def full(folder: Path, made: Submission) -> None:
        if (made.job_id is None) == before:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder))
        written(folder, made)

    monkeypatch.setattr(slurm_jobs, "write_submission", full)
    before = True
    refused = run(tmp_path)
    assert refused.exit_code == 2
    assert "No space left on device" in refused.stderr
    assert commands.times("submissions") == 0
    assert not list((tmp_path / "results" / ".slurm").glob("msbench-*"))
    before = False
    reported = run(tmp_path)
    assert reported.exit_code == 0
    assert "No space left on device; make room" in reported.stderr
    assert "submitted 2 runs as job 77" in reported.stderr
    assert only(tmp_path).job_id is None


@pytest.mark.usefixtures("tiny_file")
def test_what_is_printed_can_be_copied(tmp_path: Path, commands: Commands) -> None:
    done = run(tmp_path, "--results", str(tmp_path / "my results"))
    assert commands.times("submissions") == 1
    assert f"msbench list runs --results '{tmp_path}/my results'   or" in done.stderr


@pytest.mark.usefixtures("tiny_file")
def test_a_second_command_waits_for_the_first_and_says_so(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "results" / ".slurm"
    folder.mkdir(parents=True)
    first = filelock.FileLock(folder / "submit.lock")
    first.acquire()
    reported: list[str] = []

    def say(text: str) -> None:
        reported.append(text)
        first.release()

    monkeypatch.setattr(slurm, "say", say)
    assert run(tmp_path).exit_code == 0
    assert reported == ["waiting for another command that submits from these results"]
    assert commands.times("submissions") == 1
