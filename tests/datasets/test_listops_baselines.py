import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from listops_trees import Tree, split_of, trees, value

from msbench.datasets.dataset import RaggedTokens
from msbench.datasets.listops.baselines import baselines, evaluate_top
from msbench.datasets.listops.collect import collect
from msbench.datasets.listops.generate import Grammar


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
    assert baselines(train, test) == {
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
    split = RaggedTokens(*collect(grammar, 4_000, processes=1).examples)
    return baselines(split, split)
