import math
import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray

from msbench.stats.bootstrap import bootstrap_difference
from msbench.stats.difference import mcnemar

Answers = NDArray[np.bool_]


def answers(n: int, first: float, second: float, seed: int = 0) -> tuple[Answers, Answers]:
    source = np.random.default_rng(seed)
    return source.random(n) < first, source.random(n) < second


def by_drawing_examples(first: Answers, second: Answers, draws: int) -> NDArray[np.float64]:
    chosen = np.random.default_rng(1).integers(len(first), size=(draws, len(first)))
    difference: NDArray[np.float64] = first[chosen].mean(axis=1) - second[chosen].mean(axis=1)
    return difference


def test_it_is_drawing_pairs_of_answers() -> None:
    first, second = answers(400, 0.8, 0.7)
    drawn = by_drawing_examples(first, second, 10_000)
    found = bootstrap_difference(first, second, seed=0)
    assert found.difference == pytest.approx(first.mean() - second.mean())
    # Quantiles of 10,000 draws have a standard error of about 0.03 sd.
    error = 5 * 0.03 * drawn.std()
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=error)


def test_one_seed_gives_one_answer() -> None:
    first, second = answers(100, 0.6, 0.5)
    assert bootstrap_difference(first, second, 3) == bootstrap_difference(first, second, 3)
    assert bootstrap_difference(first, second, 3) != bootstrap_difference(first, second, 4)


def test_its_p_is_near_that_of_mcnemar_and_never_0() -> None:
    first, second = answers(2_000, 0.62, 0.60)
    exact = mcnemar(int((first & ~second).sum()), int((~first & second).sum()))
    assert bootstrap_difference(first, second, 0).p == pytest.approx(exact, abs=0.05)
    everything = np.ones(50, dtype=bool)
    assert bootstrap_difference(everything, ~everything, 0, draws=999).p == 2 / 1000
    assert bootstrap_difference(everything, everything, 0).p == 1.0


def test_sides_can_be_exchanged() -> None:
    first, second = answers(300, 0.9, 0.85)
    one, other = bootstrap_difference(first, second, 0), bootstrap_difference(second, first, 0)
    assert other.difference == -one.difference
    assert (other.low, other.high) == pytest.approx((-one.high, -one.low), abs=2.5 / 300)


def test_fifty_thousand_examples_need_little_memory() -> None:
    first, second = answers(50_000, 0.9, 0.89)
    tracemalloc.start()
    bootstrap_difference(first, second, 0, draws=10_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.parametrize(("n", "m"), [(3, 4), (0, 0)])
def test_answers_that_are_no_pairs(n: int, m: int) -> None:
    with pytest.raises(ValueError, match="no pairs"):
        bootstrap_difference(np.ones(n, dtype=bool), np.ones(m, dtype=bool), 0)


def test_coverage_and_size_with_two_models_of_equal_worth() -> None:
    trials, n = 1_000, 500
    source = np.random.default_rng(5)
    within, found = 0, 0
    for _ in range(trials):
        shared = source.random(n) < 0.6
        first, second = (shared ^ (source.random(n) < 0.15) for _ in range(2))
        interval = bootstrap_difference(first, second, 0, draws=1_000)
        within += interval.low <= 0 <= interval.high
        found += mcnemar(int((first & ~second).sum()), int((~first & second).sum())) <= 0.05
    assert within / trials == pytest.approx(0.95, abs=4 * math.sqrt(0.05 * 0.95 / trials))
    assert found / trials <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    assert found / trials > 0.02
