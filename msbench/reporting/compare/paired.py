"""Paired significance tests of two runs on the same examples, with counts of changed examples."""

from dataclasses import dataclass

import numpy as np

from msbench import stats
from msbench.errors import DataError
from msbench.reporting.compare.answers import Answers, read_answers
from msbench.reporting.compare.lookup import FoundRun

SEED = 0
DRAWS = 10_000
AUROC_DRAWS = 1_000


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
    bootstrap: stats.Paired
    counts: PairedCounts | None = None
    mcnemar: float | None = None


@dataclass(frozen=True)
class NoPairedTest:
    """The reason why there is no paired test."""

    reason: str


def paired_test(first: FoundRun, second: FoundRun) -> PairedTest | NoPairedTest:
    """Test the difference of two runs, if both were tested on the same examples."""
    if reason := _not_comparable(first, second):
        return NoPairedTest(reason)
    try:
        ours, theirs = read_answers(first), read_answers(second)
    except DataError as error:
        return NoPairedTest(str(error))
    if not _same_examples(ours, theirs):
        return NoPairedTest("the two were tested on other examples, or these have other labels")
    return _test(ours, theirs)


def interval(found: FoundRun) -> str:
    """Return the 95 % interval of a run's result, with its method; empty where the run has no result."""
    record = found.record
    if record.result is None or not record.n_test:
        return ""
    if not 0 <= record.result <= 1:
        return "no interval: it is no fraction from 0 to 1; is it a percentage?"
    if record.metric == "accuracy":
        bounds = stats.wilson(round(record.result * record.n_test), record.n_test)
        how = f"Wilson, {record.n_test:,} test examples"
        return f"95 % interval {bounds.low:.2%} to {bounds.high:.2%} ({how})"
    try:
        answers = read_answers(found)
    except DataError as error:
        return f"no interval: {error}"
    assert answers.scores is not None, "read_answers has held them against a macro AUROC"
    drawn = stats.auroc_bootstrap(answers.labels, answers.scores, SEED, AUROC_DRAWS)
    how = f"bootstrap of {record.n_test:,} test examples"
    return f"95 % interval {drawn.low:.2%} to {drawn.high:.2%} ({how})"


def _not_comparable(first: FoundRun, second: FoundRun) -> str:
    ours, theirs = first.record, second.record
    for record in (ours, theirs):
        if record.result is None:
            return f"run {record.run_id} has no result: {record.status}"
    if ours.metric != theirs.metric:
        return f"the two have other metrics: {ours.metric} and {theirs.metric}"
    if ours.data_digest != theirs.data_digest:
        return "the two are on other data, so not on the same examples"
    return ""


def _same_examples(ours: Answers, theirs: Answers) -> bool:
    return np.array_equal(ours.examples, theirs.examples) and np.array_equal(ours.labels, theirs.labels)


def _test(ours: Answers, theirs: Answers) -> PairedTest:
    n = len(ours.examples)
    if ours.correct is None or theirs.correct is None:
        assert ours.scores is not None, "labels of the same shape have answers of the same kind"
        assert theirs.scores is not None, "labels of the same shape have answers of the same kind"
        drawn = stats.paired_auroc_bootstrap(ours.labels, theirs.scores, ours.scores, SEED, AUROC_DRAWS)
        return PairedTest(n, AUROC_DRAWS, drawn)
    counts = PairedCounts(
        both=int((ours.correct & theirs.correct).sum()),
        only_first=int((ours.correct & ~theirs.correct).sum()),
        only_second=int((~ours.correct & theirs.correct).sum()),
        neither=int((~ours.correct & ~theirs.correct).sum()),
    )
    drawn = stats.paired_bootstrap(theirs.correct, ours.correct, SEED, DRAWS)
    return PairedTest(n, DRAWS, drawn, counts, stats.mcnemar(counts.only_first, counts.only_second))
