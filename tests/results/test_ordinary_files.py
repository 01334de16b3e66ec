"""`msbench.results.safe_reads`: nothing is waited for, nothing large is read, nothing is left open."""

import os
from pathlib import Path

import pytest

from msbench.results.safe_reads import parse_json, read_bytes, require_ordinary


def make(path: Path, kind: str) -> None:
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's list of open files")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_ordinary_file_is_refused_and_closed(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "x", kind)
    before = len(os.listdir("/proc/self/fd"))
    for read in (read_bytes, require_ordinary):
        with pytest.raises(OSError, match="no ordinary file"):
            read(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    require_ordinary(tmp_path / "x")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bytes(tmp_path / "x", 4)


def test_what_is_nested_too_deeply_is_an_error() -> None:
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 10**5)
