"""Paired tests of two runs, and why there is none."""

from pathlib import Path

import numpy as np
import pytest
from answers_file import write_answers
from made_runs import answered, keep, ranked
from scipy import stats as scipy_stats

from msbench.reporting.compare.paired import NoPairedTest, PairedCounts, PairedTest, interval, paired_test
from msbench.training.evaluate import Predictions

FIRST, SECOND = "a" * 12, "b" * 12


def test_examples_are_counted_by_who_has_them_right(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, range(30))
    second = answered(tmp_path, SECOND, range(20, 32))
    found = paired_test(first, second)
    assert isinstance(found, PairedTest)
    assert found.counts == PairedCounts(both=168, only_first=2, only_second=20, neither=10)
    assert found.bootstrap.difference == pytest.approx(18 / 200)
    assert 0 < found.bootstrap.low < 18 / 200 < found.bootstrap.high
    assert found.mcnemar == pytest.approx(scipy_stats.binomtest(2, 22).pvalue)
    back = paired_test(second, first)
    assert isinstance(back, PairedTest)
    assert back.bootstrap.difference == -found.bootstrap.difference


def test_aurocs_are_tested_on_the_same_draws(tmp_path: Path) -> None:
    first, second = ranked(tmp_path, FIRST, 1, 2.0), ranked(tmp_path, SECOND, 2, 0.3)
    found = paired_test(first, second)
    assert isinstance(found, PairedTest)
    assert first.record.result is not None
    assert second.record.result is not None
    assert found.bootstrap.difference == pytest.approx(second.record.result - first.record.result)
    assert 0 < found.bootstrap.low < found.bootstrap.difference < found.bootstrap.high
    assert (found.counts, found.mcnemar) == (None, None)


def test_a_run_that_is_compared_with_itself_does_not_differ(tmp_path: Path) -> None:
    found = answered(tmp_path, FIRST, range(30))
    test = paired_test(found, found)
    assert isinstance(test, PairedTest)
    assert (test.bootstrap.low, test.bootstrap.high, test.mcnemar) == (0, 0, 1)


def test_what_cannot_be_paired_is_refused_with_the_reason(tmp_path: Path) -> None:
    first = answered(tmp_path, FIRST, [1])

    def reason(second: object) -> str:
        found = paired_test(first, second)  # type: ignore[arg-type]
        assert isinstance(found, NoPairedTest)
        return found.reason

    assert "other data" in reason(answered(tmp_path, SECOND, [2], data_digest="z"))
    assert "has no result: diverged" in reason(keep(tmp_path, SECOND, status="diverged"))
    assert "other metrics" in reason(ranked(tmp_path, SECOND, 1, 0.1))
    path = tmp_path / "s" / "t" / "m" / SECOND / "predictions.parquet"
    path.unlink()
    bare = keep(tmp_path, SECOND, metrics={"test_accuracy": 0.9}, n_test=200)
    assert f"{path}: absent" in reason(bare)
    fewer = keep(tmp_path, "c" * 12, metrics={"test_accuracy": 1.0}, n_test=10)
    labels = np.arange(10)
    write_answers(
        fewer.folder / "predictions.parquet", Predictions(np.eye(10, dtype=np.float32), labels), "c" * 12
    )
    assert "other examples" in reason(fewer)


def test_an_interval_says_how_it_is_made(tmp_path: Path) -> None:
    text = interval(answered(tmp_path, FIRST, range(60)))
    expected = scipy_stats.binomtest(140, 200).proportion_ci(method="wilson")
    assert text == (f"95 % interval {expected.low:.2%} to {expected.high:.2%} (Wilson, 200 test examples)")
    assert "bootstrap of 150 test examples" in interval(ranked(tmp_path, FIRST, 1, 1.0))
    assert interval(keep(tmp_path, SECOND, status="diverged")) == ""
    percent = keep(tmp_path, SECOND, metrics={"test_accuracy": 53.7}, n_test=1000)
    assert interval(percent) == "no interval: it is no fraction from 0 to 1; is it a percentage?"
    bare = keep(tmp_path, SECOND, metric="macro-auroc", metrics={"test_macro_auroc": 0.9}, n_test=200)
    assert interval(bare).startswith(f"no interval: {bare.folder / 'predictions.parquet'}: absent")
