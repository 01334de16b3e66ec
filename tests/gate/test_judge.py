import math
import random
from collections import Counter
from typing import Any

import pytest
from gate_cases import KNOWN_FAILURE, evidence, expectation
from simulation import compute_chances

from msbench.gate.expectations import Expectation
from msbench.gate.judge import compare_means, count_crashes, judge, pool_seed_spread
from msbench.reporting.tables.cells import Evidence
from msbench.runs.suite_file import DEFAULT_REASON
from msbench.stats.noninferiority import count_seeds_needed, decide_noninferiority
from msbench.stats.summary import Pooled

PASSING = ("pass", "improved", "xfail")


@pytest.mark.parametrize(
    ("measured", "expected", "verdict", "words"),
    [
        (evidence(0.622, 0.618, 0.621), expectation(), "pass", "62.03% (3 seeds), bounds"),
        (evidence(0.60, 0.603, 0.606), expectation(), "inconclusive", "more seeds like these"),
        (evidence(0.58, 0.582, 0.584), expectation(), "fail", "58.20%"),
        (evidence(0.66, 0.662, 0.661), expectation(), "improved", "66.10%"),
        (evidence(0.62), expectation(), "inconclusive", "one seed, and no spread of seeds is known"),
        (evidence(0.62), expectation(known=Pooled(0.005, 9)), "pass", "62.00% (1 seed)"),
        (evidence(0.58), expectation(known=Pooled(0.005, 9)), "fail", "58.00% (1 seed)"),
        (evidence(0.62), expectation(groups=((0.61, 0.62, 0.63), (0.3, 0.31))), "inconclusive", ""),
        (evidence(0.62), expectation(groups=((0.619, 0.62, 0.621), (0.3, 0.301))), "pass", ""),
        (evidence(0.103, 0.098, 0.1), expectation(), "chance-level", "did not learn: 10.03%"),
        (evidence(0.09), expectation(), "chance-level", "chance gives (10.00%)"),
        (evidence(0.365, 0.362, 0.36), expectation(), "trivial-rule", "'root operator only' gives (36.30%)"),
        (evidence(0.363), expectation(), "trivial-rule", "did not learn"),
        (evidence(0.25), expectation(), "trivial-rule", "no more than 'root operator only' gives (36.30%)"),
        (evidence(0.16, 0.165), expectation(), "trivial-rule", "'majority'"),
        (evidence(0.62, 0.63, unfinished={"diverged": 1}, n_planned=3), expectation(), "diverged", "1 of 3"),
        (evidence(unfinished={"diverged": 3}), expectation(), "diverged", "no result: 3 diverged"),
        (evidence(), expectation(), "missing", "not run"),
        (evidence(unfinished={"out-of-memory": 2}), expectation(), "missing", "2 out-of-memory"),
        (evidence(unfinished={"interrupted": 1}), expectation(), "missing", "1 interrupted"),
    ],
)
def test_verdicts(measured: Evidence, expected: Expectation, verdict: str, words: str) -> None:
    found = judge(measured, expected)
    assert found.verdict == verdict, found.reason
    assert words in found.reason
    assert (found.expected, found.margin) == (expected.mean, expected.margin)


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("measured", "expected", "verdict", "words"),
    [
        (evidence(NAN, 0.62, 0.63), expectation(), "invalid", "measured nan: not a number"),
        (evidence(0.62, INF, 0.63), expectation(), "invalid", "measured inf: not a number"),
        (evidence(0.62, -INF, 0.63), expectation(), "invalid", "measured -inf"),
        (evidence(62.3, 62.1, 62.2), expectation(), "invalid", "is it a percentage? then it is 0.623"),
        (evidence(0.62, 62.0, 0.62), expectation(), "invalid", "measured 62: not a fraction"),
        (evidence(-0.01, 0.62, 0.62), expectation(), "invalid", "measured -0.01: not a fraction from 0 to 1"),
        (evidence(623.0), expectation(), "invalid", "measured 623: not a fraction from 0 to 1"),
        (evidence(1.0000001, 1.0, 1.0), expectation(), "invalid", "not a fraction"),
        (evidence(0.62, 0.63), expectation(NAN), "invalid", "expected nan: not a number"),
        (evidence(0.62, 0.63), expectation(INF), "invalid", "expected inf: not a number"),
        (evidence(0.62, 0.63), expectation(-INF), "invalid", "expected -inf: not a number"),
        (evidence(0.62, 0.63), expectation(62.3), "invalid", "expected 62.3: not a fraction"),
        (evidence(0.62, 0.63), expectation(-0.62), "invalid", "expected -0.62: not a fraction"),
        (evidence(0.62, 0.63), expectation(0.00623), "invalid", "is it a percentage of a percentage?"),
        (evidence(0.62, 0.63), expectation(0.0), "invalid", "not above chance (10.00%): anything would pass"),
        (evidence(0.62, 0.63), expectation(margin=NAN), "invalid", "margin must be a fraction"),
        (evidence(0.62, 0.63), expectation(margin=1.0), "invalid", "where 0.01 is one point, not 1"),
        (evidence(0.62, 0.63), expectation(margin=0.0), "invalid", "margin must be a fraction above 0"),
        (evidence(0.62, 0.63), expectation(margin=-0.01), "invalid", "margin must be a fraction above 0"),
        (evidence(0.62, 0.63, metric="test_macro_auroc"), expectation(), "invalid", "expected is test_acc"),
        (evidence(0.62, 0.63, metric="test_acuracy"), expectation(), "invalid", "measured is test_acuracy"),
        (evidence(0.62, 0.63, seeds=(0,)), expectation(), "invalid", "2 results of 1 seeds"),
        (evidence(0.62, 0.63, seeds=(1, 1)), expectation(), "invalid", "a seed counts twice: 1, 1"),
        (evidence(0.62, 0.63, n_test=0), expectation(), "invalid", "measured on 0 test examples"),
        (
            evidence(0.62, 0.63, n_test=100),
            expectation(),
            "invalid",
            "on 100 test examples, expected on 2000",
        ),
        (evidence(0.62, 0.63, n_test=None), expectation(), "invalid", "an unknown number of test examples"),
        (evidence(0.62, 0.63), expectation(n_test=0), "invalid", "expected on 0 test examples"),
        (
            evidence(0.62, 0.63, data_digest="bbbb"),
            expectation(),
            "other-data",
            "data bbbb, expected on aaaa",
        ),
        (evidence(0.62, 0.63, data_digest=""), expectation(), "other-data", "measured on data unknown"),
        (
            evidence(0.62, 0.63, data_notes=("100 images",)),
            expectation(data_digest="", n_test=None),
            "other-data",
            "not the published data: 100 images",
        ),
        (evidence(), expectation(NAN), "missing", "not run"),
        (evidence(n_planned=0), expectation(), "missing", "not run"),
        (evidence(0.62, 0.62, n_planned=3), expectation(), "inconclusive", "1 of 3 seeds missing"),
        (
            evidence(0.62, 0.62, n_planned=3, unfinished={"failed": 1}),
            expectation(),
            "inconclusive",
            "1 of 3 seeds missing (1 failed)",
        ),
        (
            evidence(0.62, 0.62, newer={"failed": 2}),
            expectation(),
            "inconclusive",
            "these results leave out runs of the present code and data, or newer ones: 2 failed",
        ),
        (
            evidence(0.62, 0.62, unread=("x/run.json: not a run record",)),
            expectation(),
            "inconclusive",
            "x/run.json: not a run record",
        ),
        (evidence(unread=("x: has no record",)), expectation(), "missing", "not run; x: has no record"),
        (evidence(0.0, 0.0, chance=None), expectation(0.02), "invalid", "is not above nothing (0.00%)"),
        (evidence(0.0, 0.0), expectation(0.11), "invalid", "11.00% - 2.00% is not above chance (10.00%)"),
        (
            evidence(0.62, 0.63, chance=None),
            expectation(0.006),
            "invalid",
            "is not above nothing (0.00%): anything would pass",
        ),
    ],
)
def test_nothing_broken_passes(measured: Evidence, expected: Expectation, verdict: str, words: str) -> None:
    found = judge(measured, expected)
    assert found.verdict == verdict, found.reason
    assert words in found.reason
    marked = judge(measured, Expectation(**{**vars(expected), "xfail": KNOWN_FAILURE}))
    assert marked.verdict == verdict, "a mark excuses nothing that was not measured"


