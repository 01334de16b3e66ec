"""Training on every kind of task: signals with several labels, patches, pairs, made up to be learned."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from answers_file import write_answers
from numpy.typing import NDArray

from msbench import models
from msbench.datasets.dataset import SPLITS, Batch, Dataset, Fixed, TaskInfo
from msbench.runs.suite import Suite, resolve_specs
from msbench.training.auroc import macro_auroc
from msbench.training.batches import BatchLoader
from msbench.training.evaluation import Predictions, predict
from msbench.training.loop import Trainer, make_fabric
from msbench.training.metrics import EpochRow, ProgressCallback, TrainingProgress
from msbench.training.signals import SignalFlag
from msbench.training.step import compute_loss

INFOS = {
    "signal": TaskInfo("signal", 0, 3, 12, "macro-auroc", 0.5, {}, channels=3, multi_label=True),
    "patches": TaskInfo("patches", 0, 3, 12, "accuracy", 1 / 3, {}, channels=3),
    "pairs": TaskInfo("pairs", 9, 2, 12, "accuracy", 0.5, {}),
}
EXAMPLES = 64


@dataclass
class Numbers(Fixed):
    """Channels around levels of their own: each above 0 is a label, or the highest is the class."""

    values: list[NDArray[np.float32]]
    multi_label: bool

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(each) for each in self.values])

    @property
    def targets(self) -> NDArray[np.int64]:
        means = np.stack([each.mean(0) for each in self.values])
        return (means > 0).astype(np.int64) if self.multi_label else means.argmax(1).astype(np.int64)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        chosen = [self.values[index] for index in indices]
        lengths = self.lengths[indices]
        inputs = np.zeros((len(chosen), pad_to or int(lengths.max()), 3), np.float32)
        for row, each in zip(inputs, chosen, strict=True):
            row[: len(each)] = each
        return Batch(inputs, lengths, self.targets[indices])


@dataclass
class Pairs(Fixed):
    """Two runs of one token each: is it the same?"""

    sizes: NDArray[np.int64]
    tokens: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        longer: NDArray[np.int64] = self.sizes.max(1)
        return longer

    @property
    def targets(self) -> NDArray[np.int64]:
        same: NDArray[np.int64] = (self.tokens[:, 0] == self.tokens[:, 1]).astype(np.int64)
        return same

    def __len__(self) -> int:
        return len(self.sizes)

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        sizes, tokens = self.sizes[indices], self.tokens[indices]
        positions = np.arange(pad_to or int(sizes.max()))
        inputs = np.where(positions < sizes[..., None], tokens[..., None], 0)
        return Batch(inputs, sizes, self.targets[indices])


def split_of(kind: str, seed: int) -> Numbers | Pairs:
    source = np.random.default_rng(seed)
    if kind == "pairs":
        tokens = source.integers(1, 3, (EXAMPLES, 2))
        return Pairs(source.integers(1, 13, (EXAMPLES, 2)), tokens)
    levels = source.permuted(np.tile([-1.0, 0.5, 1.0], (EXAMPLES, 1)), axis=1)
    lengths = source.integers(1, 13, EXAMPLES)
    values = [
        (level + 0.1 * source.standard_normal((length, 3))).astype(np.float32)
        for level, length in zip(levels, lengths, strict=True)
    ]
    return Numbers(values, INFOS[kind].multi_label)


def trained(kind: str, suite: Suite, folder: Path, *overrides: str, seed: int = 0) -> Trainer:
    settings = ("train.epochs=12", "train.lr=3e-2", "model.layers=1", "model.dropout=0", *overrides)
    (spec,) = resolve_specs(suite, ["msssm-s6"], seeds=[seed], overrides=settings)
    splits = {name: split_of(kind, seed) for seed, name in enumerate(SPLITS)}
    dataset = Dataset(INFOS[kind], splits, "0" * 64, {})
    model = models.build(spec.model_name, spec.model, dataset.info, spec.seed)
    run = Trainer(
        spec,
        model,
        dataset,
        directory=folder,
        run_id="0" * 12,
        fabric=make_fabric("cpu", spec.train.precision),
        callback=ProgressCallback(),
        signals=SignalFlag(),
    )
    run.run()
    return run


def score(found: Predictions, metric: str) -> float:
    """By the metric of the task, which chooses the epoch: of several labels the first that ranks them right.

    How many of the labels are right by then (a threshold of 0) depends on the rounding of the processor.
    """
    return macro_auroc(found.logits, found.labels).value if metric == "macro-auroc" else found.accuracy


@pytest.mark.parametrize("kind", INFOS)
def test_each_kind_is_learned(kind: str, tiny: Suite, tmp_path: Path) -> None:
    """By two of three seeds at least. Without training a score is at chance, and a loss stays as it is."""
    runs = [trained(kind, tiny, tmp_path / str(seed), seed=seed) for seed in range(3)]
    losses = [run.progress.rows[-1]["train_loss"] / run.progress.rows[0]["train_loss"] for run in runs]
    assert np.median(losses) < 0.5, losses
    scores = [score(run.test(), INFOS[kind].metric) for run in runs]
    assert np.median(scores) > 0.9, scores


@pytest.mark.parametrize("kind", INFOS)
def test_each_kind_is_counted(kind: str, tiny: Suite, tmp_path: Path) -> None:
    run = trained(kind, tiny, tmp_path, "train.epochs=2")
    rows, found = run.progress.rows, run.test()
    assert all(0 <= row["train_accuracy"] <= 1 for row in rows)
    assert found.logits.shape == (EXAMPLES, INFOS[kind].classes)
    assert found.labels.shape == ((EXAMPLES, 3) if kind == "signal" else (EXAMPLES,))
    expected = run.dataset.splits["test"].batch(np.arange(EXAMPLES)).labels
    assert np.array_equal(found.labels, expected)
    assert 0 <= rows[0]["padding"] < 0.6


@pytest.mark.parametrize("kind", INFOS)
def test_padding_to_a_length_changes_no_prediction(kind: str, tiny: Suite, tmp_path: Path) -> None:
    run = trained(kind, tiny, tmp_path, "train.pad_to=20", "train.epochs=1")
    feed = BatchLoader(run.dataset.splits["test"], torch.device("cpu"))
    plain, padded = (predict(run.module, feed, 8, pad_to=pad) for pad in (None, 20))
    np.testing.assert_allclose(plain.logits, padded.logits, rtol=1e-4, atol=1e-5)
    assert run.progress.rows[0]["padding"] > 0.3


def test_several_labels_are_a_decision_each() -> None:
    logits, labels = torch.tensor([[2.0, -1.0], [0.0, 3.0]]), torch.tensor([[1, 1], [0, 1]])
    odds = [2.0, -1.0, 0.0, 3.0]
    right = [1 / (1 + math.exp(-x if one else x)) for x, one in zip(odds, [1, 1, 0, 1], strict=True)]
    expected = -sum(map(math.log, right)) / 4
    assert float(compute_loss(logits, labels, "cross-entropy")) == pytest.approx(expected, rel=1e-6)
    found = Predictions(logits.numpy(), labels.numpy())
    assert found.decisions.tolist() == [[1, 0], [0, 1]]
    assert found.accuracy == 0.75
    assert found.loss == pytest.approx(expected, rel=1e-6)


def test_predictions_with_several_labels_have_columns_for_each(tmp_path: Path) -> None:
    logits, labels = np.array([[2.0, -1.0]], np.float32), np.array([[1, 1]])
    write_answers(tmp_path / "p.parquet", Predictions(logits, labels), "0" * 12)
    frame = pd.read_parquet(tmp_path / "p.parquet")
    assert list(frame.columns) == [
        "example",
        *(f"{name}_{index}" for name in ("label", "predicted", "correct", "logit") for index in (0, 1)),
    ]
    assert frame.iloc[0].tolist() == [0, 1, 1, 1, 0, True, False, 2.0, -1.0]


def test_each_epoch_trains_on_the_split_as_augmented_for_it(
    tiny: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def augmented(self: Numbers, seed: int, epoch: int) -> Numbers:
        asked.append((seed, epoch))
        return self

    monkeypatch.setattr(Numbers, "augmented", augmented)
    trained("patches", tiny, tmp_path, "train.epochs=3").run()
    assert [epoch for _, epoch in asked] == [0, 1, 2]
    assert len({seed for seed, _ in asked}) == 1


def test_the_best_epoch_is_that_of_the_best_ranking(tiny: Suite, tmp_path: Path) -> None:
    run = trained("signal", tiny, tmp_path, "train.epochs=1")
    rows = [dict(run.progress.rows[0]) for _ in range(3)]
    assert 0 <= rows[0]["validation_macro_auroc"] <= 1
    run.progress = TrainingProgress()
    for epoch, (accuracy, auroc) in enumerate([(0.9, 0.6), (0.5, 0.8), (0.9, 0.8)], 1):
        run._finish_epoch(
            EpochRow(
                **rows[epoch - 1]
                | {"epoch": epoch, "validation_accuracy": accuracy, "validation_macro_auroc": auroc}
            )
        )
    assert (run.progress.best_epoch, run.progress.best_score) == (2, 0.8), "of equal ones the first"
