"""Verdicts from evidence and expectation, with three states: pass, fail, undecided.

A mean passes if its one-sided 95 % lower confidence bound reaches ``expected - margin``, and fails if the
upper bound does not. The bounds include the expected mean's own uncertainty and, on another draw of the test
split, the noise of both draws.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from msbench.gate.expectation import Expectation, faults
from msbench.reporting.tables.cells import Evidence, Judgement, Verdict
from msbench.runs.suite_gate import DEFAULT_REASON
from msbench.stats import (
    Noninferiority,
    Pooled,
    learned_rule,
    noninferiority,
    pooled_sd,
    sampling_sd,
    seeds_needed,
    spread,
)

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
    checks: tuple[Check, ...] = (_unmeasured, _other_data, _invalid, _diverged, _not_learned)
    found = next((said for check in checks if (said := check(evidence, expectation))), None)
    found = found or _compared(evidence, expectation)
    return _as_marked(replace(found, expected=expectation.mean, margin=expectation.margin), expectation)


def crashed(evidence: Evidence) -> int:
    """Return how many runs broke: of seeds without a result, and newer ones of other code or data."""
    return sum(found.get(status, 0) for found in (evidence.unfinished, evidence.newer) for status in CRASHES)


def _unmeasured(evidence: Evidence, _: Expectation) -> Judgement | None:
    if evidence.values:
        return None
    verdict: Verdict = "diverged" if evidence.unfinished.get("diverged") else "missing"
    reason = f"no result: {_listed(evidence.unfinished)}" if evidence.unfinished else "not run"
    return Judgement(verdict, "; ".join((reason, *evidence.unread)))


def _other_data(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    if expectation.other_data or _same_data(evidence, expectation):
        return None
    if not expectation.data_digest:
        return Judgement("other-data", f"not the published data: {'; '.join(evidence.data_notes)}")
    measured, expected = evidence.data_digest[:12] or "unknown", expectation.data_digest[:12]
    return Judgement(
        "other-data", f"measured on data {measured}, expected on {expected}: the numbers do not compare"
    )


def _same_data(evidence: Evidence, expectation: Expectation) -> bool:
    """Return True if both are on the same data.

    The paper has no digest: there, notes from set-up count, and a suite's statement that its data are another
    draw.
    """
    if not expectation.data_digest:
        return not evidence.data_notes and not expectation.other_data
    return evidence.data_digest == expectation.data_digest


def _invalid(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    found = list(faults(evidence, expectation))
    return Judgement("invalid", "; ".join(found)) if found else None


def _diverged(evidence: Evidence, _: Expectation) -> Judgement | None:
    count = evidence.unfinished.get("diverged", 0)
    if not count:
        return None
    mean = statistics.fmean(evidence.values)
    return Judgement("diverged", f"{count} of {evidence.n_planned} seeds; the others have {mean:.2%}")


def _not_learned(evidence: Evidence, expectation: Expectation) -> Judgement | None:
    """Return a verdict if chance or a trivial rule explains the measured mean, but not the expected one.

    At chance, or at the weakest rule, no margin helps. Between rules a margin may reach down to one.
    """
    chance = {} if evidence.chance is None else {"chance": evidence.chance}
    if _explained(evidence, chance) and not _explains(evidence, chance, expectation.mean):
        return Judgement("chance-level", _did_not_learn(evidence, chance, expectation))
    rules = evidence.rules if evidence.metric == "test_accuracy" else {}
    name = _explained(evidence, rules)
    if name is None:
        return None
    rule = {name: rules[name]}
    weakest = rules[name] == min(rules.values())
    if _explains(evidence, rule, expectation.mean if weakest else expectation.bound):
        return None
    return Judgement("trivial-rule", _did_not_learn(evidence, rule, expectation))


def _explained(evidence: Evidence, rules: Mapping[str, float]) -> str | None:
    """Return the rule that explains the mean and also the best seed.

    If some seeds learned and others did not, their spread is so wide that it would explain anything.
    """
    if not evidence.n_test:
        return None
    values = evidence.values
    name = learned_rule(statistics.fmean(values), spread(values), len(values), evidence.n_test, rules)
    best = None if name is None else _explains(evidence, {name: rules[name]}, max(values))
    return name if best else None


def _explains(evidence: Evidence, rule: Mapping[str, float], rate: float) -> bool:
    """Return True if `rate` is no more than this one rule gives, within the noise of the test split."""
    return learned_rule(rate, None, 1, evidence.n_test or 1, rule) is not None


def _did_not_learn(evidence: Evidence, rule: Mapping[str, float], expectation: Expectation) -> str:
    ((name, rate),) = rule.items()
    called = name if name == "chance" else f"'{name}'"
    expected = f"{expectation.source} {expectation.mean:.2%}"
    return f"did not learn: {_measured(evidence)} is what {called} gives ({rate:.2%}), against {expected}"


def _compared(evidence: Evidence, expectation: Expectation) -> Judgement:
    """Compare the means."""
    default = " (no margin stated: the default)" if expectation.reason == DEFAULT_REASON else ""
    wanted = f"{expectation.source} {expectation.mean:.2%} - {expectation.margin:.2%}{default}"
    measured = _measured(evidence)
    found = comparison(evidence, expectation)
    if found.low is None or found.high is None:
        text = f"{measured} against {wanted}: one seed, and no spread of seeds is known"
        return Judgement("inconclusive", text, seeds_needed=1)
    text = f"{measured}, bounds {found.low:.2%} to {found.high:.2%}, against {wanted}"
    judged = Judgement("inconclusive", text, low=found.low, high=found.high)
    if found.state == "below":
        return replace(judged, verdict="fail")
    if found.state == "undecided":
        return _undecided(judged, evidence, expectation)
    if lacking := list(_lacking(evidence)):
        return replace(judged, reason="; ".join((text, *lacking)))
    return replace(
        judged, verdict="improved" if found.low > expectation.mean + expectation.margin else "pass"
    )


def _lacking(evidence: Evidence) -> Iterator[str]:
    """Yield the runs that should count but are not among those measured."""
    if absent := evidence.n_planned - len(evidence.values):
        statuses = f" ({_listed(evidence.unfinished)})" if evidence.unfinished else ""
        yield f"{absent} of {evidence.n_planned} seeds missing{statuses}"
    yield from evidence.unread
    if evidence.newer:
        others = f"runs of the present code and data, or newer ones: {_listed(evidence.newer)}"
        yield f"not among these are {others}; train them again, or delete them"


def comparison(evidence: Evidence, expectation: Expectation) -> Noninferiority:
    """Return the bounds of the mean, including the expectation's own uncertainty.

    Seeds vary on both sides: the variance is that of a seed times ``1/n + 1/n_expected``. Another draw of the
    test split adds its binomial variance once per side, whatever the number of seeds.
    """
    return noninferiority(
        evidence.values,
        expectation.bound,
        pooled=seed_spread(evidence, expectation),
        n_expected=expectation.n,
        sampling=_test_noise(evidence, expectation),
        step=_step(evidence),
    )


def _step(evidence: Evidence) -> float:
    """Return the distance between neighbouring accuracies."""
    return 1 / evidence.n_test if evidence.n_test else 0.0


def seed_spread(evidence: Evidence, expectation: Expectation) -> Pooled | None:
    """Return the spread between seeds: of these and the expectation's groups together, else the known one."""
    told = pooled_sd(expectation.groups)
    if told is None and expectation.known is not None:
        return expectation.known
    return pooled_sd([evidence.values, *expectation.groups])


