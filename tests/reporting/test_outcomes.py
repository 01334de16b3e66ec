"""Learning curve and predictions of a run, and paired tests of two runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
from answers_file import write_answers
from made_runs import LABELS, answered, keep, ranked, write_curve
from pyarrow import parquet
from scipy import stats as scipy_stats

from msbench.errors import DataError
from msbench.reporting.outcomes import (
    Epoch,
    FoundRun,
    PairedCounts,
    describe_interval,
    read_answers,
    read_curve,
    run_paired_test,
)
from msbench.training.evaluation import Predictions

FIRST, SECOND = "a" * 12, "b" * 12


def test_examples_are_counted_by_who_has_them_right(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, range(30))
    second = answered(tmp_path, SECOND, range(20, 32))
    found = run_paired_test(first, second)
    assert found.counts == PairedCounts(both=168, only_first=2, only_second=20, neither=10)
    assert found.bootstrap.difference == pytest.approx(18 / 200)
    assert 0 < found.bootstrap.low < 18 / 200 < found.bootstrap.high
    assert found.mcnemar == pytest.approx(scipy_stats.binomtest(2, 22).pvalue)
    back = run_paired_test(second, first)
    assert back.bootstrap.difference == -found.bootstrap.difference


def test_aurocs_are_tested_on_the_same_draws(tmp_path: Path) -> None:
    first, second = ranked(tmp_path, FIRST, 1, 2.0), ranked(tmp_path, SECOND, 2, 0.3)
    found = run_paired_test(first, second)
    assert first.record.result is not None
    assert second.record.result is not None
    assert found.bootstrap.difference == pytest.approx(second.record.result - first.record.result)
    assert 0 < found.bootstrap.low < found.bootstrap.difference < found.bootstrap.high
    assert (found.counts, found.mcnemar) == (None, None)


def test_a_run_that_is_compared_with_itself_does_not_differ(tmp_path: Path) -> None:
    found = answered(tmp_path, FIRST, range(30))
    test = run_paired_test(found, found)
    assert (test.bootstrap.low, test.bootstrap.high, test.mcnemar) == (0, 0, 1)


def test_what_cannot_be_paired_is_refused_with_the_reason(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, [1])

    def reason(second: FoundRun) -> str:
        with pytest.raises(DataError) as refused:
            run_paired_test(first, second)
        return str(refused.value)

    assert "on different data" in reason(answered(tmp_path, SECOND, [2], data_digest="z"))
    assert "has no result to compare: it is diverged" in reason(keep(tmp_path, SECOND, status="diverged"))
    assert "have accuracy of 200 examples and macro-auroc of 150" in reason(ranked(tmp_path, SECOND, 1, 0.1))
    path = tmp_path / "s" / "t" / "m" / SECOND / "predictions.parquet"
    path.unlink()
    bare = keep(tmp_path, SECOND, metrics={"test_accuracy": 0.9}, n_test=200)
    assert f"{path}: missing" in reason(bare)
    fewer = keep(tmp_path, "c" * 12, metrics={"test_accuracy": 1.0}, n_test=10)
    labels = np.arange(10)
    write_answers(
        fewer.folder / "predictions.parquet", Predictions(np.eye(10, dtype=np.float32), labels), "c" * 12
    )
    assert "have accuracy of 200 examples and accuracy of 10" in reason(fewer)
    later = answered(tmp_path, "d" * 12, [1])
    answers = Predictions(np.eye(10, dtype=np.float32)[LABELS], LABELS)
    write_answers(later.folder / "predictions.parquet", answers, "d" * 12)
    table = pd.read_parquet(later.folder / "predictions.parquet")
    shifted = keep(tmp_path, "d" * 12, metrics={"test_accuracy": 1.0}, n_test=200)
    table.assign(example=table["example"] + 1).to_parquet(later.folder / "predictions.parquet")
    assert "different examples" in reason(shifted)


def test_an_interval_says_how_it_is_made(tmp_path: Path) -> None:
    text = describe_interval(answered(tmp_path, FIRST, range(60)))
    expected = scipy_stats.binomtest(140, 200).proportion_ci(method="wilson")
    assert text == (f"95 % interval {expected.low:.2%} to {expected.high:.2%} (Wilson, 200 test examples)")
    assert "bootstrap of 150 test examples" in describe_interval(ranked(tmp_path, FIRST, 1, 1.0))
    assert describe_interval(keep(tmp_path, SECOND, status="diverged")) == ""
    percent = keep(tmp_path, SECOND, metrics={"test_accuracy": 53.7}, n_test=1000)
    assert describe_interval(percent) == "no interval: it is no fraction from 0 to 1; is it a percentage?"
    bare = keep(tmp_path, SECOND, metric="macro-auroc", metrics={"test_macro_auroc": 0.9}, n_test=200)
    assert describe_interval(bare).startswith(f"no interval: {bare.folder / 'predictions.parquet'}: missing")


def test_answers_say_which_examples_are_right(tmp_path: Path) -> None:
    answers = read_answers(answered(tmp_path, "0" * 12, [3, 50]))
    assert answers.values.dtype == bool
    assert np.flatnonzero(~answers.values).tolist() == [3, 50]
    assert answers.labels.tolist() == LABELS.tolist()
    assert answers.result == pytest.approx(0.99)


def test_several_labels_have_scores(tmp_path: Path) -> None:
    found = ranked(tmp_path, "0" * 12, 1, 0.5)
    answers = read_answers(found)
    assert answers.values.shape == (150, 3)
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
    with pytest.raises(DataError, match=r"000000000000/predictions\.parquet: missing"):
        read_answers(found)


def test_predictions_that_have_no_result_are_named(tmp_path: Path) -> None:
    found = answered(tmp_path, "0" * 12, [3])
    path = found.folder / "predictions.parquet"
    pd.read_parquet(path).iloc[:0].to_parquet(path)
    with pytest.raises(DataError, match=r"predictions\.parquet: has no examples"):
        read_answers(found)
    found = ranked(tmp_path, "1" * 12, 1, 0.5)
    path = found.folder / "predictions.parquet"
    table = parquet.read_table(path)
    column = table.column_names.index("logit_0")
    not_numbers = pyarrow.array(np.full(len(table), np.nan, np.float32), from_pandas=False)
    parquet.write_table(table.set_column(column, "logit_0", not_numbers), path)
    with pytest.raises(DataError, match=r"predictions\.parquet: not the predictions of a run: .* no rank"):
        read_answers(found)
    pd.read_parquet(path).to_parquet(path)  # pandas writes them as gaps
    with pytest.raises(DataError, match=r"predictions\.parquet: column 'logit_0' has gaps"):
        read_answers(found)


def test_a_curve_is_that_of_the_metric(tmp_path: Path) -> None:
    found = keep(tmp_path, "0" * 12, metric="macro-auroc")
    assert read_curve(found.folder, "macro-auroc") == ([], "")
    write_curve(found, [0.25, 0.5])
    epochs = [Epoch(1, 1.75, 2.75, 0.25), Epoch(2, 1.5, 2.5, 0.5)]
    assert read_curve(found.folder, "macro-auroc") == (epochs, "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch\n1\n", "not the metrics of a run: 'train_loss'"),
        ("epoch,train_loss\n1,x\n", "not the metrics of a run: could not convert"),
        ("epoch\n\x00\n", "no epoch in it"),
    ],
)
def test_a_log_that_is_no_curve_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "metrics.csv").write_text(text, encoding="utf-8")
    epochs, problem = read_curve(tmp_path, "accuracy")
    assert (epochs, problem.startswith(f"{tmp_path / 'metrics.csv'}: {message}")) == ([], True)
