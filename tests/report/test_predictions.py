from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, right, scored

from msbench.errors import DataError
from msbench.report.predictions import read_correct, read_examples, read_scores


def test_one_label_an_example(tmp_path: Path) -> None:
    given = right(30, 0.6, seed=0)
    folder = kept(tmp_path, "mamba", answered(given)).folder
    labels, correct = read_correct(folder)
    assert np.array_equal(read_examples(folder), np.arange(30))
    assert np.array_equal(correct, given)
    assert np.array_equal(labels, np.arange(30) % 2)


def test_several_labels_an_example(tmp_path: Path) -> None:
    predictions = scored(30, 1.0, seed=1)
    labels, scores = read_scores(kept(tmp_path, "mamba", predictions).folder)
    assert np.array_equal(labels, predictions.labels)
    assert np.array_equal(scores, predictions.logits)


def test_more_than_ten_classes_keep_their_order(tmp_path: Path) -> None:
    predictions = scored(20, 1.0, seed=1)
    wide = type(predictions)(np.tile(predictions.logits, 4), np.tile(predictions.labels, 4))
    labels, scores = read_scores(kept(tmp_path, "mamba", wide).folder)
    assert np.array_equal(labels, wide.labels)
    assert np.array_equal(scores, wide.logits)


def test_files_that_are_absent_damaged_or_of_another_task(tmp_path: Path) -> None:
    folder = kept(tmp_path, "mamba", answered(right(30, 0.6, 0))).folder
    file = folder / "predictions.parquet"
    with pytest.raises(DataError, match=r"predictions.parquet: no column 'label_0'"):
        read_scores(folder)
    with pytest.raises(DataError, match="no column 'label'"):
        read_correct(kept(tmp_path, "ecg", scored(30, 1.0, 0)).folder)
    whole = file.read_bytes()
    for cut in (b"", b"nothing", whole[: len(whole) // 2], bytes(len(whole))):
        file.write_bytes(cut)
        with pytest.raises(DataError, match=rf"{file}: cannot be read: .*--fresh"):
            read_correct(folder)
    file.write_bytes(whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    with pytest.raises(DataError, match="cannot be read"):
        read_correct(folder)
    file.unlink()
    file.mkdir()
    with pytest.raises(DataError, match=rf"{file}: cannot be read: no ordinary file; train"):
        read_correct(folder)
    file.rmdir()
    with pytest.raises(DataError, match=rf"{file}: absent"):
        read_correct(folder)
