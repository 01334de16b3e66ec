import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

from msbench.datasets import disk, manifest
from msbench.datasets.dataset import ignore_progress
from msbench.datasets.disk import (
    HASH_CACHE,
    HashCache,
    describe_shortage,
    distrust_stamps,
    find_reread_progress,
    hash_file,
    lock_path,
    make_temporary_folder,
    require_space,
    sync_folder,
)
from msbench.errors import DataError, Interrupted

HOLDS = """\
import sys, time
from pathlib import Path
from msbench.datasets.disk import lock_path
from msbench.datasets.dataset import ignore_progress

with lock_path(Path(sys.argv[1]), ignore_progress):
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

        with lock_path(path, kill):
            assert waited == ["waiting for another process"]
    with lock_path(path, ignore_progress):
        assert not path.exists()


def test_waiting_can_be_stopped_and_leaves_the_lock_alone(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        raise Interrupted(signal.SIGINT)

    lock = filelock.FileLock(tmp_path / ".file.lock")
    with lock, pytest.raises(Interrupted), lock_path(tmp_path / "file", stop):
        pass
    with lock_path(tmp_path / "file", ignore_progress):
        pass


def test_shortage_counts_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1234)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    assert describe_shortage(tmp_path, 1234) == ""
    assert describe_shortage(tmp_path, 1235).startswith(
        f"1,235 bytes are needed and {tmp_path} has 1,234 free"
    )
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
    with make_temporary_folder(tmp_path, ".x-") as first:
        (first / "file").touch()
        assert not (tmp_path / ".x-dead").exists()
        with make_temporary_folder(tmp_path, ".x-") as second:
            assert first != second
            assert (first / "file").exists()
    assert [path.name for path in tmp_path.iterdir()] == [".other"]


def test_a_link_that_is_called_like_a_temporary_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / ".x-link").symlink_to("precious")
    with make_temporary_folder(tmp_path, ".x-"):
        assert (tmp_path / "precious").exists()
    assert (tmp_path / ".x-link").is_symlink()


DATA = b"0123456789" * 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sub" / "file"
    path.parent.mkdir()
    path.write_bytes(DATA)
    return path


class Count:
    """Count how often a file's bytes are hashed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        monkeypatch.setattr(disk, "hash_file", self)

    def __call__(self, path: Path, *arguments: object) -> str:
        self.files.append(path.name)
        return hash_file(path, *arguments)  # type: ignore[arg-type]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    return Count(monkeypatch)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """As a new process would ask for it."""
    return HashCache(path.parents[1]).digest(path, algorithm)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_what_is_unchanged_is_hashed_once(path: Path, count: Count, algorithm: str) -> None:
    for _ in range(3):
        assert digest(path, algorithm) == hashlib.new(algorithm, DATA).hexdigest()
    assert count.files == ["file"]


def test_hashes_of_one_algorithm_are_none_of_another(path: Path) -> None:
    assert digest(path, "md5") != digest(path, "sha256")
    assert digest(path, "md5") == hashlib.md5(DATA).hexdigest()


def test_a_byte_that_changed_is_seen_though_size_and_mtime_are_the_same(path: Path) -> None:
    """However soon after it was hashed."""
    for number in range(20):
        before = path.stat()
        assert digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()
        with path.open("r+b") as stream:
            stream.write(bytes([number]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_put_in_its_place_is_seen(path: Path) -> None:
    digest(path)
    before = path.stat()
    other = path.with_name("other")
    other.write_bytes(DATA[::-1])
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert digest(path) == hashlib.sha256(DATA[::-1]).hexdigest()


def test_where_the_clock_is_coarse_a_young_file_is_not_trusted(
    path: Path, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert disk._wait_for_clock(int(time.time() - 3) * 10**9)
    assert not disk._wait_for_clock(int(time.time()) * 10**9)
    monkeypatch.setattr(disk, "_wait_for_clock", lambda _ctime: False)
    digest(path)
    digest(path)
    assert count.files == ["file", "file"]


def test_a_file_that_changes_while_it_is_hashed_is_not_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(path: Path, *_: object) -> str:
        found = hash_file(path)
        path.write_bytes(DATA[::-1])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(disk, "hash_file", slow)
        digest(path)
    assert digest(path) == hashlib.sha256(DATA[::-1]).hexdigest()


def test_distrusted_every_byte_is_read(path: Path, count: Count) -> None:
    digest(path)
    assert find_reread_progress() is None
    with distrust_stamps():
        assert find_reread_progress() is ignore_progress
        digest(path)
    digest(path)
    assert count.files == ["file", "file"]


def test_renaming_keeps_what_is_known(path: Path, count: Count) -> None:
    known = HashCache(path.parents[1])
    known.digest(path)
    new = path.with_name("new")
    known.rename(path, new)
    assert digest(new) == hashlib.sha256(DATA).hexdigest()
    assert count.files == ["file"]
    path.write_bytes(DATA[::-1])
    assert digest(path) == hashlib.sha256(DATA[::-1]).hexdigest()


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]\n1\nnull\n\n", b'{"file": "sub/file"}\n', b"\xff\n", b'{"file": [], "algorithm": 1}'],
)
def test_a_damaged_memory_is_none(path: Path, count: Count, text: bytes) -> None:
    digest(path)
    memory = path.parents[1] / HASH_CACHE
    line = memory.read_bytes()
    memory.write_bytes(text)
    assert digest(path) == hashlib.sha256(DATA).hexdigest()
    assert count.files == ["file", "file"]
    memory.write_bytes(text + b"\n" + line[: len(line) // 2] + b"\n" + line)
    digest(path)
    assert count.files == ["file", "file"]


def test_where_nothing_can_be_remembered_files_are_hashed_again(path: Path, count: Count) -> None:
    (path.parents[1] / HASH_CACHE).mkdir()
    for _ in range(2):
        assert digest(path) == hashlib.sha256(DATA).hexdigest()
    assert count.files == ["file", "file"]


def test_progress_tells_bytes(path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    hash_file(path, progress=lambda *step: said.append(step))
    assert said == [("checking file", len(DATA), len(DATA))]
    assert hash_file(path, "md5", ignore_progress) == hashlib.md5(DATA).hexdigest()


def test_a_dataset_that_is_opened_again_is_not_hashed_again(tmp_path: Path, count: Count) -> None:
    from test_manifest import fill

    folder = tmp_path / "tiny"
    manifest.build_folder(folder, fill, ignore_progress)
    manifest.load_arrays(folder, "remedy")
    files = len(count.files)
    manifest.load_arrays(folder, "remedy")
    assert len(count.files) == files > 0