def _test_noise(evidence: Evidence, expectation: Expectation) -> float:
    """Return the standard error between two means on different test splits; 0 on the same one."""
    if _same_data(evidence, expectation):
        return 0.0
    ours = evidence.n_test or expectation.n_test or 1
    return sampling_sd(expectation.mean, ours, expectation.n_test or ours)


def _undecided(judged: Judgement, evidence: Evidence, expectation: Expectation) -> Judgement:
    """Add the number of further seeds that would decide with a probability of 80 %."""
    more = seeds_needed(
        evidence.values,
        expectation.bound,
        pooled=seed_spread(evidence, expectation),
        n_expected=expectation.n,
        sampling=_test_noise(evidence, expectation),
        step=_step(evidence),
    )
    if more is None:
        told = "more seeds alone would hardly decide"
    else:
        told = f"{more} more seed{'' if more == 1 else 's'} like these would decide four times in five"
    return replace(judged, reason=f"{judged.reason}; {told}", seeds_needed=more)


def _as_marked(judged: Judgement, expectation: Expectation) -> Judgement:
    """Apply the mark of a cell that is expected to fail."""
    mark = expectation.xfail
    if mark is None:
        return judged
    if judged.verdict in EXCUSED:
        text = f"{judged.verdict}, as expected ({mark.reason}; {mark.link}): {judged.reason}"
        return replace(judged, verdict="xfail", reason=text)
    if judged.verdict in ("pass", "improved"):
        text = f"marked as failing ({mark.link}) but passes: take the mark away; {judged.reason}"
        return replace(judged, verdict="improved", reason=text)
    return judged


def _measured(evidence: Evidence) -> str:
    count = len(evidence.values)
    return f"{statistics.fmean(evidence.values):.2%} ({count} seed{'' if count == 1 else 's'})"


def _listed(unfinished: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {status}" for status, count in sorted(unfinished.items()))
