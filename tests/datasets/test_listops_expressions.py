import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from listops_trees import Tree, split_of, symbols, trees, value

from msbench.datasets.listops.expressions import evaluate_expression, evaluate_top, score_baselines
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
