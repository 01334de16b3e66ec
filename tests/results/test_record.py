"""Values of records that others compute with: what cannot be computed with is refused when it is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from least_record import LEAST

from msbench.errors import DamagedRecord
from msbench.results import store
from msbench.results.record import RunRecord, read_record


def read(folder: Path, **values: Any) -> RunRecord:
    (folder / "run.json").write_text(json.dumps(LEAST | values), encoding="utf-8")
    record = read_record(folder)
    assert record is not None
    return record


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"baselines": {"majority": -3}}, "baselines.majority: Input should be greater than or equal to 0"),
        ({"chance": 1.5}, "chance: Input should be less than or equal to 1"),
        ({"metrics": {"test_accuracy": 1e308}}, "metrics.test_accuracy: Input should be less"),
        ({"timing": {"train_seconds": -1e308}}, "timing.train_seconds: Input should be greater"),
        ({"n_test": -1}, "n_test: Input should be greater"),
        ({"seed": -1}, "seed: Input should be greater"),
        ({"parameters": 10**30}, "parameters: "),
        ({"n_test": 0}, "n_test: Input should be greater than or equal to 1"),
        ({"metrics": {"test_accuracy": True}}, "metrics.test_accuracy: Input should be a valid number"),
        ({"metrics": {"test_accuracy": "0.6"}}, "metrics.test_accuracy: Input should be a valid number"),
        ({"chance": "0.1"}, "chance: Input should be a valid number"),
        ({"n_test": "20"}, "n_test: Input should be a valid integer"),
        ({"n_test": 20.0}, "n_test: Input should be a valid integer"),
        ({"seed": False}, "seed: Input should be a valid integer"),
        ({"environment": {"git": "x"}}, "environment: git is not a mapping"),
        ({"environment": {"cudnn": [1]}}, "cudnn is not a mapping"),
        ({"environment": {"gpus": 5}}, "gpus is not a list of names"),
        ({"environment": {"gpus": [5]}}, "gpus is not a list of names"),
        ({"spec": {"data": "x"}}, "spec: data is not a mapping"),
        ({"spec": {"model": {"d_model": 10**400}}}, "has a number that is not finite, or too large"),
        ({"spec": {"model": {"x": [[-(10**30)]]}}}, "has a number that is not finite, or too large"),
        ({"environment": {"threads": float("nan")}}, "has a number that is not finite"),
        ({"spec": {"train": {"lr": float("inf")}}}, "spec: has a number that is not finite"),
        ({"metrics": {"k" * 10**6: "x"}}, "not a run record: metrics.kkk"),
    ],
)
def test_what_nobody_can_compute_with_is_no_record(
    tmp_path: Path, values: dict[str, Any], words: str
) -> None:
    with pytest.raises(DamagedRecord) as caught:
        read(tmp_path, **values)
    assert words in str(caught.value)
    assert str(caught.value).endswith("; delete it, or train again with --fresh")
    assert len(str(caught.value)) < 1000


def test_what_runs_leave_is_a_record(tmp_path: Path) -> None:
    record = read(
        tmp_path,
        metrics={"test_accuracy": 1, "test_loss": 7.5, "best_epoch": 12},
        baselines={"majority": 0.0},
        environment={"git": None, "gpus": [], "packages": {"torch": None}, "device": "cpu"},
    )
    assert record.result == 1
    assert record.hardware == "cpu"


def test_a_message_about_a_later_schema_is_short(tmp_path: Path) -> None:
    with pytest.raises(DamagedRecord, match=r"has schema version 1000.*use a newer one") as caught:
        read(tmp_path, schema_version=10**4000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"run_id": "0" * 12}, "its digests give the run id"),
        ({"data_digest": "x"}, "its digests give the run id"),
        ({"source_digest": "x"}, "its digests give the run id"),
        ({"spec_digest": "x"}, "its settings have the digest"),
        ({"seed": 1}, "seed is 1, in its settings 0"),
        ({"task": "other"}, "task is 'other', in its settings 't'"),
        ({"model": "other"}, "model_name is 'other', in its settings 'm'"),
        ({"spec": LEAST["spec"] | {"train": {"lr": 0.2}}}, "its settings have the digest"),
        ({"spec": LEAST["spec"] | {"seed": 1}, "seed": 1}, "its settings have the digest"),
        ({"spec": LEAST["spec"] | {"seed": False}}, "seed is 0, in its settings False"),
        ({"spec": {}}, "in its settings None"),
    ],
)
def test_a_record_that_contradicts_itself_is_none(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    with pytest.raises(DamagedRecord, match="contradicts itself: ") as caught:
        read(tmp_path, **values)
    assert words in str(caught.value)


def test_published_records_agree_with_themselves() -> None:
    results = Path(__file__).parents[2] / "results"
    suites = [path.name for path in results.glob("laptop-*")]
    found = [store.read_runs(results, suite) for suite in suites]
    assert [line for each in found for line in each.warnings] == []
    assert sum(len(each.records) for each in found) > 200


def test_a_record_that_an_editor_gave_a_byte_order_mark_and_crlf_is_read(tmp_path: Path) -> None:
    expected = read(tmp_path)
    path = tmp_path / "run.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert read_record(tmp_path) == expected
