"""Results on disk: whole files, tolerant reading, one writer a folder."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest
from least_record import LEAST

from msbench.errors import DamagedRecord
from msbench.results import files, store
from msbench.results.record import (
    RUN_ID,
    SCHEMA_VERSION,
    Failure,
    RunRecord,
    compute_run_id,
    read_record,
    write_record,
)

pytestmark = pytest.mark.usefixtures("handmade_records")


def record(**values: object) -> RunRecord:
    return RunRecord.model_validate(LEAST | {"metrics": {"test_accuracy": 0.5}} | values)


def folder(root: Path, number: int = 0) -> Path:
    return root / "s" / "t" / "m" / f"{number:012x}"


def test_a_record_survives_the_round_trip(tmp_path: Path) -> None:
    original = record(failure=Failure(type="Diverged", message="[s4] → x", step=3, name="loss"))
    write_record(tmp_path, original)
    assert read_record(tmp_path) == original


def test_a_folder_without_a_record_has_not_ended(tmp_path: Path) -> None:
    assert read_record(tmp_path) is None


def test_an_older_and_a_newer_schema_can_be_read(tmp_path: Path) -> None:
    values = record().model_dump(mode="json")
    del values["n_test"], values["parameters"]
    (tmp_path / "run.json").write_text(json.dumps(values | {"invented_later": 1}), encoding="utf-8")
    found = read_record(tmp_path)
    assert found is not None
    assert found.n_test is None


def test_a_record_of_a_higher_schema_is_refused_by_name_and_not_called_damaged(tmp_path: Path) -> None:
    values = record().model_dump(mode="json") | {
        "schema_version": SCHEMA_VERSION + 1,
        "status": "paused",
    }
    (tmp_path / "run.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(
        DamagedRecord, match=r"has schema version 2, and this msbench reads up to 1"
    ) as caught:
        read_record(tmp_path)
    assert "delete" not in str(caught.value)


@pytest.mark.parametrize("changed", [{"suite": "other"}, {"task": "u"}, {"model": "n"}, {"run_id": "f" * 12}])
def test_a_record_in_another_folder_is_a_warning(tmp_path: Path, changed: dict[str, object]) -> None:
    place = folder(tmp_path)
    write_record(place, record(**{"run_id": place.name, **changed}))
    found, (warning,) = store.read_records(tmp_path)
    assert found == []
    assert f"{place}/run.json: belongs to " in warning
    assert "move it there" in warning


def test_a_damaged_record_is_a_warning_and_the_others_are_read(tmp_path: Path) -> None:
    write_record(folder(tmp_path, 1), record(run_id=f"{1:012x}"))
    folder(tmp_path, 2).mkdir(parents=True)
    (folder(tmp_path, 2) / "run.json").write_text("{", encoding="utf-8")
    found, warnings = store.read_records(tmp_path)
    assert len(found) == 1
    assert len(warnings) == 1
    assert str(folder(tmp_path, 2) / "run.json") in warnings[0]
    with pytest.raises(DamagedRecord, match=r"run\.json: not a run record"):
        read_record(folder(tmp_path, 2))


def test_nan_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    write_record(tmp_path, record())
    with pytest.raises(ValueError, match="finite number"):
        record(timing={"x": float("inf")})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_record(tmp_path, record().model_copy(update={"timing": {"x": float("inf")}}))
    assert read_record(tmp_path) == record()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_file_reads_well_in_a_diff(tmp_path: Path) -> None:
    write_record(tmp_path, record())
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    keys = list(json.loads(text))
    assert keys == sorted(keys)


def test_an_id_depends_on_each_of_its_three_parts() -> None:
    ids = {
        compute_run_id(*parts)
        for parts in [("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x")]
    }
    assert len(ids) == 4
    assert all(RUN_ID.fullmatch(one) for one in ids)


def test_folders_archived_are_not_runs(tmp_path: Path) -> None:
    here = folder(tmp_path, 1)
    write_record(here, record())
    aside = store.archive_run(here)
    assert aside is not None
    assert (aside / "run.json").exists()
    assert store.read_records(tmp_path) == ([], [])
    write_record(here, record())
    assert store.archive_run(here) != aside
    assert store.archive_run(here) is None


def test_a_copy_under_another_name_is_a_warning(tmp_path: Path) -> None:
    here = folder(tmp_path, 1)
    write_record(here, record(run_id=here.name))
    copies = [here.with_name(name) for name in (f"{here.name} (copy)", f"{here.name}.old-x", "A" * 12)]
    for copy in copies:
        shutil.copytree(here, copy)
    here.with_name("notes").mkdir()
    found = store.read_runs(tmp_path)
    assert found.folders == [here]
    assert not found.unreadable
    assert sorted(found.misnamed) == sorted(copies)
    assert len(found.warnings) == 3
    for copy in copies:
        assert any(line.startswith(f"{copy}: not read: ") for line in found.warnings)
    assert sorted(store.list_suites_with_runs(tmp_path).misnamed) == sorted(copies)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_record(folder(tmp_path, 1), record())

    def failing(path: Path) -> NoReturn:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "scandir", failing)
    found = store.read_runs(tmp_path)
    assert found.records == []
    assert found.warnings == [f"{tmp_path}: cannot be listed: {os.strerror(number)}"]


def _write_at_once(root: Path, number: int, start: "multiprocessing.synchronize.Barrier") -> None:
    start.wait(30)
    for _ in range(10):
        write_record(folder(root), record(seed=number, run_id=folder(root).name))
    own = folder(root, 1 + number)
    write_record(own, record(seed=number, run_id=own.name))


def test_sixteen_processes_writing_at_once_lose_nothing(tmp_path: Path) -> None:
    """All of them the same file, ten times, and one of their own; a reader never meets half a record."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # 16 imports would take seconds
    start = context.Barrier(17)
    processes = [
        context.Process(target=_write_at_once, args=(tmp_path, number, start)) for number in range(16)
    ]
    for process in processes:
        process.start()
    start.wait(30)
    seen = set()
    while any(process.is_alive() for process in processes):
        shared = read_record(folder(tmp_path))
        seen.add(None if shared is None else shared.seed)
        time.sleep(0.001)  # leaves the two cores of a small machine to the writers
    assert [process.exitcode for process in processes] == [0] * 16
    assert len(seen) > 1
    found, warnings = store.read_records(tmp_path)
    assert sorted(one.seed for one in found[1:]) == list(range(16))
    assert (len(found), warnings) == (17, [])
    assert not list(tmp_path.rglob("*.tmp"))


