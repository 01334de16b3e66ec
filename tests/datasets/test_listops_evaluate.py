import pytest
from hypothesis import given
from listops_trees import Tree, symbols, trees, value

from msbench.datasets.listops.evaluate import evaluate


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
    assert evaluate(expression.split()) == expected


@given(trees())
def test_agrees_with_recursion_over_the_tree(tree: Tree) -> None:
    assert evaluate(symbols(tree)) == value(tree)


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
        evaluate(expression.split())
