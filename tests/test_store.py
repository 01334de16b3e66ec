"""Results on disk: whole files, tolerant reading, one writer a folder."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest

from msbench import store
from msbench.errors import ConfigError
from msbench.store import Failure, RunRecord


def record(**values: object) -> RunRecord:
    base: dict[str, object] = {
        "run_id": "0123456789ab",
        "status": "finished",
        "suite": "s",
        "task": "t",
        "model": "m",
        "seed": 0,
        "spec": {"train": {"lr": 0.1}},
        "spec_digest": "a",
        "data_digest": "b",
        "source_digest": "c",
        "metrics": {"test_accuracy": 0.5},
    }
    return RunRecord.model_validate(base | values)


def folder(root: Path, number: int = 0) -> Path:
    return root / "s" / "t" / "m" / f"{number:012x}"


def test_a_record_survives_the_round_trip(tmp_path: Path) -> None:
    original = record(failure=Failure(type="Diverged", message="[s4] → x", step=3, name="loss"))
    store.write_record(tmp_path, original)
    assert store.read_record(tmp_path) == original


def test_a_folder_without_a_record_has_not_ended(tmp_path: Path) -> None:
    assert store.read_record(tmp_path) is None


def test_an_older_and_a_newer_schema_can_be_read(tmp_path: Path) -> None:
    values = record().model_dump(mode="json")
    del values["n_test"], values["parameters"]
    (tmp_path / "run.json").write_text(json.dumps(values | {"invented_later": 1}), encoding="utf-8")
    found = store.read_record(tmp_path)
    assert found is not None
    assert found.n_test is None


def test_a_damaged_record_is_a_warning_and_the_others_are_read(tmp_path: Path) -> None:
    store.write_record(folder(tmp_path, 1), record())
    folder(tmp_path, 2).mkdir(parents=True)
    (folder(tmp_path, 2) / "run.json").write_text("{", encoding="utf-8")
    found, warnings = store.records(tmp_path)
    assert len(found) == 1
    assert len(warnings) == 1
    assert str(folder(tmp_path, 2) / "run.json") in warnings[0]
    with pytest.raises(ConfigError, match=r"run\.json: not a run record"):
        store.read_record(folder(tmp_path, 2))


def test_nan_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    store.write_record(tmp_path, record())
    with pytest.raises(ValueError, match="JSON compliant"):
        store.write_record(tmp_path, record(timing={"x": float("inf")}))
    assert store.read_record(tmp_path) == record()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_the_file_reads_well_in_a_diff(tmp_path: Path) -> None:
    store.write_record(tmp_path, record())
    text = (tmp_path / "run.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    keys = list(json.loads(text))
    assert keys == sorted(keys)


def test_an_id_depends_on_each_of_its_three_parts() -> None:
    ids = {
        store.run_id(*parts) for parts in [("a", "b", "c"), ("x", "b", "c"), ("a", "x", "c"), ("a", "b", "x")]
    }
    assert len(ids) == 4
    assert all(store.RUN_ID.fullmatch(one) for one in ids)


def test_folders_set_aside_are_not_runs(tmp_path: Path) -> None:
    here = folder(tmp_path, 1)
    store.write_record(here, record())
    aside = store.set_aside(here)
    assert aside is not None
    assert (aside / "run.json").exists()
    assert store.records(tmp_path) == ([], [])
    store.write_record(here, record())
    assert store.set_aside(here) != aside
    assert store.set_aside(here) is None


def _write(argument: tuple[Path, int]) -> None:
    root, number = argument
    store.write_record(folder(root, number), record(seed=number))


def test_sixteen_processes_finishing_at_once_lose_nothing(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(16) as pool:
        pool.map(_write, [(tmp_path, number) for number in range(16)])
    found, warnings = store.records(tmp_path)
    assert sorted(one.seed for one in found) == list(range(16))
    assert warnings == []


def _hold(directory: Path, held: "multiprocessing.synchronize.Event") -> None:
    with store.locked(directory, wait=False) as mine:
        assert mine
        held.set()
        signal_free_sleep()


def signal_free_sleep() -> None:
    import time

    time.sleep(60)


def test_a_lock_is_one_processs_and_dies_with_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held))
    process.start()
    assert held.wait(30)
    with store.locked(tmp_path, wait=False) as mine:
        assert not mine
    assert process.pid is not None
    os.kill(process.pid, 9)
    process.join()
    with store.locked(tmp_path, wait=True) as mine:
        assert mine


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="directory"):
        store.write_atomically(tmp_path / "file", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
