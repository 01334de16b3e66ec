"""Locks where the system has them, and their refusal where it has none."""

import errno
import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import filelock
import pytest
from typer.testing import CliRunner

from msbench.cli import app
from msbench.datasets.dataset import ignore_progress
from msbench.datasets.disk import lock_path, make_temporary_folder
from msbench.errors import ConfigError, ExitCode
from msbench.results import locks, store
from msbench.runs.launchers import slurm, slurm_jobs

REFUSALS = [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP]
refusals = pytest.mark.parametrize("number", REFUSALS, ids=[errno.errorcode[each] for each in REFUSALS])


def refuse_locks(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)


def _run(folder: Path) -> None:
    with store.lock_run(folder, wait=True):
        pass


def _data(folder: Path) -> None:
    with lock_path(folder / "listops", ignore_progress):
        pass


def _submission(folder: Path) -> None:
    with slurm.lock_submissions(folder):
        pass


LOCK_FILES = [
    (_run, "run.lock"),
    (_data, ".listops.lock"),
    (_submission, f"{slurm_jobs.FOLDER}/submit.lock"),
]


@refusals
@pytest.mark.parametrize(("take", "name"), LOCK_FILES, ids=["run", "data", "slurm"])
def test_a_file_system_without_locks_is_refused_and_nothing_there_blocks_later(
    take: Callable[[Path], None], name: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        refuse_locks(patch, number)
        with pytest.raises(ConfigError, match=r"refuses file locks: .*; choose another ") as caught:
            take(tmp_path)
    assert str(tmp_path) in str(caught.value)
    lock = tmp_path / name
    assert not lock.exists() or (number == errno.ENOLCK and lock.read_bytes() == b"")
    take(tmp_path)  # as in a later command: a marker of the first would make it wait for ever


@refusals
@pytest.mark.parametrize("verb", ["run", "setup"])
def test_commands_end_in_a_usage_error_where_there_are_no_locks(
    verb: str, number: int, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if verb == "setup":
        monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
        place, arguments = tmp_path / "data", ["setup", str(tiny_file)]
    else:
        CliRunner().invoke(app, ["setup", str(tiny_file)])
        place = tmp_path / "results"
        arguments = ["run", str(tiny_file), "--model", "mamba", "--results", str(place)]
    with monkeypatch.context() as patch:
        refuse_locks(patch, number)
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == ExitCode.USAGE, done.stderr
    choice = "MSBENCH_DATA" if verb == "setup" else "--results"
    assert f"{os.strerror(number)}; choose another {choice}" in done.stderr
    assert str(place) in done.stderr
    assert all(path.stat().st_size == 0 for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize(("take", "name"), LOCK_FILES, ids=["run", "data", "slurm"])
def test_a_python_without_file_locks_is_refused(
    take: Callable[[Path], None], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filelock, "has_fcntl", False)
    monkeypatch.setattr(filelock, "FileLock", filelock.SoftFileLock)
    with pytest.raises(ConfigError, match="this Python was built without file locks"):
        take(tmp_path)
    assert not (tmp_path / name).exists()


def test_a_lock_file_that_cannot_be_opened_is_no_missing_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(OSError, match="directory") as caught, locks.hold_file(tmp_path / "lock", "--results"):
        pass
    assert caught.value.errno == errno.EISDIR


@refusals
def test_without_locks_a_temporary_folder_works_and_those_of_others_stay(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".x-other").mkdir()
    refuse_locks(monkeypatch, number)
    with make_temporary_folder(tmp_path, ".x-") as folder:
        assert folder.exists()
    assert [path.name for path in tmp_path.iterdir()] == [".x-other"]


def test_a_folder_is_held_by_one_and_has_no_file_for_it(tmp_path: Path) -> None:
    with locks.hold_folder(tmp_path) as first, locks.hold_folder(tmp_path, 0.1) as second:
        assert (first, second) == (True, False)
    with locks.hold_folder(tmp_path) as later:
        assert later
    assert list(tmp_path.iterdir()) == []


def test_only_one_module_locks() -> None:
    """Any other would need this care once more."""
    package = Path(locks.__file__).parents[1]
    imports = re.compile(r"^\s*(import|from) (filelock|fcntl)\b", re.MULTILINE)
    users = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if imports.search(path.read_text(encoding="utf-8"))
    ]
    assert users == ["results/locks.py"]