def test_a_gap_that_the_margin_allows_is_no_trivial_rule() -> None:
    """Between rules, a margin may reach down to one; at the weakest rule and at chance it may not."""
    near = evidence(0.495, 0.496, 0.494)
    assert judge(near, expectation(0.52, margin=0.05)).verdict == "pass"
    assert judge(near, expectation(0.62, margin=0.05)).verdict == "trivial-rule"
    commonest = evidence(0.17, 0.171, 0.169)
    assert judge(commonest, expectation(0.2, margin=0.05)).verdict == "trivial-rule"
    coin: dict[str, Any] = {"rules": {}, "chance": 0.5, "n_test": 20_000}
    assert judge(evidence(0.5, 0.501, **coin), expectation(0.52, margin=0.019, n_test=20_000)).verdict == (
        "chance-level"
    )
    wide = judge(evidence(0.5, 0.501, **coin), expectation(0.52, margin=0.2, n_test=20_000))
    assert wide.verdict == "invalid", "whatever reaches chance would pass"


def test_seeds_of_which_some_learned_are_not_at_chance() -> None:
    """Their spread puts the mean within two standard errors of anything."""
    found = judge(evidence(0.1, 0.62, 0.63), expectation())
    assert found.verdict == "inconclusive", found.reason
    assert judge(evidence(0.1, 0.363, 0.37), expectation()).verdict != "chance-level"


