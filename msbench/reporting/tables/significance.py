"""Significance tests of a model against a reference model on a task. Rules: docs/statistics.md."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.errors import DataError
from msbench.results.predictions import read_correct, read_scores
from msbench.results.record import Metric, RunRecord
from msbench.stats.bootstrap import Paired, bootstrap_auroc_difference, bootstrap_difference
from msbench.stats.difference import Difference, mcnemar, welch

LEVEL = 0.05
"""Significance level for adjusted p-values; intervals have the confidence level 1 - `LEVEL`."""
DRAWS: dict[Metric, int] = {"accuracy": 10_000, "macro-auroc": 2_000}
"""Draws of the paired bootstrap, by metric; the seed is fixed, so that tables are reproducible."""
SEED = 0


@dataclass(frozen=True)
class ComparedRun:
    """A finished run, and the folder of its predictions.

    `metric`, if set, is compared instead of the result: only over seeds, as predictions are of the test
    split.
    """

    record: RunRecord
    folder: Path
    metric: str = ""

    @property
    def value(self) -> float | None:
        """The value that is compared."""
        return self.record.metrics.get(self.metric) if self.metric else self.record.result


@dataclass(frozen=True)
class Comparison:
    """The difference `model` - `reference` in one metric, as a fraction, with its two-sided 95 % interval.

    `p` is the p-value of no difference, `p_holm` the same adjusted for all comparisons of the table.
    `over_seeds` distinguishes tests over seeds from tests over examples, and `how` describes the test in
    words; `words` are for above and below.
    """

    model: str
    reference: str
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    over_seeds: bool
    how: str
    words: tuple[str, str] = ("better", "worse")

    @property
    def verdict(self) -> str:
        """A text such as ``better than mamba``, or that the two models cannot be distinguished."""
        if self.p_holm >= LEVEL:
            return f"not distinguishable from {self.reference}"
        more, less = self.words
        return f"{more if self.difference > 0 else less} than {self.reference}"

    @property
    def mark(self) -> str:
        """The text of the mark of a cell."""
        return f"{self.verdict}, {_format_p(self.p_holm)} (Holm, {self.how})"


def compare_runs(ours: Sequence[ComparedRun], theirs: Sequence[ComparedRun]) -> Comparison:
    """Compare the runs of a model with those of the reference on the same task.

    With two seeds or more on both sides: Welch's test over seeds. Else example by example, for one run of
    each, of the same seed if they share one: McNemar's exact test with an interval by the paired bootstrap,
    or, for macro AUROC, the paired bootstrap alone. Raises DataError where the runs are not of the same test
    set and metric, or the predictions cannot be read.
    """
    if not (ours and theirs):
        raise DataError("a comparison needs finished runs on both sides; 'msbench list runs' lists them")
    _check_same_test([*ours, *theirs])
    first = ours[0].record
    if min(len(ours), len(theirs)) > 1:
        # An accuracy over n examples is a multiple of 1 / n; a few seeds may agree by chance.
        is_accuracy = first.metric == "accuracy" and not ours[0].metric
        step = 1 / first.n_test if is_accuracy and first.n_test else 0.0
        values = ([each.value for each in side if each.value is not None] for side in (ours, theirs))
        return compare_over_seeds((first.model, theirs[0].record.model), *values, step=step)
    if ours[0].metric:
        raise DataError("predictions are of the test split only: train two seeds of both models")
    shared = {run.record.seed for run in ours} & {run.record.seed for run in theirs}
    pair = (
        min((run for run in side if not shared or run.record.seed in shared), key=lambda run: run.record.seed)
        for side in (ours, theirs)
    )
    return _compare_over_examples(*pair)


def _check_same_test(runs: Sequence[ComparedRun]) -> None:
    """Raise DataError for a run without a result, and for runs on different data, metrics or test sizes."""
    for run in runs:
        if run.record.result is None:
            raise DataError(f"run {run.record.run_id} has no result to compare: it is {run.record.status}")
    first = runs[0].record
    for run in runs[1:]:
        other = run.record
        if other.data_digest != first.data_digest:
            raise DataError(f"runs {first.run_id} and {other.run_id} are on different data; run both again")
        if (other.metric, other.n_test) != (first.metric, first.n_test):
            raise DataError(
                f"runs {first.run_id} and {other.run_id} have {first.metric} of {first.n_test} examples"
                f" and {other.metric} of {other.n_test}; run both again"
            )


def compare_over_seeds(
    models: tuple[str, str], first: Sequence[float], second: Sequence[float], *, step: float = 0.0
) -> Comparison:
    """Compare two models by Welch's test over seeds, two or more on either side; `step` is passed to it."""
    found = welch(first, second, 1 - LEVEL, step=step)
    how = f"Welch over seeds, n = {len(first)} and {len(second)}"
    return _make_comparison(models, found, how, over_seeds=True)


