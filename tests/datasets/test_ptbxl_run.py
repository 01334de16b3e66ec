"""A run on a small PTB-XL, from the files to the record: macro AUROC chooses the epoch and is the result."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from ecg_files import write_small

from msbench import datasets as data
from msbench import models
from msbench.analysis.mixing.command import find_whole_examples
from msbench.cli.display import tabulate_records
from msbench.config import RunSpec
from msbench.config.data import PtbXlConfig
from msbench.errors import ConfigError
from msbench.results.record import RunRecord
from msbench.runs import execution as execute
from msbench.runs.execution import RunContext
from msbench.runs.memory import trace_memory
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.auroc import macro_auroc
from msbench.training.checkpoint import CheckpointFolder, load_weights
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
model: {d_model: 4, layers: 1, dropout: 0}
train: {epochs: 4, batch_size: 2, lr: 3e-2}
models: {mamba: {model: {state: 3}}}
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

    rows = pd.read_csv(folder / "metrics.csv").dropna(subset="validation_loss", ignore_index=True)
    best = int(rows["validation_macro_auroc"].argmax())
    assert (found["validation_macro_auroc"], found["best_epoch"]) == (
        rows["validation_macro_auroc"][best],
        best + 1,
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


def test_crops_train_and_are_one_row_a_record(spec: RunSpec, tmp_path: Path) -> None:
    crops = spec.model_copy(update={"data": PtbXlConfig(labels="superdiagnostic", crop=250)})
    record, folder = run(crops, tmp_path, Notes())
    assert (record.status, record.n_test) == ("finished", 2)
    frame = pd.read_parquet(folder / "predictions.parquet")
    assert frame["example"].tolist() == [0, 1]
    # A model that is run on each crop by itself has the same largest logits.
    split = data.open_dataset(crops.data, tmp_path / "data").splits["test"]
    info = data.open_dataset(crops.data, tmp_path / "data").info
    model = models.build("mamba", crops.model, info, 0)
    weights = CheckpointFolder(folder / "checkpoint", record.run_id)
    load_weights(model, weights.load(weights.best_path(int(record.metrics["best_epoch"]))).tensors)
    batch = split.batch(np.arange(2))
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths)).numpy()
    each = logits.reshape(2, 7, 3)
    np.testing.assert_allclose(frame[[f"logit_{index}" for index in range(3)]], each.max(axis=1), atol=2e-6)
    assert (each.max(axis=1) - each.min(axis=1) > 2e-5).all(), "crops differ by more than rounding"


def test_memory_is_estimated_for_a_crop(spec: RunSpec) -> None:
    whole, crop = (PtbXlConfig(labels="superdiagnostic", crop=crop) for crop in (None, 250))
    first, second = (trace_memory(spec, data.outline(each), "cpu") for each in (whole, crop))
    assert (first.positions, second.positions) == (2000, 500)
    assert first.estimate() > 2 * second.estimate()


def test_mixing_is_measured_on_whole_records(spec: RunSpec, tmp_path: Path) -> None:
    data.setup(spec.data, tmp_path / "data", source=write_small(tmp_path / "source"), processes=1)
    cropped = PtbXlConfig(labels="superdiagnostic", crop=250)
    split = data.open_dataset(cropped, tmp_path / "data").splits["test"]
    whole = find_whole_examples(spec, split)
    assert (whole.crops, whole.lengths.tolist()) == (1, [1000, 1000])
    learned = spec.model_copy(update={"model": spec.model.model_copy(update={"positions": "learned"})})
    with pytest.raises(
        ConfigError, match=r"whole examples of 1,000 positions.*'learned' end with a crop, at 250"
    ):
        find_whole_examples(learned, split)