def test_an_expectation_at_chance_gates_nothing() -> None:
    found = judge(evidence(0.101, 0.1, 0.099), expectation(0.1))
    assert found.verdict == "invalid", found.reason


def test_an_old_record_without_chance_or_rules_is_still_compared() -> None:
    bare: dict[str, Any] = {"chance": None, "rules": {}}
    assert judge(evidence(0.1, 0.1, **bare), expectation()).verdict == "fail"
    assert judge(evidence(0.62, 0.621, 0.62, **bare), expectation()).verdict == "pass"


def test_auroc_is_not_held_against_rules_of_accuracy() -> None:
    auroc: dict[str, Any] = {"metric": "test_macro_auroc"}
    found = judge(evidence(0.363, 0.363, 0.363, **auroc), expectation(**auroc))
    assert found.verdict == "fail"
    assert (
        judge(evidence(0.505, chance=0.5, rules={}, **auroc), expectation(**auroc)).verdict == "chance-level"
    )


class TestMarked:
    @pytest.mark.parametrize(
        "measured",
        [
            evidence(0.5, 0.501, 0.502),
            evidence(0.1),
            evidence(0.363),
            evidence(0.5, unfinished={"diverged": 1}),
        ],
    )
    def test_an_expected_failure_is_excused(self, measured: Evidence) -> None:
        found = judge(measured, expectation(xfail=KNOWN_FAILURE))
        assert found.verdict == "xfail"
        assert "too few epochs; https://example.org/1" in found.reason

    def test_one_that_passes_is_reported(self) -> None:
        found = judge(evidence(0.622, 0.618, 0.621), expectation(xfail=KNOWN_FAILURE))
        assert found.verdict == "improved"
        assert "remove the mark" in found.reason

    def test_one_that_is_undecided_stays_so(self) -> None:
        assert judge(evidence(0.62), expectation(xfail=KNOWN_FAILURE)).verdict == "inconclusive"


def test_a_default_margin_is_said_to_be_one() -> None:
    assert "the default" in judge(evidence(0.62, 0.621), expectation(reason=DEFAULT_REASON)).reason
    assert "the default" not in judge(evidence(0.62, 0.621), expectation()).reason


def test_an_exact_expectation_is_the_t_test_over_seeds() -> None:
    values = (0.61, 0.624, 0.633)
    found, plain = compare_means(evidence(*values), expectation()), decide_noninferiority(values, 0.60)
    assert (found.state, found.low, found.high) == (plain.state, plain.low, plain.high)


def test_seeds_on_both_sides_add_their_variance() -> None:
    known = Pooled(0.01, 10)
    exact = compare_means(evidence(0.62, 0.63), expectation(known=known))
    both = compare_means(evidence(0.62, 0.63), expectation(known=known, n=4))
    assert exact.error is not None
    assert both.error is not None
    assert exact.error == pytest.approx(0.01 * math.sqrt(1 / 2))
    assert both.error == pytest.approx(0.01 * math.sqrt(1 / 2 + 1 / 4))


def test_seeds_that_agree_on_a_small_test_split_are_not_free_of_noise() -> None:
    """Accuracies of 20 examples come in steps of 5 points, on both sides."""
    found = compare_means(
        evidence(0.6, 0.6, n_test=20), expectation(0.6, n=4, groups=((0.6, 0.6, 0.6, 0.6),))
    )
    assert found.error == pytest.approx(0.05 / math.sqrt(12) * math.sqrt(1 / 2 + 1 / 4))


def test_better_needs_a_bound_above_and_not_a_mean() -> None:
    known: dict[str, Any] = {"known": Pooled(0.01, 100)}
    assert judge(evidence(0.65), expectation(**known)).verdict == "pass"
    assert judge(evidence(0.66), expectation(**known)).verdict == "improved"


def test_other_data_come_before_numbers_that_is_invalid() -> None:
    assert judge(evidence(62.0, data_digest="bbbb"), expectation()).verdict == "other-data"


def test_the_spread_in_the_baseline_wins_over_the_one_in_the_suite() -> None:
    found = pool_seed_spread(evidence(0.62), expectation(groups=((0.5, 0.52),), known=Pooled(0.1, 9)))
    assert found is not None
    assert found.degrees == 1


