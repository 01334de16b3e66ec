"""Splits are checked before training, and crops of an example are aggregated."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from msbench.datasets.dataset import SPLITS, CroppedSamples, Dataset, Samples, TaskInfo
from msbench.errors import DataError
from msbench.training.batches import BatchLoader
from msbench.training.evaluation import find_unscored_classes, predict


def dataset(labels: Mapping[str, list[list[int]]], metric: str = "macro-auroc") -> Dataset:
    splits = {
        name: Samples(np.zeros((len(labels[name]), 4, 1)), np.array(labels[name], np.uint8))
        for name in SPLITS
    }
    info = TaskInfo("signal", 0, 2, 4, metric, 0.5, {}, channels=1, multi_label=True)  # type: ignore[arg-type]
    return Dataset(info, splits, "0" * 64, {})


BOTH, FIRST, NONE = [[0, 1], [1, 0]] * 300, [[0, 1], [1, 1]], [[0, 1], [0, 1]]


def test_nothing_is_said_where_every_class_is_scored() -> None:
    assert list(find_unscored_classes(dataset({"train": NONE, "validation": BOTH, "test": BOTH}))) == []


def test_splits_that_leave_classes_out_are_named() -> None:
    found = list(find_unscored_classes(dataset({"train": BOTH, "validation": FIRST, "test": BOTH})))
    assert found == [
        "validation: macro AUROC is over 1 of 2 classes; the others have no positive or no negative example"
    ]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_split_that_cannot_be_scored_is_refused(split: str) -> None:
    labels = dict.fromkeys(SPLITS, BOTH) | {split: NONE}
    with pytest.raises(DataError, match=f"^{split} split: none of its 2 classes has both a positive"):
        list(find_unscored_classes(dataset(labels)))
    assert list(find_unscored_classes(dataset(labels, "accuracy"))) == []


class Sums(nn.Module):
    """Two logits: the sum of a sequence and minus it; notes how many sequences it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []

    def forward(self, inputs: Tensor, _lengths: Tensor) -> Tensor:
        self.given.append(len(inputs))
        total = inputs.sum((1, 2))
        return torch.stack([total, -total], 1)


@pytest.mark.parametrize("at_once", [None, 2])
def test_the_largest_logits_of_an_examples_crops_are_its_own(at_once: int | None) -> None:
    values = np.random.default_rng(0).normal(size=(7, 10, 1))
    labels = np.random.default_rng(1).integers(2, size=(7, 2)).astype(np.uint8)
    split, model = CroppedSamples(Samples(values, labels), 4, 3), Sums()
    found = predict(model, BatchLoader(split, torch.device("cpu")), 3, at_once=at_once)
    crops = np.stack([values[:, start : start + 4].sum((1, 2)) for start in (0, 3, 6)], 1)
    np.testing.assert_allclose(found.logits, np.stack([crops.max(1), -crops.min(1)], 1), rtol=1e-5)
    assert np.array_equal(found.labels, labels)
    assert max(model.given) == (at_once or 3), "no more crops at once than a batch has examples"