KILLED = """\
import os, signal, sys
from pathlib import Path
from msbench.results.record import RunRecord, write_record

name, root, values = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
calls, original = 0, getattr(os, name)

def counted(*arguments):
    global calls
    calls += 1
    if calls == 10:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*arguments)

setattr(os, name, counted)
for number in range(12):
    name = f"{number:012x}"
    record = RunRecord.model_validate_json(values).model_copy(update={"seed": number, "run_id": name})
    write_record(root / "s" / "t" / "m" / name, record)
"""


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("rewritten", [False, True])
def test_a_kill_in_the_tenth_of_twelve_writes_costs_the_tenth_alone(
    name: str, rewritten: bool, tmp_path: Path
) -> None:
    if rewritten:
        for number in range(12):
            place = folder(tmp_path, number)
            write_record(place, record(seed=100, run_id=place.name))
    arguments = [sys.executable, "-c", KILLED, name, str(tmp_path), record().model_dump_json()]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    found, warnings = store.read_records(tmp_path)
    assert [one.seed for one in found] == [*range(9), *[100] * (3 * rewritten)]
    assert warnings == []


def _hold(directory: Path, held: "multiprocessing.synchronize.Event") -> None:
    with store.lock_run(directory, wait=False) as mine:
        assert mine
        held.set()
        signal_free_sleep()


def signal_free_sleep() -> None:
    time.sleep(60)


def test_a_lock_is_one_processs_and_dies_with_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held))
    process.start()
    assert held.wait(30)
    with store.lock_run(tmp_path, wait=False) as mine:
        assert not mine
    assert process.pid is not None
    os.kill(process.pid, 9)
    process.join()
    with store.lock_run(tmp_path, wait=True) as mine:
        assert mine


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        files.write_atomically(tmp_path / "file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class TestFolders:
    """Each entry of a folder is asked by itself."""

    @pytest.fixture
    def results(self, tmp_path: Path) -> Path:
        for suite in ("one", "two"):
            (tmp_path / suite / "t" / "m" / ("0" * 12)).mkdir(parents=True)
        return tmp_path

    def test_a_link_that_leads_nowhere_hides_no_neighbour(self, results: Path) -> None:
        for place, to in {"loop": "loop", "one/t/loop": "loop", "two/gone": "absent"}.items():
            (results / place).symlink_to(to)
        found = store.list_run_folders(results)
        assert [folder.parts[-4] for folder in found.folders] == ["one", "two"]
        assert set(found.unreadable) == {results / each for each in ("loop", "one/t/loop", "two/gone")}
        assert [folder.name for folder in store.list_suites_with_runs(results).folders] == ["one", "two"]

    def test_a_folder_that_may_not_be_listed_is_reported(
        self, results: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        listing = os.scandir

        def refused(folder: Path) -> Any:
            if Path(folder).name == "two":
                raise PermissionError(errno.EACCES, "Permission denied")
            return listing(folder)

        monkeypatch.setattr(os, "scandir", refused)
        found = store.list_suites_with_runs(results)
        assert found.folders == [results / "one"]
        assert found.warnings == [f"{results / 'two'}: cannot be listed: Permission denied"]
        assert store.read_runs(results).warnings == found.warnings

    def test_what_is_absent_or_a_file_has_no_runs(self, results: Path) -> None:
        (results / "file").touch()
        assert store.list_run_folders(results / "absent") == store.FolderListing()
        assert store.list_run_folders(results / "file") == store.FolderListing()
        assert store.list_run_folders(results).unreadable == {}


def test_runs_are_read_with_those_that_have_no_record(tmp_path: Path) -> None:
    whole, damaged, incomplete = (tmp_path / "s" / "t" / "m" / (digit * 12) for digit in "123")
    write_record(whole, record(run_id=whole.name))
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    incomplete.mkdir()
    found = store.read_runs(tmp_path)
    assert [each.run_id for each in found.records] == [whole.name]
    assert list(found.unreadable) == [damaged]
    assert found.incomplete == [incomplete]