def test_seeds_that_do_not_decide_are_not_said_to_need_only_one_more() -> None:
    """The expected mean is from three seeds, and no number of ours takes its noise away."""
    known: dict[str, Any] = {"known": Pooled(0.01, 6), "n": 3}
    found = judge(evidence(0.614, 0.615, 0.616), expectation(**known))
    assert (found.verdict, found.seeds_needed) == ("inconclusive", None)
    assert "more seeds alone would hardly decide" in found.reason
    settled = judge(evidence(0.61, 0.611, 0.612), expectation(**{**known, "n": 10}))
    assert (settled.verdict, settled.seeds_needed) == ("inconclusive", 17)


@pytest.mark.parametrize(("mean", "invalid"), [(0.119, True), (0.12, True), (0.121, False)])
def test_a_bound_at_chance_is_no_expectation(mean: float, invalid: bool) -> None:
    """The margin is two points, chance 10 %: what reaches the bound must have learned something."""
    assert (judge(evidence(0.62, 0.621), expectation(mean)).verdict == "invalid") is invalid


def test_own_seeds_are_pooled_with_those_of_the_expectation() -> None:
    found = pool_seed_spread(evidence(0.61, 0.63), expectation(groups=((0.5, 0.52, 0.54), (0.4,))))
    assert found is not None
    assert found.degrees == 3
    assert found.sd == pytest.approx(math.sqrt((0.0002 + 0.0008) / 3))


def test_another_draw_of_the_test_split_adds_its_noise_where_it_is_allowed() -> None:
    other = evidence(0.62, data_digest="bbbb", n_test=1000)
    allowed = expectation(known=Pooled(0.001, 50), other_data="generated", n_test=2000)
    found = compare_means(other, allowed)
    noise = 0.62 * 0.38 * (1 / 1000 + 1 / 2000)
    assert found.error == pytest.approx(math.sqrt(0.001**2 + noise))
    assert judge(other, allowed).verdict == "inconclusive"
    assert judge(evidence(0.62), allowed).verdict == "pass", "on the same data there is none"


def test_data_that_a_suite_generates_are_not_the_papers() -> None:
    paper: dict[str, Any] = {"data_digest": "", "n_test": None, "known": Pooled(0.001, 50)}
    assert compare_means(evidence(0.62), expectation(**paper)).error == pytest.approx(0.001)
    drawn = compare_means(evidence(0.62), expectation(other_data="generated", **paper))
    assert drawn.error == pytest.approx(math.sqrt(0.001**2 + 2 * 0.62 * 0.38 / 2000))


def test_seeds_needed_is_reported() -> None:
    found = judge(evidence(0.60, 0.625, 0.61), expectation())
    assert found.verdict == "inconclusive"
    assert found.seeds_needed == count_seeds_needed(
        [0.60, 0.625, 0.61], 0.60, pooled=Pooled(0.012583, 2), step=0
    )
    assert f"{found.seeds_needed} more seed" in found.reason


def test_where_seeds_cannot_decide_that_is_reported() -> None:
    on_the_edge = judge(evidence(0.59, 0.60, 0.61), expectation())
    assert (on_the_edge.verdict, on_the_edge.seeds_needed) == ("inconclusive", None)
    assert "hardly decide" in on_the_edge.reason
    baseline = expectation(n=1, known=Pooled(0.03, 99))
    assert judge(evidence(0.62), baseline).seeds_needed is None, "the baseline's own seed is too vague"


def test_crashes_are_counted_apart_from_divergence() -> None:
    counts = {"failed": 1, "out-of-memory": 2, "interrupted": 4, "diverged": 8}
    assert count_crashes(evidence(unfinished=counts)) == 3
    assert count_crashes(evidence(0.62, newer=counts)) == 3


@pytest.mark.parametrize("gap", [0.0, 0.06])
def test_one_seed_against_a_baseline_errs_as_often_as_theory_says(gap: float) -> None:
    """A new seed and its baseline of three, with two models' seeds for the spread: the case of ``quick``."""
    generator, draws, sd = random.Random(5), 2000, 0.0123
    states: Counter[str] = Counter()
    for _ in range(draws):
        seeds = [tuple(generator.gauss(0.5, sd) for _ in range(3)) for _ in range(2)]
        measured = evidence(generator.gauss(0.5 - gap, sd), n_test=None)
        expected: dict[str, Any] = {"n": 3, "groups": tuple(seeds), "margin": 0.06}
        states[compare_means(measured, expectation(sum(seeds[0]) / 3, **expected)).state] += 1
    theory = compute_chances(0.06 - gap, sd * math.sqrt(1 + 1 / 3), 4)
    for state, rate in (("above", theory.above), ("below", theory.below)):
        assert states[state] / draws == pytest.approx(
            rate, abs=4 * math.sqrt(rate * (1 - rate) / draws) + 1e-3
        )
