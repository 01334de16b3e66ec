import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from msbench.datasets.disk import locked, require_space, shortage, sync_folder, temporary_folder
from msbench.datasets.progress import silent
from msbench.errors import DataError, Interrupted

HOLDS = """\
import sys, time
from pathlib import Path
from msbench.datasets.disk import locked
from msbench.datasets.progress import silent

with locked(Path(sys.argv[1]), silent):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_is_for_one_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    waited: list[str] = []
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        def kill(what: str, _done: int, _total: int) -> None:
            waited.append(what)
            process.kill()

        with locked(path, kill):
            assert waited == ["waiting for another process"]
    with locked(path, silent):
        assert not path.exists()


def test_waiting_can_be_stopped_and_leaves_the_lock_alone(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise Interrupted(signal.SIGINT)

    lock = filelock.FileLock(tmp_path / ".file.lock")
    with lock, pytest.raises(Interrupted), locked(tmp_path / "file", stop):
        pass
    with locked(tmp_path / "file", silent):
        pass


def test_shortage_counts_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1234)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    assert shortage(tmp_path, 1234) == ""
    assert shortage(tmp_path, 1235).startswith(f"1,235 bytes are needed and {tmp_path} has 1,234 free")
    require_space(tmp_path, 1234, "signals")
    with pytest.raises(DataError, match="signals: 1,235 bytes are needed"):
        require_space(tmp_path, 1235, "signals")


def test_what_is_synced_is_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    sync_folder(tmp_path)
    assert synced == [tmp_path.stat().st_ino]


def test_a_temporary_folder_of_a_process_that_died_goes_and_one_in_use_stays(tmp_path: Path) -> None:
    (tmp_path / ".x-dead" / "deep").mkdir(parents=True)
    (tmp_path / ".other").mkdir()
    with temporary_folder(tmp_path, ".x-") as first:
        (first / "file").touch()
        assert not (tmp_path / ".x-dead").exists()
        with temporary_folder(tmp_path, ".x-") as second:
            assert first != second
            assert (first / "file").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".other"]


def test_a_link_that_is_called_like_a_temporary_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / ".x-link").symlink_to("precious")
    with temporary_folder(tmp_path, ".x-"):
        assert (tmp_path / "precious").exists()
    assert (tmp_path / ".x-link").is_symlink()
