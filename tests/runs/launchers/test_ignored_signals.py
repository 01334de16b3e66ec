"""Signals that were ignored when a command began, as under `nohup` and in a script's background, stay so."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from ranks import until
from typer.testing import CliRunner

from msbench.cli import app, array_job
from msbench.errors import CAUGHT
from msbench.results import store
from msbench.runs.launchers.distributed import forward_signals
from msbench.training.signals import SignalFlag

IGNORED = (signal.SIGHUP, signal.SIGINT)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
INSTALLERS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "run": SignalFlag,
    "jobs, devices and containers": lambda: forward_signals([]),
    "slurm": array_job._record_signals,
}


@pytest.mark.parametrize("number", CAUGHT)
@pytest.mark.parametrize("name", INSTALLERS)
def test_whatever_handles_signals_leaves_an_ignored_one_alone(name: str, number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with INSTALLERS[name]():
            assert signal.getsignal(number) is signal.SIG_IGN
            os.kill(os.getpid(), number)
            others = [signal.getsignal(each) for each in CAUGHT if each != number]
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
    assert signal.SIG_IGN not in others


def start(words: Sequence[str], ignored: Sequence[int] = IGNORED) -> "subprocess.Popen[str]":
    """A command that was asked to ignore signals, in a process group of its own."""

    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)

    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ignore,
        start_new_session=True,
    )


def family(process: int) -> list[int]:
    """A process and all below it; those that have just ended are left out."""
    try:
        listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [process, *(each for child in listed.split() for each in family(int(child)))]


def send(process: "subprocess.Popen[str]", numbers: Sequence[int]) -> None:
    """To the command and all that it has started, as a terminal that closes does, and more."""
    for each in family(process.pid):
        for number in numbers:
            os.kill(each, number)


@LINUX
@pytest.mark.parametrize("options", [[], ["--jobs", "2"], ["--devices", "2"]], ids=["one", "jobs", "devices"])
def test_training_continues_to_its_end(options: list[str], tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    CliRunner().invoke(app, ["setup", str(tiny_file)])
    words = ["run", str(tiny_file), "--set", "train.epochs=6", "--results", str(results), "--device", "cpu"]
    models = 2 if options[:1] == ["--jobs"] else 1
    words += options if models == 2 else ["--model", "mamba", *options]
    with start([sys.executable, "-m", "msbench", *words]) as process:
        until(lambda: len(list(results.rglob("metrics.csv"))) == models or process.poll() is not None)
        send(process, IGNORED)
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages
    assert [record.status for record in store.read_records(results)[0]] == ["finished"] * models


@LINUX
def test_a_signal_that_is_not_ignored_stops_it(tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    CliRunner().invoke(app, ["setup", str(tiny_file)])
    words = [
        "run",
        str(tiny_file),
        "--set",
        "train.epochs=2000",
        "--results",
        str(results),
        "--device",
        "cpu",
    ]
    with start([sys.executable, "-m", "msbench", *words]) as process:
        until(lambda: bool(list(results.rglob("metrics.csv"))) or process.poll() is not None)
        send(process, IGNORED)
        process.terminate()
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 143, messages
    assert {record.status for record in store.read_records(results)[0]} == {"interrupted"}


@LINUX
def test_a_command_that_nohup_started_outlives_its_terminal(tiny_file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["run", str(tiny_file), "--set", "train.epochs=6", "--results", str(results), "--model", "mamba"]
    with start(["nohup", sys.executable, "-m", "msbench", *words], ignored=()) as process:
        until(lambda: bool(list(results.rglob("metrics.csv"))) or process.poll() is not None)
        os.killpg(process.pid, signal.SIGHUP)
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages


SETUP = """\
import sys
from pathlib import Path

if __name__ == "__main__":
    from msbench.datasets.listops import generate
    from msbench.runs.setup import setup_by_name

    generate.count_default_processes = lambda: 2
    found = setup_by_name(["listops"], None, sys.argv[1:], check_only=False, quiet=False)
    sys.exit(found.exit_code)
"""


@LINUX
def test_a_setup_with_worker_processes_continues_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    script = tmp_path / "setup.py"
    script.write_text(SETUP, encoding="utf-8")
    sets = ["data.train=20000", "data.min_length=5", "data.max_length=60"]
    with start([sys.executable, str(script), *sets]) as process:
        until(lambda: len(family(process.pid)) > 2 or process.poll() is not None)
        send(process, IGNORED)
        _, messages = process.communicate(timeout=120)
    assert process.returncode == 0, messages
    assert list((tmp_path / "data").rglob("manifest.json"))


@LINUX
def test_what_lost_its_starter_saves_though_sigterm_is_ignored(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from msbench.runs.launchers.distributed import watch_lifeline\n"
        "from msbench.training.signals import SignalFlag\n"
        "with SignalFlag() as signals:\n"
        "    watch_lifeline(signals)\n"
        "    while signals.received is None:\n        time.sleep(0.05)\n"
        "Path(sys.argv[1]).touch()\n"
    )
    starter = (
        "import sys, time\nfrom msbench.runs.launchers.distributed import start_held\n"
        "process = start_held([sys.executable, '-c', sys.argv[1], sys.argv[2]], {})\n"
        "print('started', flush=True)\ntime.sleep(60)\n"
    )
    saved = tmp_path / "saved"
    with start([sys.executable, "-c", starter, code, str(saved)], [signal.SIGTERM]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.kill()
    until(saved.exists)
