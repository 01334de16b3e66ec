"""Safe reading of files, and the folders of an installed package."""

import os
import sysconfig
from pathlib import Path

import pytest

from msbench.results import files
from msbench.results.files import parse_json, read_bytes, require_regular


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
    for read in (read_bytes, require_regular):
        with pytest.raises(OSError, match="not a regular file"):
            read(tmp_path / "x")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    require_regular(tmp_path / "x")
    assert read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        read_bytes(tmp_path / "x", 4)


def test_what_is_nested_too_deeply_is_an_error() -> None:
    assert parse_json(b'{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json("[" * 10**5)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of suites of the system, the user and a target, all of which exist."""
    monkeypatch.setattr(sysconfig, "get_path", lambda _, scheme="system": tmp_path / scheme.split("_")[-1])
    monkeypatch.setattr(files, "__file__", str(tmp_path / "target" / "msbench" / "results" / "files.py"))
    folders = [tmp_path / name / "share" / "msbench" / "suites" for name in ("system", "user", "target")]
    for folder in folders:
        folder.mkdir(parents=True)
    return folders


def test_the_system_comes_before_the_user_and_a_target_folder_last(installed: list[Path]) -> None:
    assert files.list_installed_folders("suites") == installed


def test_a_home_of_somebody_else_is_passed_over(
    installed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    system, user, target = installed
    monkeypatch.setattr(os, "access", lambda path, _mode: path != user)
    assert files.list_installed_folders("suites") == [system, target]
