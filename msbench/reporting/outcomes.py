"""Outcome of a run beyond its record: learning curve and predictions, and tests of two runs on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.errors import DataError
from msbench.results.metrics_log import read_log, select_epochs
from msbench.results.predictions import FILE, read_correct, read_examples, read_scores
from msbench.results.record import Metric, RunRecord, get_metric_key
from msbench.stats.bootstrap import Paired, bootstrap_auroc, bootstrap_auroc_difference, bootstrap_difference
from msbench.stats.difference import mcnemar
from msbench.stats.proportion import wilson
from msbench.training.auroc import macro_auroc

CLOSE = 1e-6
"""Tolerance, for rounding, between the recorded result and that computed from the predictions."""
SEED = 0
"""The seed of all draws, fixed so that pages and tables are reproducible."""
DRAWS: dict[Metric, int] = {"accuracy": 10_000, "macro-auroc": 2_000}
"""Draws of the paired bootstrap, by metric."""
AUROC_DRAWS = 1_000
"""Draws of the interval of a single AUROC."""


@dataclass(frozen=True)
class FoundRun:
    """A run and its folder; `note` names which of several it is, and others that could not be read."""

    record: RunRecord
    folder: Path
    note: str = ""


@dataclass(frozen=True)
class Epoch:
    """The metrics of one epoch; `score` is that of the task on the validation split, a fraction."""

    epoch: int
    train_loss: float
    validation_loss: float
    score: float


def read_curve(folder: Path, metric: Metric) -> tuple[list[Epoch], str]:
    """Return the epochs of a run, none if it had none, and an error message if its log is invalid."""
    path, score = folder / "metrics.csv", get_metric_key("validation", metric)
    if not path.exists():
        return [], ""
    rows, problem = read_log(folder)
    names = ("train_loss", "validation_loss", score)
    try:
        return [
            Epoch(int(float(row["epoch"])), *(float(row[name]) for name in names))
            for row in select_epochs(rows)
        ], problem
    except (KeyError, TypeError, ValueError) as error:
        return [], f"{path}: not the metrics of a run: {error}"


@dataclass(frozen=True)
class Answers:
    """Predictions of a run on its test examples.

    `examples` are numbers (n,). Where an example has one label, `labels` are (n,), and `values` (n,) are True
    for correct predictions. Where it may have several, both are (n, classes): 0 and 1, and scores that rank.
    """

    examples: NDArray[np.int64]
    labels: NDArray[np.int64]
    values: NDArray[Any]

    @property
    def result(self) -> float:
        """Accuracy, or macro AUROC, as a fraction."""
        if self.values.ndim == 1:
            return float(self.values.mean())
        return macro_auroc(self.values, self.labels).value


def read_answers(found: FoundRun) -> Answers:
    """Read the predictions of a finished run.

    Raises DataError, naming the file, where it is absent, where it has no valid predictions or too few, and
    where they do not give the recorded result, as those of another attempt of the run may.
    """
    path, record = found.folder / FILE, found.record
    examples = read_examples(found.folder, record.run_id)
    if not len(examples):
        raise DataError(f"{path}: has no examples")
    if record.n_test is not None and len(examples) != record.n_test:
        raise DataError(
            f"{path}: {len(examples)} predictions of {record.n_test} test examples;"
            " train this run again with --fresh"
        )
    read = read_correct if record.metric == "accuracy" else read_scores
    answers = Answers(examples, *read(found.folder, record.run_id))
    try:
        result = answers.result
    except ValueError as error:
        raise DataError(f"{path}: not the predictions of a run: {error}") from None
    if record.result is None or abs(result - record.result) > CLOSE:
        raise DataError(
            f"{path}: gives {record.metric} {result:.6f}, and the record has {record.result};"
            " train this run again with --fresh"
        )
    return answers


def describe_interval(found: FoundRun) -> str:
    """Return the 95 % interval of a run's result, with its method; empty where the run has no result."""
    record = found.record
    if record.result is None or not record.n_test:
        return ""
    if not 0 <= record.result <= 1:
        return "no interval: it is no fraction from 0 to 1; is it a percentage?"
    if record.metric == "accuracy":
        bounds = wilson(round(record.result * record.n_test), record.n_test)
        how = f"Wilson, {record.n_test:,} test examples"
        return f"95 % interval {bounds.low:.2%} to {bounds.high:.2%} ({how})"
    try:
        answers = read_answers(found)
    except DataError as error:
        return f"no interval: {error}"
    drawn = bootstrap_auroc(answers.labels, answers.values, SEED, AUROC_DRAWS)
    how = f"bootstrap of {record.n_test:,} test examples"
    return f"95 % interval {drawn.low:.2%} to {drawn.high:.2%} ({how})"


@dataclass(frozen=True)
class PairedCounts:
    """Counts of examples by which of two runs has them right."""

    both: int
    only_first: int
    only_second: int
    neither: int


@dataclass(frozen=True)
class PairedTest:
    """The test of second - first on the same examples: difference, 95 % bootstrap interval, p-values.

    `counts` and `mcnemar` (exact, two-sided) are of examples that are right or wrong, so None for an AUROC.
    """

    n: int
    draws: int
    bootstrap: Paired
    counts: PairedCounts | None = None
    mcnemar: float | None = None


def run_paired_test(first: FoundRun, second: FoundRun) -> PairedTest:
    """Test the difference of two runs; DataError, with the reason, if their examples are not the same."""
    check_same_test([first.record, second.record])
    ours, theirs = read_answers(first), read_answers(second)
    same = np.array_equal(ours.examples, theirs.examples) and np.array_equal(ours.labels, theirs.labels)
    if not same:
        raise DataError(
            f"{first.folder} and {second.folder}: different examples, or different labels of these;"
            " run both again"
        )
    n, draws, a, b = len(ours.examples), DRAWS[first.record.metric], ours.values, theirs.values
    if first.record.metric == "accuracy":
        counts = PairedCounts(*(int(each.sum()) for each in (a & b, a & ~b, ~a & b, ~a & ~b)))
        drawn = bootstrap_difference(b, a, SEED, draws)
        return PairedTest(n, draws, drawn, counts, mcnemar(counts.only_first, counts.only_second))
    try:
        drawn = bootstrap_auroc_difference(ours.labels, b, a, SEED, draws)
    except ValueError as error:
        raise DataError(f"{first.folder} and {second.folder}: {error}") from None
    return PairedTest(n, draws, drawn)


def check_same_test(records: Sequence[RunRecord]) -> None:
    """Raise DataError for a run without a result, and for runs on different data, metrics or test sizes."""
    for record in records:
        if record.result is None:
            raise DataError(f"run {record.run_id} has no result to compare: it is {record.status}")
    first = records[0]
    for other in records[1:]:
        if other.data_digest != first.data_digest:
            raise DataError(f"runs {first.run_id} and {other.run_id} are on different data; run both again")
        if (other.metric, other.n_test) != (first.metric, first.n_test):
            raise DataError(
                f"runs {first.run_id} and {other.run_id} have {first.metric} of {first.n_test} examples"
                f" and {other.metric} of {other.n_test}; run both again"
            )
