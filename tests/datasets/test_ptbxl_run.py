"""A run on a small PTB-XL, from the files to the record: macro AUROC chooses the epoch and is the result."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ecg_files import write_small

from msbench import datasets as data
from msbench.cli.display import tabulate_records
from msbench.config import RunSpec
from msbench.results.record import RunRecord
from msbench.runs import execution as execute
from msbench.runs.execution import RunContext
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.auroc import macro_auroc
from msbench.training.metrics import ProgressCallback
from msbench.training.signals import SignalFlag

SUITE = """\
name: hearts
title: Small PTB-XL
protocol: scaled
caption: For tests.
seeds: [0]
tasks:
  super: {data: {dataset: ptbxl, labels: superdiagnostic}}
model: {d_model: 4, layers: 1, state: 3, dropout: 0}
train: {epochs: 4, batch_size: 2, lr: 3e-2}
models: {mamba: {}}
"""


class Notes(ProgressCallback):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    path = tmp_path / "hearts.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return resolve_specs(load_suite(str(path)))[0]


def run(spec: RunSpec, folder: Path, listener: ProgressCallback) -> tuple[RunRecord, Path]:
    data.setup(spec.data, folder / "data", source=write_small(folder / "source"), processes=1)
    place = RunContext(folder / "results", folder / "data", "cpu", SignalFlag())
    record = execute.execute(spec, place, listener)
    assert record is not None
    return record, place.results / "hearts" / "super" / "mamba" / record.run_id


def test_macro_auroc_is_the_result_and_chooses_the_epoch(spec: RunSpec, tmp_path: Path) -> None:
    listener = Notes()
    record, folder = run(spec, tmp_path, listener)
    assert (record.status, record.metric, record.classes) == (
        "finished",
        "macro-auroc",
        ("MI", "NORM", "STTC"),
    )
    found = record.metrics
    assert (found["classes_scored"], found["classes_left_out"]) == (2, 1)
    assert 0 <= found["test_accuracy"] <= 1

    rows = pd.read_csv(folder / "metrics.csv")
    best = int(rows["validation_macro_auroc"].argmax())
    assert (found["validation_macro_auroc"], found["best_epoch"]) == (
        rows["validation_macro_auroc"][best],
        best,
    )
    assert found["validation_accuracy"] == rows["validation_accuracy"][best]

    frame = pd.read_parquet(folder / "predictions.parquet")
    logits, labels = (
        frame[[f"{name}_{index}" for index in range(3)]].to_numpy() for name in ("logit", "label")
    )
    assert macro_auroc(logits, labels.astype(np.int64)).value == found["test_macro_auroc"] == record.result
    assert [text.split(":")[0] for text in listener.texts if "macro AUROC" in text] == ["validation", "test"]

    header, [shown] = tabulate_records([record])
    row = dict(zip(header, shown, strict=True))
    assert (row["metric"], row["test"]) == ("macro-auroc", f"{found['test_macro_auroc']:.2%}")
