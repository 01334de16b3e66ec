import hashlib
import os
import time
from pathlib import Path

import pytest

from msbench.datasets import manifest, stamps
from msbench.datasets.progress import silent
from msbench.datasets.stamps import STAMPS, Stamps, distrusted, hash_file, rereading

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
        monkeypatch.setattr(stamps, "hash_file", self)

    def __call__(self, path: Path, *arguments: object) -> str:
        self.files.append(path.name)
        return hash_file(path, *arguments)  # type: ignore[arg-type]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Count:
    return Count(monkeypatch)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """As a new process would ask for it."""
    return Stamps(path.parents[1]).digest(path, algorithm)


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
    assert stamps._settle(int(time.time() - 3) * 10**9)
    assert not stamps._settle(int(time.time()) * 10**9)
    monkeypatch.setattr(stamps, "_settle", lambda _ctime: False)
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
        patch.setattr(stamps, "hash_file", slow)
        digest(path)
    assert digest(path) == hashlib.sha256(DATA[::-1]).hexdigest()


def test_distrusted_every_byte_is_read(path: Path, count: Count) -> None:
    digest(path)
    assert rereading() is None
    with distrusted():
        assert rereading() is silent
        digest(path)
    digest(path)
    assert count.files == ["file", "file"]


def test_renaming_keeps_what_is_known(path: Path, count: Count) -> None:
    known = Stamps(path.parents[1])
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
    memory = path.parents[1] / STAMPS
    line = memory.read_bytes()
    memory.write_bytes(text)
    assert digest(path) == hashlib.sha256(DATA).hexdigest()
    assert count.files == ["file", "file"]
    memory.write_bytes(text + b"\n" + line[: len(line) // 2] + b"\n" + line)
    digest(path)
    assert count.files == ["file", "file"]


def test_where_nothing_can_be_remembered_files_are_hashed_again(path: Path, count: Count) -> None:
    (path.parents[1] / STAMPS).mkdir()
    for _ in range(2):
        assert digest(path) == hashlib.sha256(DATA).hexdigest()
    assert count.files == ["file", "file"]


def test_progress_tells_bytes(path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    hash_file(path, progress=lambda *step: said.append(step))
    assert said == [("checking file", len(DATA), len(DATA))]
    assert hash_file(path, "md5", silent) == hashlib.md5(DATA).hexdigest()


def test_a_dataset_that_is_opened_again_is_not_hashed_again(tmp_path: Path, count: Count) -> None:
    from test_manifest import fill

    folder = tmp_path / "tiny"
    manifest.build(folder, fill, silent)
    manifest.load(folder, "remedy")
    files = len(count.files)
    manifest.load(folder, "remedy")
    assert len(count.files) == files > 0
