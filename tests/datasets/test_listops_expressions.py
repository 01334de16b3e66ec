from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listops_trees import Tree, parse, split_of, symbols, trees, value

from msbench.datasets.listops.expressions import (
    evaluate_expression,
    evaluate_top,
    measure_expressions,
    score_baselines,
)
from msbench.datasets.listops.generate import Grammar, collect_expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("7", 7),
        ("[MIN 4 2 9 ]", 2),
        ("[MAX 4 2 9 ]", 9),
        ("[MED 4 2 9 ]", 4),
        ("[MED 1 2 ]", 1),
        ("[MED 9 0 4 7 ]", 5),
        ("[SM 9 9 9 ]", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[SM [MED 3 8 ] [MAX 1 [MIN 6 7 ] ] ]", 1),
    ],
)
def test_values_worked_out_by_hand(expression: str, expected: int) -> None:
    assert evaluate_expression(expression.split()) == expected


@given(trees())
def test_agrees_with_recursion_over_the_tree(tree: Tree) -> None:
    assert evaluate_expression(symbols(tree)) == value(tree)


@pytest.mark.parametrize(
    ("expression", "fault"),
    [
        ("", "no expression"),
        ("1 2", "more than one expression"),
        ("[MIN 1 2 ] 3", "more than one expression"),
        ("[MIN 1 2", "MIN is not closed"),
        ("[MAX [MIN 1 2 ]", "MAX is not closed"),
        ("1 ]", "closes nothing"),
        ("[SM ]", "no arguments"),
        ("[SUM 1 2 ]", "unknown symbol '.SUM'"),
        ("[MIN 1 12 ]", "unknown symbol '12'"),
        ('[MIN 1 " ]', "unknown symbol '\"'"),
    ],
)
def test_says_what_is_wrong(expression: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        evaluate_expression(expression.split())


@pytest.mark.parametrize(
    ("expression", "depth", "reach"),
    [
        ("7", 0, 2),
        ("[MIN 4 2 9 ]", 1, 5),
        ("[MIN 4 0 9 ]", 1, 4),
        ("[MAX [SM 3 4 ] 9 [MIN 1 2 ] ]", 2, 7),
        ("[SM 9 [MIN 8 0 ] ]", 2, 7),
        ("[MED 1 5 5 5 ]", 1, 5),
        ("[MIN [SM 3 4 7 ] 1 ]", 2, 7),
        ("[SM 0 0 0 0 0 0 0 0 0 0 5 ]", 1, 13),
    ],
)
def test_depth_and_reach_worked_out_by_hand(expression: str, depth: int, reach: int) -> None:
    found = measure_expressions(split_of([parse(expression.split())]))
    assert (found["depth"].tolist(), found["reach"].tolist()) == ([depth], [reach])


def list_possible(tree: Tree, digits: Iterator[set[int]]) -> set[int]:
    """The values of a tree if each of its digits, in order, may be any of these."""
    if isinstance(tree, int):
        return next(digits)
    groups: set[tuple[int, ...]] = {()}  # no operator asks for the order of its arguments
    for argument in tree[1]:
        values = list_possible(argument, digits)
        groups = {tuple(sorted((*group, each))) for group in groups for each in values}
    return {value((tree[0], group)) for group in groups}


@settings(deadline=None, max_examples=50)
@given(trees(max_args=4))
def test_no_fewer_digits_than_the_reach_determine_the_value(tree: Tree) -> None:
    words = symbols(tree)
    places = [index for index, word in enumerate(words) if word.isdigit()]

    def is_determined(unknown: int) -> bool:
        digits = [{int(words[place])} for place in places]
        return list_possible(tree, iter([set(range(10))] * unknown + digits[unknown:])) == {value(tree)}

    first = next(filter(is_determined, reversed(range(len(places)))))
    (reach,) = measure_expressions(split_of([tree]))["reach"]
    assert reach == len(words) + 1 - places[first]


def cut(tree: Tree, levels: int) -> Tree | None:
    """The tree without operators below `levels`; None where nothing is left."""
    if isinstance(tree, int):
        return tree
    if levels == 0:
        return None
    arguments = [cut(argument, levels - 1) for argument in tree[1]]
    left = tuple(argument for argument in arguments if argument is not None)
    return (tree[0], left) if left else None


@given(st.lists(trees(), min_size=1, max_size=6), st.integers(1, 5))
def test_top_levels_are_those_of_the_tree_cut_by_recursion(examples: list[Tree], levels: int) -> None:
    cuts = [cut(tree, levels) for tree in examples]
    otherwise = np.full(len(examples), -1, np.int64)
    expected = [-1 if tree is None else value(tree) for tree in cuts]
    assert evaluate_top(split_of(examples), levels, otherwise).tolist() == expected


def test_rules_worked_out_by_hand() -> None:
    train = split_of([("[MIN", (1, 2)), ("[MIN", (1, 3)), ("[MAX", (8, 8)), ("[MAX", (8, 1)), ("[MAX", (8,))])
    test = split_of(
        [
            ("[MAX", (8, ("[MIN", (9, 9)))),  # 9; all rules but two levels say 8
            ("[MIN", (1, 5)),  # 1; the majority says 8
            ("[MED", (8, 8)),  # 8; an operator that training lacks has the majority
            ("[MIN", (("[SM", (7, 7)), ("[SM", (1, 3)))),  # 4; one level leaves nothing, so MIN's 1
        ]
    )
    assert score_baselines(train, test) == {
        "majority": 0.25,
        "root operator only": 0.5,
        "top 1 level": 0.5,
        "top 2 levels": 1.0,
        "top 3 levels": 1.0,
        "top 4 levels": 1.0,
    }


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("majority", 0.170),
        ("root operator only", 0.363),
        ("top 1 level", 0.489),
        ("top 2 levels", 0.671),
        ("top 3 levels", 0.800),
        ("top 4 levels", 0.872),
    ],
)
def test_the_arena_has_the_published_baselines(arena: dict[str, float], name: str, published: float) -> None:
    # four standard errors of 4,000 examples, and of the 12,000 behind the published values
    error = 4 * np.sqrt(published * (1 - published) * (1 / 4_000 + 1 / 12_000))
    assert arena[name] == pytest.approx(published, abs=error)


@pytest.fixture(scope="module")
def arena() -> dict[str, float]:
    grammar = Grammar(min_length=500, max_length=2000, max_depth=10, max_args=10, seed=3)
    split = collect_expressions(grammar, 4_000, processes=1).examples
    return score_baselines(split, split)
