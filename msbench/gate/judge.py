"""Verdicts from evidence and expectation, with three states: pass, fail, undecided.

A mean passes if its one-sided 95 % lower confidence bound reaches ``expected - margin``, and fails if the
upper bound does not. The bounds include the expected mean's own uncertainty and, on another draw of the test
split, the noise of both draws.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from msbench.gate.expectations import Expectation, find_faults
from msbench.reporting.tables.cells import Evidence, Judgement, Verdict
from msbench.runs.suite_file import DEFAULT_REASON
from msbench.stats.noninferiority import Noninferiority, count_seeds_needed, decide_noninferiority
from msbench.stats.proportion import compute_sampling_sd, find_unbeaten_rule
from msbench.stats.summary import Pooled, compute_sd, pool_sd

CRASHES = ("failed", "out-of-memory")
"""Statuses of runs that broke; a diverged run is a result of its own."""
EXCUSED = ("fail", "chance-level", "trivial-rule", "diverged")
"""Verdicts that are excused for a cell marked as failing."""

Check = Callable[[Evidence, Expectation], Judgement | None]


def judge(evidence: Evidence, expectation: Expectation) -> Judgement:
    """Return the verdict on one cell, with its reason.

    What cannot be compared never passes: the order of checks is data, validity of the numbers, whether
    anything was learned, and the means last.
    """
    checks: tuple[Check, ...] = (
        *(_check_measured, _check_data, _check_validity, _check_divergence, _check_learning),
        _judge_means,
    )
    found = next(judgement for check in checks if (judgement := check(evidence, expectation)))
    return _apply_mark(replace(found, expected=expectation.mean, margin=expectation.margin), expectation)


def count_crashes(evidence: Evidence) -> int:
    """Return how many runs broke: of seeds without a result, and newer ones of other code or data."""
    return sum(found.get(status, 0) for found in (evidence.unfinished, evidence.newer) for status in CRASHES)


def _check_measured(evidence: Evidence, _: Expectation) -> Judgement | None:
    if evidence.values:
        return None
    verdict: Verdict = "diverged" if evidence.unfinished.get("diverged") else "missing"
    reason = f"no result: {_list_statuses(evidence.unfinished)}" if evidence.unfinished else "not run"
    return Judgement(verdict, "; ".join((reason, *evidence.unread)))


def _check_data(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    if expectation.other_data or _is_same_data(evidence, expectation):
        return None
    if not expectation.data_digest:
        return Judgement("other-data", f"not the published data: {'; '.join(evidence.data_notes)}")
    measured, expected = evidence.data_digest[:12] or "unknown", expectation.data_digest[:12]
    return Judgement(
        "other-data", f"measured on data {measured}, expected on {expected}: the numbers do not compare"
    )


def _is_same_data(evidence: Evidence, expectation: Expectation) -> bool:
    """Return True if both are on the same data.

    The paper has no digest: there, notes from set-up count, and a suite's statement that its data are another
    draw.
    """
    if not expectation.data_digest:
        return not evidence.data_notes and not expectation.other_data
    return evidence.data_digest == expectation.data_digest


def _check_validity(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    faults = list(find_faults(evidence, expectation))
    return Judgement("invalid", "; ".join(faults)) if faults else None


def _check_divergence(evidence: Evidence, _: Expectation) -> Judgement | None:
    count = evidence.unfinished.get("diverged", 0)
    if not count:
        return None
    mean = statistics.fmean(evidence.values)
    return Judgement("diverged", f"{count} of {evidence.n_planned} seeds; the others have {mean:.2%}")


def _check_learning(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    """Return a verdict if chance or a trivial rule explains the measured mean, but not the expected one.

    At chance, or at the weakest rule, no margin helps. Between rules a margin may reach down to one.
    """
    chance = evidence.chance
    is_chance = chance is not None and _find_rule(evidence, {"chance": chance}) is not None
    if chance is not None and is_chance and not _explains(evidence, chance, expectation.mean):
        return Judgement("chance-level", _describe_rule(evidence, "chance", chance, expectation))
    rules = evidence.rules if evidence.metric == "test_accuracy" else {}
    name = _find_rule(evidence, rules)
    if name is None:
        return None
    weakest = rules[name] == min(rules.values())
    if _explains(evidence, rules[name], expectation.mean if weakest else expectation.bound):
        return None
    return Judgement("trivial-rule", _describe_rule(evidence, f"'{name}'", rules[name], expectation))


def _find_rule(evidence: Evidence, rules: Mapping[str, float]) -> str | None:
    """Return the rule that neither the mean nor the best seed beats.

    If some seeds learned and others did not, their spread is so wide that it would explain anything.
    """
    if not evidence.n_test:
        return None
    values = evidence.values
    name = find_unbeaten_rule(
        statistics.fmean(values), compute_sd(values), len(values), evidence.n_test, rules
    )
    return name if name is not None and _explains(evidence, rules[name], max(values)) else None


def _explains(evidence: Evidence, rule: float, rate: float) -> bool:
    """Return True if `rate` is no more than a rule's rate, within the noise of the test split."""
    return find_unbeaten_rule(rate, None, 1, evidence.n_test or 1, {"rule": rule}) is not None


