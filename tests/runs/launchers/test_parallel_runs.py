"""Runs in parallel: the numbers of one after the other, and nothing is lost however they are stopped."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ranks import until
from same_results import assert_same
from typer.testing import CliRunner

from msbench.cli import app
from msbench.results import store

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--launcher", "slurm"], "Slurm has max_parallel, in its profile"),
        (["--devices", "2"], "leave --devices out"),
    ],
)
def test_what_it_does_not_go_with_is_refused(options: list[str], said: str) -> None:
    refused = CliRunner().invoke(app, ["run", "quick", "--jobs", "2", *options])
    assert refused.exit_code == 2
    assert said in refused.stderr


def test_the_same_runs_as_one_after_the_other_of_which_a_failed_one_leaves_the_others(
    tiny_file: Path, tmp_path: Path
) -> None:
    with tiny_file.open("a", encoding="utf-8") as file:
        file.write("  s4d-lin: {model: {state: 4}, train: {lr: 1e30}}\n")
    words = ["run", str(tiny_file), "--threads", "1"]
    alone, parallel = tmp_path / "alone", tmp_path / "parallel"
    one = CliRunner().invoke(app, [*words, "--results", str(alone), "--quiet"])
    two = subprocess.run(
        [sys.executable, "-m", "msbench", *words, "--results", str(parallel), "--jobs", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (one.exit_code, two.returncode) == (3, 3), two.stderr
    assert_same(parallel, alone)
    found = json.loads(two.stdout)
    assert [each["status"] for each in found] == ["finished", "finished", "diverged"]
    assert [each["environment"]["threads"] for each in found] == [1, 1, 1]
    assert sorted(re.findall(r"seed 0: ended, (\d) of 3", two.stderr)) == ["1", "2", "3"]
    # Nothing is left to be trained, and that a run had diverged is reported again.
    again = CliRunner().invoke(app, [*words, "--results", str(parallel), "--jobs", "2"])
    assert again.exit_code == 3
    assert "ended" not in again.stderr
    assert again.stdout == one.stdout


def test_a_terminal_gets_one_bar_and_the_errors_of_all_above_it(tiny_file: Path, tmp_path: Path) -> None:
    with tiny_file.open("a", encoding="utf-8") as file:
        file.write("  s4d-lin: {model: {state: 4}, train: {lr: 1e30}}\n")
    words = ["run", str(tiny_file), "--model", "mamba", "--model", "s4d-lin", "--jobs", "2"]
    words += ["--results", str(tmp_path / "results")]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "msbench", *words]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = read_terminal(ours)
    assert process.returncode == 3
    assert shown.startswith(f"msbench: planning {tiny_file}\r\n")
    assert len(re.findall(r"seed 0: ended, \d of 2", shown)) == 2
    assert "2/2" in shown
    assert re.search("runs .* s0", shown)
    assert ": epoch " not in shown


def read_terminal(number: int) -> str:
    """Return all that is written to a pseudo terminal until nobody has it open."""
    found = b""
    with suppress(OSError), os.fdopen(number, "rb", buffering=0) as stream:
        while more := stream.read(65536):
            found += more
    return found.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_or_killed_command_leaves_saved_runs_that_resume(
    number: signal.Signals, tiny_file: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    with training(tiny_file, results) as process:
        process.send_signal(number)
        process.wait(60)
    assert process.returncode == (143 if number == signal.SIGTERM else -9)
    assert_saved(results)


@LINUX
def test_a_signal_to_all_processes_at_once_kills_none_before_it_has_saved(
    tiny_file: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    with training(tiny_file, results) as process:
        for each in (*children(process), process.pid):
            os.kill(each, signal.SIGTERM)
        process.wait(60)
    assert process.returncode == 143
    assert_saved(results)


@LINUX
def test_a_killed_run_is_reported_and_fails_the_command_despite_an_earlier_record(
    tiny_file: Path, tmp_path: Path
) -> None:
    words = ["run", str(tiny_file), "--results", str(tmp_path / "results")]
    assert CliRunner().invoke(app, [*words, "--quiet"]).exit_code == 0
    with started([*words, "--fresh", "--jobs", "2"]) as process:
        until(lambda: len(children(process)) == 2)
        os.kill(children(process)[0], signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "ended by SIGKILL; the same command resumes from its checkpoint" in said
    assert "seed 0: ended, 2 of 2" in said


def test_two_commands_share_the_runs_and_both_report_all(tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["run", str(tiny_file), "--model", "mamba", "--results", str(results), "--jobs", "2"]
    words += ["--set", "train.epochs=2", *(word for seed in "012" for word in ("--seed", seed))]
    with started(words) as one, started(words) as other:
        outputs = [process.communicate(timeout=180) for process in (one, other)]
    assert [one.returncode, other.returncode] == [0, 0], outputs
    assert all(out.count("finished") == 3 for out, _ in outputs)
    trained = re.findall(r" · mamba · seed (\d): epoch (\d)/2", "".join(said for _, said in outputs))
    assert sorted(trained) == [(seed, epoch) for seed in "012" for epoch in "12"]


def test_data_that_cannot_be_set_up_end_as_they_do_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    words = ["run", "laptop-smnist", "--results", str(tmp_path / "results")]
    alone, parallel = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--jobs", "2"]))
    assert (alone.exit_code, parallel.exit_code) == (6, 6)
    assert parallel.stdout == alone.stdout
    planning, _, _, error, *_ = alone.stderr.splitlines()
    assert parallel.stderr.splitlines() == [planning, error]  # said once, not for each run


@contextmanager
def training(suite: Path, results: Path) -> "Iterator[subprocess.Popen[str]]":
    """A command whose first two runs, of four, have been at it for an epoch and are far from their end."""
    words = ["run", str(suite), "--set", "train.epochs=2000", "--results", str(results), "--jobs", "2"]
    with started([*words, "--seed", "0", "--seed", "1"]) as process:
        until(lambda: len(list(results.rglob("metrics.csv"))) == 2)
        yield process


def started(words: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "msbench", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(process: "subprocess.Popen[str]") -> list[int]:
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="ascii")
    return [int(word) for word in listed.split()]


def assert_saved(results: Path) -> None:
    """Two runs were stopped, with a record each, and no other was started."""
    until(lambda: len(list(results.rglob("run.json"))) == 2)
    assert [record.status for record in store.read_records(results)[0]] == ["interrupted"] * 2
    assert len(store.list_run_folders(results).folders) == 2
