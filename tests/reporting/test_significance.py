from pathlib import Path

import numpy as np
import pytest
from compared_runs import answered, kept, right, scored
from scipy.stats import binomtest, ttest_ind

from msbench.errors import DataError
from msbench.reporting.outcomes import FoundRun
from msbench.reporting.tables.versus import Comparison, compare_runs
from msbench.stats.bootstrap import Paired


def seeds(results: Path, model: str, rates: list[float], n: int = 1_000) -> list[FoundRun]:
    return [
        kept(results, model, answered(np.arange(n) < rate * n), seed=seed) for seed, rate in enumerate(rates)
    ]


def test_seeds_on_both_sides_are_compared_over_seeds(tmp_path: Path) -> None:
    ours, theirs = [0.61, 0.63, 0.62], [0.60, 0.59]
    found = compare_runs(seeds(tmp_path, "msssm-s6", ours), seeds(tmp_path, "mamba", theirs))
    expected = ttest_ind(ours, theirs, equal_var=False)
    assert found.test.difference == pytest.approx(0.025)
    assert found.test.p == found.p_holm == pytest.approx(expected.pvalue)
    interval = expected.confidence_interval(0.95)
    assert (found.test.low, found.test.high) == pytest.approx((interval.low, interval.high))
    assert found.how == "Welch over seeds, n = 3 and 2"
    assert found.over_seeds


def test_predictions_are_not_needed_for_that(tmp_path: Path) -> None:
    sides = [seeds(tmp_path, model, [0.6, 0.7]) for model in ("msssm-s6", "mamba")]
    for run in (*sides[0], *sides[1]):
        (run.folder / "predictions.parquet").unlink()
    assert compare_runs(*sides).over_seeds


def test_seeds_that_agree_by_chance_on_few_examples_prove_nothing(tmp_path: Path) -> None:
    found = compare_runs(
        seeds(tmp_path, "msssm-s6", [0.7, 0.7], n=10), seeds(tmp_path, "mamba", [0.6, 0.6], n=10)
    )
    assert found.test.p > 0.05


def test_one_seed_on_a_side_is_compared_example_by_example(tmp_path: Path) -> None:
    first, second = right(1_000, 0.62, 1), right(1_000, 0.58, 2)
    found = compare_runs(
        [kept(tmp_path, "msssm-s6", answered(first))], [kept(tmp_path, "mamba", answered(second))]
    )
    gained, lost = int((first & ~second).sum()), int((~first & second).sum())
    assert found.test.p == pytest.approx(binomtest(gained, gained + lost).pvalue)
    assert found.test.difference == pytest.approx((gained - lost) / 1_000)
    # The normal interval of a paired difference, which 1,000 examples are close to.
    error = np.sqrt((gained + lost) / 1_000 - found.test.difference**2) / np.sqrt(1_000)
    assert (found.test.low, found.test.high) == pytest.approx(
        (found.test.difference - 1.96 * error, found.test.difference + 1.96 * error), abs=0.004
    )
    assert found.how == "McNemar over 1000 examples, seed 0 of each"
    assert not found.over_seeds


def test_the_seed_that_both_have_is_compared(tmp_path: Path) -> None:
    ours = [kept(tmp_path, "msssm-s6", answered(right(100, 0.9, seed)), seed) for seed in (3, 1, 2)]
    assert compare_runs(ours, seeds(tmp_path, "mamba", [0.5], n=100)).how.endswith("seeds 1 and 0")
    theirs = [kept(tmp_path, "mamba", answered(right(100, 0.5, 9)), seed=2)]
    found = compare_runs(ours, theirs)
    values = [run.record.result or 0.0 for run in (ours[2], theirs[0])]
    assert found.how.endswith("seed 2 of each")
    assert found.test.difference == pytest.approx(values[0] - values[1])


def test_several_labels_an_example_are_compared_by_auroc(tmp_path: Path) -> None:
    good, bad = scored(200, 2.0, 1), scored(200, 0.5, 2)
    found = compare_runs([kept(tmp_path, "msssm-s6", good)], [kept(tmp_path, "mamba", bad)])
    assert found.test.difference == pytest.approx(good.macro_auroc.value - bad.macro_auroc.value, abs=1e-12)
    assert 0 < found.test.low < found.test.difference < found.test.high
    assert found.test.p == pytest.approx(2 / 2001)
    assert found.how == "paired bootstrap over 200 examples, seed 0 of each"