def _describe_rule(evidence: Evidence, name: str, rate: float, expectation: Expectation) -> str:
    measured, given = _describe_mean(evidence), f"{name} gives ({rate:.2%})"
    expected = f"{expectation.source} {expectation.mean:.2%}"
    return f"did not learn: {measured} is no more than {given}, against {expected}"


def _judge_means(evidence: Evidence, expectation: Expectation) -> Judgement:
    default = " (no margin stated: the default)" if expectation.reason == DEFAULT_REASON else ""
    expected = f"{expectation.source} {expectation.mean:.2%} - {expectation.margin:.2%}{default}"
    measured = _describe_mean(evidence)
    found = compare_means(evidence, expectation)
    if found.low is None or found.high is None:
        text = f"{measured} against {expected}: one seed, and no spread of seeds is known"
        return Judgement("inconclusive", text, seeds_needed=1)
    text = f"{measured}, bounds {found.low:.2%} to {found.high:.2%}, against {expected}"
    judgement = Judgement("inconclusive", text, low=found.low, high=found.high)
    if found.state == "below":
        return replace(judgement, verdict="fail")
    if found.state == "undecided":
        return _add_seeds_needed(judgement, evidence, expectation)
    if absent := list(_list_absent_runs(evidence)):
        return replace(judgement, reason="; ".join((text, *absent)))
    is_better = found.low > expectation.mean + expectation.margin
    return replace(judgement, verdict="improved" if is_better else "pass")


def _list_absent_runs(evidence: Evidence) -> Iterator[str]:
    """Yield the runs that should count but are not among those measured."""
    if absent := evidence.n_planned - len(evidence.values):
        statuses = f" ({_list_statuses(evidence.unfinished)})" if evidence.unfinished else ""
        yield f"{absent} of {evidence.n_planned} seeds missing{statuses}"
    yield from evidence.unread
    if evidence.newer:
        newer = f"runs of the present code and data, or newer ones: {_list_statuses(evidence.newer)}"
        yield f"these results leave out {newer}; train them again, or delete them"


def compare_means(evidence: Evidence, expectation: Expectation) -> Noninferiority:
    """Return the bounds of the mean, including the expectation's own uncertainty.

    Seeds vary on both sides: the variance is that of a seed times ``1/n + 1/n_expected``. Another draw of the
    test split adds its binomial variance once per side, whatever the number of seeds.
    """
    return decide_noninferiority(evidence.values, expectation.bound, **_measure_noise(evidence, expectation))


def _measure_noise(evidence: Evidence, expectation: Expectation) -> dict[str, Any]:
    """Return the sources of noise, as keyword arguments of the test."""
    ours = evidence.n_test or expectation.n_test or 1
    same = _is_same_data(evidence, expectation)
    sampling = 0.0 if same else compute_sampling_sd(expectation.mean, ours, expectation.n_test or ours)
    return {
        "pooled": pool_seed_spread(evidence, expectation),
        "n_expected": expectation.n,
        "sampling": sampling,
        # The distance between neighbouring accuracies.
        "step": 1 / evidence.n_test if evidence.n_test else 0.0,
    }


def pool_seed_spread(evidence: Evidence, expectation: Expectation) -> Pooled | None:
    """Return the spread between seeds: of these and the expectation's groups together, else the known one."""
    if expectation.known is not None and pool_sd(expectation.groups) is None:
        return expectation.known
    return pool_sd([evidence.values, *expectation.groups])


def _add_seeds_needed(judgement: Judgement, evidence: Evidence, expectation: Expectation) -> Judgement:
    """Add the number of further seeds that would decide with a probability of 80 %."""
    more = count_seeds_needed(evidence.values, expectation.bound, **_measure_noise(evidence, expectation))
    if more is None:
        hint = "more seeds alone would hardly decide"
    else:
        hint = f"{more} more seed{'' if more == 1 else 's'} like these would decide four times in five"
    return replace(judgement, reason=f"{judgement.reason}; {hint}", seeds_needed=more)


def _apply_mark(judgement: Judgement, expectation: Expectation) -> Judgement:
    """Apply the mark of a cell that is expected to fail."""
    mark = expectation.xfail
    if mark is None:
        return judgement
    if judgement.verdict in EXCUSED:
        text = f"{judgement.verdict}, as expected ({mark.reason}; {mark.link}): {judgement.reason}"
        return replace(judgement, verdict="xfail", reason=text)
    if judgement.verdict in ("pass", "improved"):
        text = f"marked as failing ({mark.link}) but passes: remove the mark; {judgement.reason}"
        return replace(judgement, verdict="improved", reason=text)
    return judgement


def _describe_mean(evidence: Evidence) -> str:
    count = len(evidence.values)
    return f"{statistics.fmean(evidence.values):.2%} ({count} seed{'' if count == 1 else 's'})"


def _list_statuses(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
