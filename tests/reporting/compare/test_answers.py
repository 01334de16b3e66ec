"""Predictions read back, and refused where they are not those of the result."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_runs import LABELS, answered, keep, ranked

from msbench.errors import DataError
from msbench.reporting.compare.answers import read_answers


def test_answers_say_which_examples_are_right(tmp_path: Path) -> None:
    answers = read_answers(answered(tmp_path, "0" * 12, [3, 50]))
    assert answers.correct is not None
    assert np.flatnonzero(~answers.correct).tolist() == [3, 50]
    assert answers.labels.tolist() == LABELS.tolist()
    assert answers.result == pytest.approx(0.99)


def test_several_labels_have_scores(tmp_path: Path) -> None:
    found = ranked(tmp_path, "0" * 12, 1, 0.5)
    answers = read_answers(found)
    assert answers.correct is None
    assert answers.labels.shape == (150, 3)
    assert answers.result == pytest.approx(found.record.result)


def test_predictions_that_are_absent_damaged_or_of_another_result_are_named(tmp_path: Path) -> None:
    found = answered(tmp_path, "0" * 12, [3])
    other = keep(tmp_path, "0" * 12, metrics={"test_accuracy": 0.5}, n_test=200)
    with pytest.raises(DataError, match=r"gives accuracy 0\.995000, and the record has 0\.5"):
        read_answers(other)
    path = found.folder / "predictions.parquet"
    path.write_bytes(b"PAR1 and nothing")
    with pytest.raises(DataError, match=r"000000000000/predictions\.parquet: cannot be read: "):
        read_answers(found)
    path.unlink()
    with pytest.raises(DataError, match=r"000000000000/predictions\.parquet: absent"):
        read_answers(found)


def test_predictions_that_have_no_result_are_named(tmp_path: Path) -> None:
    found = answered(tmp_path, "0" * 12, [3])
    path = found.folder / "predictions.parquet"
    pd.read_parquet(path).iloc[:0].to_parquet(path)
    with pytest.raises(DataError, match=r"predictions\.parquet: has no examples"):
        read_answers(found)
    found = ranked(tmp_path, "1" * 12, 1, 0.5)
    path = found.folder / "predictions.parquet"
    pd.read_parquet(path).assign(logit_0=np.nan).to_parquet(path)
    with pytest.raises(DataError, match=r"predictions\.parquet: not the predictions of a run: .* no rank"):
        read_answers(found)
