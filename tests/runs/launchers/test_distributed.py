"""Several processes of one command: signals reach all of them, none outlives the others, one speaks."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import ranks
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import ConfigError, Lost
from msbench.results import store
from msbench.runs.launchers import distributed, is_placed
from msbench.runs.launchers.distributed import check_count, join_processes, run_processes
from msbench.training import process_group
from msbench.training.signals import SignalFlag

HEAD = "import os, signal, sys, time; rank = int(os.environ['RANK'])\n"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", HEAD + text]


def lines(folder: Path, text: str) -> str:
    """Code that writes down what a process saw."""
    return f"open({str(folder)!r} + f'/{{rank}}', 'a').write({text} + chr(10))\n"


def once(there: Callable[[], bool], then: Callable[[], None]) -> threading.Thread:
    """A thread that does something when something is there."""

    def watch() -> None:
        end = time.monotonic() + 30
        while not there() and time.monotonic() < end:
            time.sleep(0.02)
        then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_each_process_gets_its_rank(tmp_path: Path) -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    seen = f"' '.join(os.environ[name] for name in {names})"
    assert run_processes(3, python(lines(tmp_path, seen))) == 0
    words = [(tmp_path / str(rank)).read_text().split() for rank in range(3)]
    assert [each[:5] for each in words] == [[str(n), str(n), "3", "3", "127.0.0.1"] for n in range(3)]
    assert len({each[5] for each in words}) == 1


@pytest.mark.parametrize(("ends", "code"), [([3, 3], 3), ([143, 143], 143), ([0, 6], 6), ([130, 3], 130)])
def test_the_exit_code_is_that_of_the_processes(ends: list[int], code: int) -> None:
    assert run_processes(2, python(f"sys.exit({ends}[rank])")) == code


def test_where_one_is_killed_the_others_end_in_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(distributed, "GRACE", 0.5)
    began = time.monotonic()
    assert run_processes(3, python("os.kill(os.getpid(), 9) if rank == 1 else time.sleep(60)")) == 3
    assert time.monotonic() - began < 20
    assert "process 1 of 3 by SIGKILL" in capsys.readouterr().err


def test_the_first_process_may_print_after_another_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "GRACE", 0.0)
    assert run_processes(2, python("time.sleep(1) if rank == 0 else None")) == 0


def test_a_signal_is_passed_on_to_all(tmp_path: Path) -> None:
    wait = "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(143))\n" + lines(tmp_path, "'ready'")
    thread = once(lambda: len(list(tmp_path.iterdir())) == 2, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.getsignal(signal.SIGUSR1)
    assert run_processes(2, python(wait + "time.sleep(60)")) == 143
    thread.join()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_processes_that_a_passed_signal_kills_were_interrupted(tmp_path: Path) -> None:
    child = python("signal.signal(2, signal.SIG_DFL)\n" + lines(tmp_path, "'ready'") + "time.sleep(60)")
    thread = once(lambda: len(list(tmp_path.iterdir())) == 2, lambda: os.kill(os.getpid(), signal.SIGINT))
    assert run_processes(2, child) == 130
    thread.join()


def test_processes_save_and_end_where_the_one_that_looks_after_them_is_killed(tmp_path: Path) -> None:
    stop = (
        "signal.signal(signal.SIGTERM, lambda *_: ["
        + lines(tmp_path, "'saved'").strip()
        + ", os._exit(0)])\n"
    )
    hold = (
        "from msbench.runs.launchers.distributed import watch_lifeline\n"
        "from msbench.training.signals import SignalFlag\nwatch_lifeline(SignalFlag())\n"
    )
    child = python(stop + hold + lines(tmp_path, "'ready'") + "time.sleep(60)")
    code = f"from msbench.runs.launchers.distributed import run_processes; run_processes(2, {child!r})"
    written = [tmp_path / "0", tmp_path / "1"]
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        once(lambda: all(path.exists() for path in written), parent.kill).join()
    once(lambda: all("saved" in path.read_text() for path in written), lambda: None).join()
    assert [path.read_text() for path in written] == ["ready\nsaved\n"] * 2


def test_more_devices_than_available_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match="4 devices were asked for, but 2 CUDA devices can be used here"):
        check_count(4, "cuda")
    check_count(2, "cuda")
    check_count(4, "cpu")


def test_another_number_than_was_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_placed()
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert is_placed()
    check_count(1, "cpu")
    check_count(4, "cpu")
    with pytest.raises(ConfigError, match="--devices 2: but 4 processes were started"):
        check_count(2, "cpu")
    for option in (["--launcher", "slurm"], ["--container", "docker"]):
        refused = CliRunner().invoke(app, ["run", "quick", *option])
        assert refused.exit_code == 2
        assert f"{option[0]}" in refused.stderr
        assert "not within torchrun" in refused.stderr
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not is_placed()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("WORLD_SIZE", text) for text in ("x", "", "-2", "0", "2.0", "٢", "9" * 5000)),
        *(("RANK", text) for text in ("x", "4", "-1")),
        *(("LOCAL_RANK", "y"), ("LOCAL_WORLD_SIZE", "0"), ("LOCAL_WORLD_SIZE", "3")),
    ],
)
def test_ranks_that_are_no_numbers_are_named(name: str, value: str) -> None:
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", name: value}
    refused = CliRunner().invoke(app, ["run", "quick", "--dry-run"], env=ranks)
    assert refused.exit_code == 2, refused.exception
    assert f"{name}={value[:40]}" in refused.stderr
    assert "unset it, or start the processes with torchrun" in refused.stderr


@pytest.mark.parametrize("port", ["x", "", "-1", "65536", "99999", "1e4"])
def test_a_port_that_is_none_is_named(port: str, tiny_file: Path, tmp_path: Path) -> None:
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = ["run", str(tiny_file), "--model", "mamba", "--results", str(tmp_path / "results")]
    refused = CliRunner().invoke(app, words, env=ranks | place)
    assert refused.exit_code == 2, refused.exception
    assert f"msbench: MASTER_PORT={port}: must be a whole number from 0 to 65,535; " in refused.stderr


def test_modules_of_the_working_folder_are_imported_only_where_they_were(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "this.py").write_text("raise SystemExit('this one')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    codes = []
    for first in ("/usr/bin", str(tmp_path)):
        monkeypatch.setattr(sys, "path", [first, *sys.path[1:]])
        done = subprocess.run(
            [*distributed.build_python_command(), "-m", "this"], capture_output=True, check=False
        )
        codes.append(done.returncode)
    assert codes == [0, 1]


def test_processes_that_do_not_meet_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_group, "TIMEOUT", timedelta(seconds=1))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])  # where nobody listens
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": "1"}
        for name, value in {**place, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}.items():
            monkeypatch.setenv(name, value)
        with (
            pytest.raises(Lost, match=f"2 processes of a run did not meet at 127.0.0.1:{port}"),
            join_processes("cpu", SignalFlag()),
        ):
            pytest.fail("nobody was there")


def rows(results: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in results.rglob("metrics.csv"))


def after_another_epoch(results: Path, then: Callable[[], None]) -> None:
    before = rows(results)
    once(lambda: rows(results) > before, then).join()


def test_a_killed_and_a_stopped_process_end_the_command_which_then_resumes(
    tiny_file: Path, tmp_path: Path, shared_data: Path
) -> None:
    results = tmp_path / "results"
    words = ["run", str(tiny_file), "--model", "mamba", "--set", "train.epochs=15", "--results", str(results)]
    environment = {"MSBENCH_DATA": str(shared_data)}

    started = ranks.start(2, ranks.command, words, tmp_path, environment=environment)
    after_another_epoch(results, started[1].kill)
    began = time.monotonic()
    assert ranks.ended(started) == [3, -9]
    assert time.monotonic() - began < 20
    (record,), _ = store.read_records(results)
    assert record.failure is not None
    assert (record.status, record.failure.type) == ("failed", "Lost")
    assert "the same command goes on from the last checkpoint" in record.failure.message

    started = ranks.start(2, ranks.command, words, tmp_path, environment=environment)
    after_another_epoch(results, started[1].terminate)
    assert ranks.ended(started) == [143, 143]
    (record,), _ = store.read_records(results)
    assert (record.status, record.resumed) == ("interrupted", 1)
    assert re.search(r"resumed at step \d+ of 120", (tmp_path / "err-0").read_text())
    assert "SIGTERM: saved; the same command resumes" in (tmp_path / "err-0").read_text()
    assert (tmp_path / "err-1").read_text() == (tmp_path / "out-1").read_text() == ""

    done = CliRunner().invoke(app, [*words, "--quiet"])
    assert done.exit_code == 0, done.stderr
    (record,), _ = store.read_records(results)
    assert (record.status, record.resumed, record.steps) == ("finished", 2, 120)
    assert [attempt["devices"] for attempt in record.attempts] == ["2", "2", "1"]
