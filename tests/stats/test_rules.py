import math

import pytest

from msbench.stats.rules import learned_rule, standard_error

RULES = {"majority": 0.17, "root operator only": 0.363}


def test_the_error_is_binomial_for_one_seed_and_adds_the_spread_for_more() -> None:
    binomial = math.sqrt(0.363 * 0.637 / 2000)
    assert standard_error(0.363, 2000, None, 1) == pytest.approx(binomial)
    assert standard_error(0.363, 2000, 0.03, 3) == pytest.approx(math.hypot(binomial, 0.03 / math.sqrt(3)))


@pytest.mark.parametrize(
    ("mean", "rule"),
    [
        (0.0, "majority"),
        (0.10, "majority"),
        (0.186, "majority"),
        (0.188, None),
        (0.34, None),
        (0.342, "root operator only"),
        (0.384, "root operator only"),
        (0.385, None),
        (0.63, None),
    ],
)
def test_a_mean_within_two_errors_of_a_rule_has_learned_that_rule(mean: float, rule: str | None) -> None:
    """Two standard errors at 2,000 examples are 1.68 points at majority and 2.15 at root operator only."""
    assert learned_rule(mean, None, 1, 2000, RULES) == rule


def test_a_wide_spread_over_seeds_widens_the_margin() -> None:
    assert learned_rule(0.40, None, 1, 2000, RULES) is None
    assert learned_rule(0.40, 0.05, 3, 2000, RULES) == "root operator only"


def test_of_two_rules_in_reach_the_nearer_counts() -> None:
    rules = {"majority": 0.1, "one": 0.40, "two": 0.42}
    assert learned_rule(0.412, None, 1, 500, rules) == "two"
    assert learned_rule(0.407, None, 1, 500, rules) == "one"


def test_no_rules_explain_nothing() -> None:
    assert learned_rule(0.1, None, 1, 2000, {}) is None
