"""Splits are checked before training: a class without both kinds of examples is named."""

from collections.abc import Mapping

import numpy as np
import pytest

from msbench.datasets.dataset import SPLITS, Dataset, Samples, TaskInfo
from msbench.errors import DataError
from msbench.training.evaluation import find_unscored_classes


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