def test_auroc_over_seeds(tmp_path: Path) -> None:
    ours = [kept(tmp_path, "msssm-s6", scored(200, 2.0, seed), seed) for seed in (0, 1, 2)]
    theirs = [kept(tmp_path, "mamba", scored(200, 1.0, 9 + seed), seed) for seed in (0, 1, 2)]
    values = [[run.record.result for run in side] for side in (ours, theirs)]
    assert compare_runs(ours, theirs).test.p == pytest.approx(ttest_ind(*values, equal_var=False).pvalue)


def test_what_is_not_of_the_same_test_is_refused(tmp_path: Path) -> None:
    ours = [kept(tmp_path, "msssm-s6", answered(right(100, 0.6, 1)))]
    same = answered(right(100, 0.6, 1))
    short = answered(right(99, 0.6, 1))
    for other, message in [
        (kept(tmp_path, "mamba", same, data_digest="data-2"), "different data"),
        (kept(tmp_path, "mamba", short), r"accuracy of 100 .* accuracy of 99"),
        (kept(tmp_path, "mamba", scored(100, 1.0, 1)), r"accuracy of 100 .* macro-auroc of 100"),
        (
            kept(tmp_path, "mamba", same, metrics={}, status="diverged"),
            r"no result .* is diverged",
        ),
        (kept(tmp_path, "mamba", short, n_test=100), "99 predictions of 100"),
    ]:
        with pytest.raises(DataError, match=message):
            compare_runs(ours, [other])
    for side, nothing in ((ours, []), ([], ours)):
        with pytest.raises(DataError, match="finished runs on both sides"):
            compare_runs(side, nothing)


def test_other_labels_are_other_examples(tmp_path: Path) -> None:
    given = answered(right(100, 0.6, 1))
    ours = [kept(tmp_path, "msssm-s6", given)]
    turned = type(given)(given.logits, 1 - given.labels)
    with pytest.raises(DataError, match="different labels"):
        compare_runs(ours, [kept(tmp_path, "mamba", turned)])


def test_auroc_of_no_class_is_refused(tmp_path: Path) -> None:
    given = scored(20, 1.0, 1)
    empty = type(given)(given.logits, np.zeros_like(given.labels))
    sides = [[kept(tmp_path, model, empty, metrics={"test_macro_auroc": 0.5})] for model in ("a", "b")]
    with pytest.raises(DataError, match="no class has both"):
        compare_runs(*sides)


@pytest.mark.parametrize(
    ("difference", "p", "mark"),
    [
        (0.02, 0.0031, "better than mamba, p = 0.0031 (Holm, some test)"),
        (-0.02, 0.00031, "worse than mamba, p < 0.001 (Holm, some test)"),
        (-0.02, 0.0497, "worse than mamba, p = 0.0497 (Holm, some test)"),
        (-0.02, 0.049997, "worse than mamba, p = 0.049997 (Holm, some test)"),
        (-0.02, 0.0503, "not distinguishable from mamba, p = 0.05 (Holm, some test)"),
        (0.02, 0.0512, "not distinguishable from mamba, p = 0.051 (Holm, some test)"),
        (0.0, 1.0, "not distinguishable from mamba, p = 1 (Holm, some test)"),
    ],
)
def test_in_words(difference: float, p: float, mark: str) -> None:
    found = Comparison("mamba", Paired(difference, -1, 1, p / 2), p, True, "some test")
    assert found.mark == mark


def test_predictions_of_another_attempt_are_refused(tmp_path: Path) -> None:
    ours = kept(tmp_path, "msssm-s6", answered(right(100, 0.9, 1)), metrics={"test_accuracy": 0.5})
    with pytest.raises(DataError, match=r"gives accuracy 0\.9\d*, and the record has 0\.5"):
        compare_runs([ours], [kept(tmp_path, "mamba", answered(right(100, 0.6, 2)))])