def _make_comparison(
    models: tuple[str, str], found: Difference | Paired, how: str, *, over_seeds: bool
) -> Comparison:
    """Return the comparison of a single pair, which needs no adjustment of its p-value."""
    numbers = (found.difference, found.low, found.high, found.p, found.p)
    return Comparison(*models, *numbers, over_seeds, how)


def _compare_over_examples(ours: ComparedRun, theirs: ComparedRun) -> Comparison:
    by_class = ours.record.metric == "macro-auroc"
    found, n, name = (_compare_aurocs if by_class else _compare_answers)(ours, theirs)
    seeds = (ours.record.seed, theirs.record.seed)
    which = f"seed {seeds[0]} of each" if seeds[0] == seeds[1] else f"seeds {seeds[0]} and {seeds[1]}"
    how = f"{name} over {n} examples, {which}"
    return _make_comparison((ours.record.model, theirs.record.model), found, how, over_seeds=False)


def _compare_answers(ours: ComparedRun, theirs: ComparedRun) -> tuple[Paired, int, str]:
    (labels, first), (others, second) = (
        read_correct(run.folder, run.record.run_id) for run in (ours, theirs)
    )
    _check_same_examples(ours, theirs, labels, others)
    for run, correct in ((ours, first), (theirs, second)):
        _check_recorded_result(run, correct)
    found = bootstrap_difference(first, second, SEED, DRAWS["accuracy"], 1 - LEVEL)
    p = mcnemar(int((first & ~second).sum()), int((~first & second).sum()))
    return replace(found, p=p), len(labels), "McNemar"


def _compare_aurocs(ours: ComparedRun, theirs: ComparedRun) -> tuple[Paired, int, str]:
    (labels, first), (others, second) = (read_scores(run.folder, run.record.run_id) for run in (ours, theirs))
    _check_same_examples(ours, theirs, labels, others)
    try:
        found = bootstrap_auroc_difference(labels, first, second, SEED, DRAWS["macro-auroc"], 1 - LEVEL)
    except ValueError as error:
        raise DataError(f"{ours.folder} and {theirs.folder}: {error}") from None
    return found, len(labels), "paired bootstrap"


def _check_same_examples(
    ours: ComparedRun, theirs: ComparedRun, first: NDArray[np.int64], second: NDArray[np.int64]
) -> None:
    for run, labels in ((ours, first), (theirs, second)):
        if run.record.n_test is not None and len(labels) != run.record.n_test:
            raise DataError(
                f"{run.folder}: {len(labels)} predictions of {run.record.n_test} test examples;"
                " train this run again with --fresh"
            )
    if not np.array_equal(first, second):
        raise DataError(
            f"{ours.folder} and {theirs.folder}: different labels, so different examples; run both again"
        )


def _check_recorded_result(run: ComparedRun, correct: NDArray[np.bool_]) -> None:
    """Raise DataError if predictions contradict the record, as those of another attempt of the run may."""
    result = run.record.result
    if result is not None and abs(float(correct.mean()) - result) * len(correct) > 0.5:
        raise DataError(
            f"{run.folder}: {correct.mean():.2%} of the predictions are right, but the record has"
            f" {result:.2%}; train this run again with --fresh"
        )


def _format_p(p: float) -> str:
    if p < 0.001:
        return "p < 0.001"
    # Next to a verdict 0.0497 must not be rounded to 0.05.
    texts = (f"{p:.{digits}g}" for digits in range(2, 17))
    return f"p = {next((text for text in texts if (float(text) < LEVEL) == (p < LEVEL)), repr(p))}"
