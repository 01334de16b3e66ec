"""Standard output and standard error that are closed, on a full disk, or have lost their reader."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.errors import ExitCode
from msbench.results import store

FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
LOST = "msbench: standard output: cannot be written: "
UNWRITABLE = [">/dev/full", ">&-"]
SILENT = ["2>/dev/full", "2>&-"]
pytestmark = FULL


def shell(words: str, redirected: str, *, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A command of the shell, with `msbench` as this one; what is not redirected is captured."""
    # A function, because replacing the word would also change paths such as that of a checkout.
    this = f'msbench() {{ "{sys.executable}" -m msbench "$@"; }}'
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {this}; {words} {redirected}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    """A folder with a suite and the results of one of its models, with which no other belongs together."""
    from conftest import TINY_SUITE

    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(TINY_SUITE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(shared_data))
        patch.chdir(folder)
        assert CliRunner().invoke(app, ["run", "tiny.yaml", "--model", "mamba"]).exit_code == 0
    return folder


SHOWN = ["--version", "run --help", "list suites", "list runs --json", "show tiny:listops-tiny:mamba"]
SHOWN += ["run tiny.yaml --model mamba", "report tiny.yaml"]


@pytest.mark.parametrize("redirected", UNWRITABLE)
@pytest.mark.parametrize("words", SHOWN)
def test_data_that_cannot_be_printed_are_one_message_and_a_usage_error(
    words: str, redirected: str, trained: Path
) -> None:
    done = shell(f"msbench {words}", redirected, folder=trained)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert done.stderr.count(LOST) == 1
    assert done.stderr.splitlines()[-1].startswith(LOST)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("redirected", SILENT)
@pytest.mark.parametrize("words", ["list models", "list runs --json", "run tiny.yaml --model mamba --json"])
def test_messages_that_cannot_be_printed_change_nothing(words: str, redirected: str, trained: Path) -> None:
    done, usual = (shell(f"msbench {words}", each, folder=trained) for each in (redirected, ""))
    assert (done.returncode, done.stdout) == (0, usual.stdout)
    assert done.stderr == ""


@pytest.mark.parametrize("redirected", [*UNWRITABLE, *SILENT, ">&- 2>&- <&-", "| true"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("check tiny.yaml --strict", ExitCode.GATE_FAILED),
        ("run", ExitCode.USAGE),
        ("nosuch", ExitCode.USAGE),
    ],
)
def test_a_verdict_and_an_error_keep_their_code(
    words: str, code: ExitCode, redirected: str, trained: Path
) -> None:
    done = shell(f"msbench {words}", redirected, folder=trained)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("words", "reader"), [*((each, "true") for each in SHOWN), ("list models", "head -n 1")]
)
def test_a_reader_that_went_away_is_no_fault(words: str, reader: str, trained: Path) -> None:
    done = shell(f"msbench {words}", f"| {reader}", folder=trained)
    assert done.returncode == 0, done.stderr
    assert LOST not in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("options", "redirected"),
    [("", "2>/dev/full"), ("", "2>&-"), ("", ">/dev/full 2>/dev/full"), ("--jobs 2", ">&- 2>&- <&-")],
)
def test_training_goes_on_to_its_end(options: str, redirected: str, tiny_file: Path, tmp_path: Path) -> None:
    done = shell(f"msbench run tiny.yaml {options} --results here", redirected, folder=tiny_file.parent)
    assert done.returncode == (0 if redirected.startswith("2") else ExitCode.USAGE), done.stderr
    assert [record.status for record in store.read_records(tmp_path / "here")[0]] == ["finished"] * 2
    assert done.stderr == ""


def test_a_failed_run_is_one_wherever_its_table_goes(tiny_file: Path) -> None:
    words = "msbench run tiny.yaml --model mamba --set train.lr=1e30 --results here"
    done = [shell(words, each, folder=tiny_file.parent) for each in (*UNWRITABLE, "2>/dev/full", "| true")]
    assert [each.returncode for each in done] == [ExitCode.RUN_FAILED] * 4
    assert [each.stderr.count(LOST) for each in done] == [1, 1, 0, 0]


def test_a_setup_with_worker_processes_does_without_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    sets = "--set data.train=6000 --set data.min_length=5 --set data.max_length=60"
    done = shell(f"msbench setup listops {sets} --json", "2>/dev/full", folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)[0]["ready"]


def test_what_a_library_writes_to_closed_streams_reaches_no_file(tmp_path: Path) -> None:
    """The next file that is opened would have the number of the closed stream."""
    program = (
        "import os, sys; from msbench import console; console.prepare_streams()\n"
        "with open('kept', 'wb') as file:\n"
        "    for number in (1, 2):\n        os.write(number, b'noise')\n"
        "    file.write(str(file.fileno()).encode())\n"
    )
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    done = shell(f'"{sys.executable}" program.py', ">&- 2>&- <&-", folder=tmp_path)
    assert done.returncode == 0
    assert int((tmp_path / "kept").read_text(encoding="ascii")) > 2
    assert "noise" not in (tmp_path / "kept").read_text(encoding="ascii")


def test_room_that_comes_back_lets_later_messages_through() -> None:
    """A pipe that does not block and is full stands for a disk."""
    program = (
        "import os, sys; from msbench import console; console.prepare_streams()\n"
        "reader, writer = os.pipe(); os.set_blocking(writer, False); os.dup2(writer, 2)\n"
        "os.write(writer, bytes(65536)); console.say('lost')\n"
        "os.read(reader, 65536); console.say('shown'); print(os.read(reader, 65536).decode())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "shown\n\n")


@pytest.mark.skipif(sys.platform != "linux", reason="what a terminal does that is gone differs by system")
def test_a_bar_outlives_its_terminal(tiny_file: Path, tmp_path: Path) -> None:
    """As of a command that ignores SIGHUP: each write to a terminal that was closed fails."""
    results, (ours, theirs) = tmp_path / "results", os.openpty()
    words = ["run", str(tiny_file), "--model", "mamba", "--set", "train.epochs=8", "--results", str(results)]
    process = subprocess.Popen(
        [sys.executable, "-m", "msbench", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while b"epoch 1/8" not in shown:
        shown += os.read(ours, 65536)
    os.close(ours)
    assert process.wait(120) == 0
    assert [record.status for record in store.read_records(results)[0]] == ["finished"]
