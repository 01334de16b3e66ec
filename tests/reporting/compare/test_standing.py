"""Whether a run would have the same id now."""

from pathlib import Path

import pytest

from msbench.reporting.compare.standing import standing
from msbench.results.record import RunRecord
from msbench.runs import sources
from msbench.runs.execution import RunContext, execute
from msbench.runs.progress import Quiet
from msbench.runs.suite import Suite, plan
from msbench.training.signals import SignalFlag


@pytest.fixture
def record(tiny: Suite, tmp_path: Path, data_folder: Path) -> RunRecord:
    spec = plan(tiny, ["mamba"], overrides=["train.max_steps=1"])[0]
    found = execute(spec, RunContext(tmp_path / "results", data_folder, "cpu", SignalFlag()), Quiet())
    assert found is not None
    return found


def test_a_run_of_today_stands(record: RunRecord, data_folder: Path) -> None:
    found = standing(record, data_folder)
    assert (found.run_id, found.reason, found.changes) == (record.run_id, "", ())


def test_files_that_changed_are_named(
    record: RunRecord, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = sources.source_files
    monkeypatch.setattr(sources, "source_files", lambda names: files(names) | {"models/mamba.py": "new"})
    found = standing(record, data_folder)
    assert found.run_id not in (None, record.run_id)
    assert [(change.kind, change.name, change.now) for change in found.changes] == [
        ("source", "models/mamba.py", "new")
    ]
    unnamed = standing(record.model_copy(update={"sources": {}}), data_folder)
    assert [change.name for change in unnamed.changes] == ["all source files"]


def test_other_data_are_told(record: RunRecord, data_folder: Path) -> None:
    found = standing(record.model_copy(update={"data_digest": "0" * 64}), data_folder)
    # The id is made from the data that are here, which are those it was run on.
    assert found.run_id == record.run_id
    assert [(change.kind, change.now) for change in found.changes] == [("data", record.data_digest)]


def test_without_data_only_the_source_can_be_compared(record: RunRecord, tmp_path: Path) -> None:
    found = standing(record, tmp_path / "nowhere")
    assert found.run_id is None
    assert "msbench setup listops" in found.reason
    assert found.changes == ()
    assert not (tmp_path / "nowhere").exists()


def test_settings_that_are_not_understood_any_more_say_so(record: RunRecord, data_folder: Path) -> None:
    spec = {**record.spec, "model_name": "mambo"}
    found = standing(record.model_copy(update={"spec": spec}), data_folder)
    assert found.run_id is None
    assert "did you mean 'mamba'" in found.reason


def test_a_setting_that_came_later_changes_the_id(record: RunRecord, data_folder: Path) -> None:
    train = {key: value for key, value in record.spec["train"].items() if key != "clip"}
    older = record.model_copy(update={"spec": {**record.spec, "train": train}, "spec_digest": "0" * 64})
    found = standing(older, data_folder)
    assert [str(change) for change in found.changes] == ["train.clip absent → null"]
