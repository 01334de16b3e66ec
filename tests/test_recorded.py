"""Values of records that others compute with: what cannot be computed with is refused when it is read."""

import json
from pathlib import Path
from typing import Any

import pytest
from least_record import LEAST

from msbench import store
from msbench.errors import DamagedRecord


def read(folder: Path, **values: Any) -> store.RunRecord:
    (folder / "run.json").write_text(json.dumps(LEAST | values), encoding="utf-8")
    record = store.read_record(folder)
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
        ({"environment": {"git": "x"}}, "environment: Value error, git is no mapping"),
        ({"environment": {"cudnn": [1]}}, "cudnn is no mapping"),
        ({"environment": {"gpus": 5}}, "gpus are no list of names"),
        ({"environment": {"gpus": [5]}}, "gpus are no list of names"),
        ({"spec": {"data": "x"}}, "spec: Value error, data is no mapping"),
        ({"spec": {"model": {"d_model": 10**400}}}, "has a number that is not finite, or too large"),
        ({"spec": {"model": {"x": [[-(10**30)]]}}}, "has a number that is not finite, or too large"),
        ({"environment": {"threads": float("nan")}}, "has a number that is not finite"),
        ({"spec": {"train": {"lr": float("inf")}}}, "spec: Value error, has a number that is not finite"),
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
