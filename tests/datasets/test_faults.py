"""Processes that die, are many, or have no room: what looks complete is, and the next call goes on."""

import gzip
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from archives import FILES, FORMATS
from faulty_server import FaultyServer, serving, slowly, status, whole
from typer.testing import CliRunner

from msbench.cli import app
from msbench.datasets.dataset import ignore_progress
from msbench.datasets.download import RemoteFile, RetryPolicy, fetch_file
from msbench.datasets.listops import dataset as listops
from msbench.errors import ExitCode

CONTENT = gzip.compress(random.Random(0).randbytes(400_000), mtime=0)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"

FETCH = """\
import os, sys
from pathlib import Path
from msbench.datasets.download import RemoteFile, fetch_file
from msbench.errors import MsbenchError
from msbench.training.signals import SignalFlag

url, digest, folder = sys.argv[1:]

with SignalFlag() as signals:
    def progress(what, done, total):
        signals.check()
        if what.startswith("fetching") and done >= 0.4 * total:
            Path(folder, "fetching").write_text(str(os.getpid()))
    try:
        fetch_file(RemoteFile(url, "data.tar.gz", digest, "gzip", "tiny"), Path(folder), progress)
    except MsbenchError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
"""


def start(server: FaultyServer, folder: Path, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FETCH, server.url, DIGEST, str(folder)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def who_fetches(folder: Path) -> int:
    """The process that has four tenths of the file; waits until there is one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            return int((folder / "fetching").read_text())
        except (OSError, ValueError):
            time.sleep(0.01)
    raise AssertionError("nobody fetches")


def rest_of(server: FaultyServer) -> int:
    """From which byte on the second request was; there were two."""
    first, second = server.ranges
    assert first is None
    assert second is not None
    return int(second.removeprefix("bytes=").removesuffix("-"))


def test_killed_before_every_step_it_goes_on(tmp_path: Path) -> None:
    content = FORMATS["tar.gz"](FILES)
    digest = f"md5:{hashlib.md5(content).hexdigest()}"
    script = Path(__file__).with_name("crash_points.py")
    with serving(whole(content)) as server:
        command = [sys.executable, str(script), server.url, digest, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    steps = done.stdout.splitlines()
    assert "unexpected" not in done.stdout
    for phase in (
        "open data.tar.gz.part",
        "fetching data.tar.gz",
        "checking data.tar.gz.part",
        "os.rename data.tar.gz.part",
        "os.remove data.tar.gz.part.json",
        "reading data.tar.gz",
        "open file4.bin",
        "open .unpacked.json",
        "open tokens.npy",
        "open manifest.json",
    ):
        assert phase in steps, (phase, steps)
    assert sum(step.startswith("os.rename .") for step in steps) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_download(tmp_path: Path, number: signal.Signals) -> None:
    with serving(slowly(CONTENT, 0.02), whole(CONTENT)) as server:
        with start(server, tmp_path) as process:
            assert who_fetches(tmp_path) == process.pid
            process.send_signal(number)
            _, message = process.communicate(timeout=30)
        assert process.returncode == {2: 130, 15: 143, 9: -9}[number], message
        assert not (tmp_path / "data.tar.gz").exists()
        remote = RemoteFile(server.url, "data.tar.gz", DIGEST, "gzip", "tiny")
        assert fetch_file(remote, tmp_path, ignore_progress).read_bytes() == CONTENT
        assert rest_of(server) > 0.3 * len(CONTENT)


def test_of_four_processes_one_fetches_and_when_it_is_killed_another_goes_on(tmp_path: Path) -> None:
    with serving(slowly(CONTENT, 0.02)) as server:
        processes = [start(server, tmp_path) for _ in range(4)]
        killed = who_fetches(tmp_path)
        os.kill(killed, signal.SIGKILL)
        messages = [process.communicate(timeout=60)[1] for process in processes]
        assert sorted(process.returncode for process in processes) == [-9, 0, 0, 0], messages
        assert next(process.returncode for process in processes if process.pid == killed) == -9
        assert rest_of(server) > 0.3 * len(CONTENT)
    assert (tmp_path / "data.tar.gz").read_bytes() == CONTENT


def test_a_disk_that_gets_full_is_one_message_and_what_came_is_kept(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 2, len(CONTENT) // 2))

    with serving(whole(CONTENT)) as server:
        with start(server, tmp_path, preexec_fn=limit) as process:
            _, message = process.communicate(timeout=30)
        assert process.returncode == ExitCode.DATA
        assert message.count("\n") == 1
        assert "data.tar.gz.part cannot be written: File too large" in message
        assert not (tmp_path / "data.tar.gz").exists()
        fetch_file(RemoteFile(server.url, "data.tar.gz", DIGEST, "gzip", "tiny"), tmp_path)
        assert rest_of(server) == len(CONTENT) // 2


def test_the_command_says_it_in_one_line_and_ends_in_6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path))
    with serving(status(403)) as server:
        remote = RemoteFile(server.url, "data.tar.gz", None, "gzip", "listops")
        monkeypatch.setattr(
            listops,
            "_generate",
            lambda *_: fetch_file(remote, tmp_path, ignore_progress, RetryPolicy(timeout=1, attempts=1)),
        )
        done = CliRunner().invoke(app, ["setup", "listops"])
    assert done.exit_code == ExitCode.DATA
    (line,) = (line for line in done.stderr.splitlines() if "HTTP 403" in line)
    assert line.startswith(f"msbench: listops: {server.url}: the server refuses it (HTTP 403); if you have")
    assert not any(path.name.startswith("data.tar.gz") for path in tmp_path.iterdir())
