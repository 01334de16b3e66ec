"""The vectorised generator against exact probabilities, published statistics and a plain evaluator."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listops_trees import parse, trees_of, value, words_of
from numpy.typing import NDArray
from scipy.stats import chisquare

from msbench.config.data import ListOpsConfig
from msbench.datasets.dataset import RaggedTokens
from msbench.datasets.listops import generate as listops_generate
from msbench.datasets.listops.expressions import (
    CLOSE,
    MAX,
    MED,
    MIN,
    OPERATORS,
    SM,
    ZERO,
    evaluate_expression,
)
from msbench.datasets.listops.generate import (
    Grammar,
    collect_expressions,
    draw_block,
    grow_forest,
    serialise_forest,
)
from msbench.errors import DataError, Interrupted

ARENA = Grammar(min_length=500, max_length=2000, max_depth=10, max_args=10, seed=7)
SAMPLE, REFERENCE = 4_000, 20_000  # ours; what the published statistics below were measured on
RARE = 1e-5  # a p-value this small is a fault, not chance


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def as_split(grammar: Grammar, number: int = 0) -> RaggedTokens:
    return draw_block(grammar, number)


@pytest.fixture(scope="module")
def sample() -> RaggedTokens:
    return collect_expressions(ARENA, SAMPLE, processes=1).examples


def four_sigma(p: float, n: float = SAMPLE, reference: float = REFERENCE) -> float:
    return float(4 * np.sqrt(p * (1 - p) * (1 / n + 1 / reference)))


def roots(split: RaggedTokens) -> NDArray[np.uint8]:
    return split.tokens[split.offsets[:-1]]


def test_every_expression_of_a_tiny_grammar_has_its_exact_probability() -> None:
    grammar = Grammar(0, 100, max_depth=2, max_args=2, seed=0)
    draws = 100_000
    levels, lengths = grow_forest(rng(), grammar, draws)
    split = serialise_forest(levels, lengths)
    seen = Counter(" ".join(words_of(split, index)) for index in range(draws))
    expected = {str(digit): 0.75 / 10 for digit in range(10)}
    for operator in ("[MIN", "[MAX", "[MED", "[SM"):
        for pair in range(100):
            expected[f"{operator} {pair // 10} {pair % 10} ]"] = 0.25 / 4 / 100
    assert set(seen) <= set(expected)
    counts = [seen[expression] for expression in expected]
    assert chisquare(counts, np.array(list(expected.values())) * draws).pvalue > RARE


def test_nodes_are_drawn_as_the_original_draws_them() -> None:
    levels, _ = grow_forest(rng(), Grammar(0, 10**6, max_depth=6, max_args=10, seed=0), 20_000)
    for level in levels[:-1]:
        ids = level.ids
        operators = ids[ids >= MIN]
        share = [len(operators), len(ids) - len(operators)]
        assert chisquare(share, np.array([0.25, 0.75]) * len(ids)).pvalue > RARE
        assert chisquare(np.bincount(operators - MIN, minlength=4)).pvalue > RARE
        assert chisquare(np.bincount(ids[ids < MIN] - ZERO, minlength=10)).pvalue > RARE
        assert set(np.unique(level.counts)) == set(range(2, 11))
        assert chisquare(np.bincount(level.counts - 2, minlength=9)).pvalue > RARE
    assert levels[-1].ids.max() < MIN, "the deepest level has digits only"


def test_every_kept_expression_reaches_the_deepest_level_of_the_arena(sample: RaggedTokens) -> None:
    opens = np.isin(sample.tokens, OPERATORS).astype(int)
    depth = np.cumsum(opens) - np.cumsum(sample.tokens == CLOSE)
    deepest = np.maximum.reduceat(depth, sample.offsets[:-1])
    assert np.all(deepest == 9), "operators at levels 1..9, digits below them"
    assert opens.sum() / SAMPLE == pytest.approx(148, abs=2.5)


def test_lengths_have_the_published_deciles(sample: RaggedTokens) -> None:
    lengths = sample.lengths - 1  # without <eos>
    assert lengths.min() > 500
    assert lengths.max() < 2000
    assert lengths.mean() == pytest.approx(1039, abs=4 * lengths.std() / np.sqrt(SAMPLE) * 1.1)
    for share, decile in zip(
        np.arange(1, 10) / 10, [579, 661, 753, 850, 961, 1081, 1230, 1409, 1649], strict=True
    ):
        assert np.mean(lengths <= decile) == pytest.approx(share, abs=four_sigma(share))


def test_labels_have_the_published_frequencies(sample: RaggedTokens) -> None:
    share = np.bincount(sample.labels, minlength=10) / SAMPLE
    assert share[0] == pytest.approx(0.170, abs=four_sigma(0.170))
    assert share[9] == pytest.approx(0.167, abs=four_sigma(0.167))
    for label in range(1, 9):
        assert 0.075 - four_sigma(0.075) < share[label] < 0.091 + four_sigma(0.091)


@pytest.mark.parametrize(("operator", "label", "share"), [(MIN, 0, 0.576), (MAX, 9, 0.570), (MED, 4, 0.213)])
def test_labels_follow_the_root_operator(
    sample: RaggedTokens, operator: int, label: int, share: float
) -> None:
    labels = sample.labels[roots(sample) == operator]
    expected = four_sigma(share, len(labels), REFERENCE / 4)
    assert np.mean(labels == label) == pytest.approx(share, abs=expected)


def test_root_operators_and_sums_are_uniform(sample: RaggedTokens) -> None:
    assert chisquare(np.bincount(roots(sample) - MIN, minlength=4)).pvalue > RARE
    assert chisquare(np.bincount(sample.labels[roots(sample) == SM], minlength=10)).pvalue > RARE


def test_one_draw_in_twelve_is_kept() -> None:
    collected = collect_expressions(ARENA, SAMPLE, processes=1)
    # the last block is not used up, so that the share is a little low
    kept = SAMPLE / collected.draws
    assert kept == pytest.approx(0.083, abs=0.083 * ARENA.draws_per_block / collected.draws + 0.005)


grammars = st.builds(
    lambda low, width, depth, args, seed: Grammar(low, low + width, depth, args, seed),
    st.integers(0, 60),
    st.integers(2, 200),
    st.integers(2, 7),
    st.integers(2, 20),
    st.integers(0, 2**63),
)


@settings(max_examples=30, deadline=None)
@given(grammars, st.integers(0, 1000))
def test_kept_expressions_are_inside_the_bounds_and_evaluate_to_their_labels(
    grammar: Grammar, number: int
) -> None:
    split = as_split(grammar, number)
    for index in range(min(len(split), 50)):
        words = words_of(split, index)
        assert grammar.min_length < len(words) < grammar.max_length
        assert evaluate_expression(words) == split.labels[index]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(2, 20), st.integers(0, 2**32))
def test_tokens_read_back_are_the_trees_that_were_drawn(depth: int, args: int, seed: int) -> None:
    grammar = Grammar(0, 10**6, depth, args, seed=0)
    levels, lengths = grow_forest(rng(seed), grammar, 8)
    split = serialise_forest(levels, lengths)
    drawn = trees_of(levels)
    assert [parse(words_of(split, index)) for index in range(8)] == drawn
    assert split.labels.tolist() == [value(tree) for tree in drawn]


def test_a_tree_too_long_stops_growing() -> None:
    grammar = Grammar(0, 50, max_depth=20, max_args=20, seed=0)
    levels, lengths = grow_forest(rng(), grammar, 1000)
    assert sum(len(level.ids) for level in levels) < 1000 * 50
    assert np.any(lengths >= 50)


def test_a_block_is_a_function_of_seed_and_number() -> None:
    grammar = Grammar(3, 40, 4, 4, seed=1)
    again, other = draw_block(grammar, 5), draw_block(Grammar(3, 40, 4, 4, seed=2), 5)
    for name in ("tokens", "offsets", "labels"):
        np.testing.assert_array_equal(getattr(draw_block(grammar, 5), name), getattr(again, name))
    assert not np.array_equal(again.tokens[:100], other.tokens[:100])
    assert not np.array_equal(again.tokens[:100], draw_block(grammar, 6).tokens[:100])


def test_no_expression_kept_is_an_empty_block() -> None:
    block = draw_block(Grammar(1, 4, 3, 3, seed=0), 0)
    assert (len(block.tokens), block.offsets.tolist(), len(block.labels)) == (0, [0], 0)


def test_longest_is_attained_and_never_passed() -> None:
    grammar = Grammar(0, 10**6, max_depth=3, max_args=2, seed=0)
    _, lengths = grow_forest(rng(), grammar, 20_000)
    assert lengths.max() == 10
    ListOpsConfig(min_length=9, max_depth=3, max_args=2)
    with pytest.raises(ValueError, match="the longest has 10 tokens"):
        ListOpsConfig(min_length=10, max_depth=3, max_args=2)


SMALL = Grammar(min_length=3, max_length=60, max_depth=5, max_args=5, seed=0)


def expressions(grammar: Grammar, wanted: int, processes: int = 1) -> list[bytes]:
    found = collect_expressions(grammar, wanted, processes=processes).examples
    return [found.example(number).tobytes() for number in range(len(found))]


def test_expressions_are_different_and_the_first_of_a_longer_list() -> None:
    found = expressions(SMALL, 3_000)
    assert len(set(found)) == len(found) == 3_000
    assert expressions(SMALL, 100) == found[:100]


def test_duplicates_are_counted_and_dropped() -> None:
    collected = collect_expressions(Grammar(0, 5, 2, 2, seed=0), 400, processes=1)
    assert len(collected.examples.labels) == 400, "there are 410: ten digits and four operators of two digits"
    assert collected.duplicates > 400


def test_two_processes_give_what_one_gives() -> None:
    assert expressions(SMALL, 5_000, processes=2) == expressions(SMALL, 5_000)


def test_all_ten_digits_can_be_had_but_not_eleven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops_generate, "WINDOW", 2**14)
    digits = Grammar(0, 2, 3, 3, seed=0)
    assert len(expressions(digits, 10)) == 10
    with pytest.raises(DataError, match=r"11 different expressions are wanted, 10 were found.*gave 0 new"):
        # the first window finds all ten, the second none
        collect_expressions(digits, 11, processes=1)


def test_bounds_that_no_length_satisfies_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listops_generate, "WINDOW", 2**14)
    with pytest.raises(DataError, match="strictly between 1 and 4 tokens, max_depth 3 and max_args 3"):
        collect_expressions(Grammar(1, 4, 3, 3, seed=0), 1, processes=1)


def test_a_length_beyond_the_grammar_is_refused_at_once() -> None:
    with pytest.raises(
        ValueError,
        match="no expression is longer than min_length 500: at max_depth 3 and max_args 5 the longest has 37",
    ):
        ListOpsConfig(min_length=500, max_depth=3, max_args=5)


def test_a_length_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="less than or equal to 100000"):
        ListOpsConfig(max_length=1_000_000)


def test_progress_counts_to_the_end_and_may_interrupt() -> None:
    seen: list[tuple[str, int, int]] = []
    collect_expressions(SMALL, 500, processes=1, progress=lambda *step: seen.append(step))
    assert seen[0] == ("generating listops", 0, 500)
    assert seen[-1] == ("generating listops", 500, 500)

    def stop(_stage: str, _done: int, _total: int) -> None:
        raise Interrupted(15)

    with pytest.raises(Interrupted):
        collect_expressions(SMALL, 5_000, processes=2, progress=stop)
