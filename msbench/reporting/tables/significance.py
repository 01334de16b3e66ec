"""Significance tests of a model against a reference model on a task. Rules: docs/statistics.md."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msbench.errors import DataError
from msbench.reporting.outcomes import FoundRun, check_same_test, run_paired_test
from msbench.reporting.tables.cells import Part
from msbench.results.record import get_metric_key
from msbench.stats.bootstrap import Paired
from msbench.stats.difference import Difference, welch

LEVEL = 0.05
"""Significance level for adjusted p-values; intervals have the confidence level 1 - `LEVEL`."""


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


def compare_runs(ours: Sequence[FoundRun], theirs: Sequence[FoundRun], *, part: Part = "test") -> Comparison:
    """Compare the runs of a model with those of the reference on the same task, on a `part` of the data.

    With two seeds or more on both sides: Welch's test over seeds. Else example by example, for one run of
    each, of the same seed if they share one: McNemar's exact test with an interval by the paired bootstrap,
    or, for macro AUROC, the paired bootstrap alone. Raises DataError where the runs are not of the same test
    set and metric, or the predictions cannot be read; there are none of the validation split.
    """
    if not (ours and theirs):
        raise DataError("a comparison needs finished runs on both sides; 'msbench list runs' lists them")
    check_same_test([run.record for run in (*ours, *theirs)])
    first = ours[0].record
    if min(len(ours), len(theirs)) > 1:
        # An accuracy over n examples is a multiple of 1 / n; a few seeds may agree by chance.
        is_accuracy = first.metric == "accuracy" and part == "test"
        step = 1 / first.n_test if is_accuracy and first.n_test else 0.0
        key = get_metric_key(part, first.metric)
        values = ([run.record.metrics[key] for run in side] for side in (ours, theirs))
        return compare_over_seeds((first.model, theirs[0].record.model), *values, step=step)
    if part == "validation":
        raise DataError("predictions are of the test split only: train two seeds of both models")
    shared = {run.record.seed for run in ours} & {run.record.seed for run in theirs}
    pair = (
        min((run for run in side if not shared or run.record.seed in shared), key=lambda run: run.record.seed)
        for side in (ours, theirs)
    )
    return _compare_over_examples(*pair)


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


def _compare_over_examples(ours: FoundRun, theirs: FoundRun) -> Comparison:
    test = run_paired_test(theirs, ours)
    seeds = (ours.record.seed, theirs.record.seed)
    which = f"seed {seeds[0]} of each" if seeds[0] == seeds[1] else f"seeds {seeds[0]} and {seeds[1]}"
    name, p = ("paired bootstrap", test.bootstrap.p) if test.mcnemar is None else ("McNemar", test.mcnemar)
    how = f"{name} over {test.n} examples, {which}"
    models, found = (ours.record.model, theirs.record.model), replace(test.bootstrap, p=p)
    return _make_comparison(models, found, how, over_seeds=False)


def _format_p(p: float) -> str:
    if p < 0.001:
        return "p < 0.001"
    # Next to a verdict 0.0497 must not be rounded to 0.05.
    texts = (f"{p:.{digits}g}" for digits in range(2, 17))
    return f"p = {next((text for text in texts if (float(text) < LEVEL) == (p < LEVEL)), repr(p))}"
