"""ListOps trees written and read by hand, for tests: a digit, or an operator with its arguments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from msbench.datasets.dataset import RaggedTokens
from msbench.datasets.listops.expressions import IDS, SYMBOLS
from msbench.datasets.listops.generate import Level

Tree = int | tuple[str, tuple["Tree", ...]]
OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")


def trees(max_args: int = 5) -> st.SearchStrategy[Tree]:
    digits: st.SearchStrategy[Tree] = st.integers(0, 9)
    return st.recursive(
        digits,
        lambda inner: st.tuples(
            st.sampled_from(OPERATORS), st.lists(inner, min_size=1, max_size=max_args).map(tuple)
        ),
        max_leaves=30,
    )


def value(tree: Tree) -> int:
    if isinstance(tree, int):
        return tree
    arguments = [value(argument) for argument in tree[1]]
    median = int(np.floor(np.median(arguments)))
    return {"[MIN": min(arguments), "[MAX": max(arguments), "[MED": median, "[SM": sum(arguments) % 10}[
        tree[0]
    ]


def symbols(tree: Tree) -> list[str]:
    if isinstance(tree, int):
        return [str(tree)]
    return [tree[0], *(symbol for argument in tree[1] for symbol in symbols(argument)), "]"]


def bracketed(tree: Tree) -> str:
    """As published: one pair of round brackets an argument, and one for the closing bracket."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for argument in tree[1]:
        text = f"( {text} {bracketed(argument)} )"
    return f"( {text} ] )"


def parse(words: list[str]) -> Tree:
    rest = iter(words)
    tree = _next_tree(next(rest), rest)
    assert list(rest) == []
    return tree


def _next_tree(word: str, rest: Iterator[str]) -> Tree:
    if word.isdigit():
        return int(word)
    arguments = []
    while (following := next(rest)) != "]":
        arguments.append(_next_tree(following, rest))
    return word, tuple(arguments)


def words_of(split: RaggedTokens, index: int) -> list[str]:
    """Symbols of one example; its ``<eos>`` is checked and dropped."""
    *words, last = [SYMBOLS[number] for number in split.example(index)]
    assert last == "<eos>"
    return words


def split_of(examples: list[Tree]) -> RaggedTokens:
    ids = [[IDS[symbol] for symbol in [*symbols(tree), "<eos>"]] for tree in examples]
    offsets = np.cumsum([0, *map(len, ids)]).astype(np.int64)
    tokens = np.array([number for row in ids for number in row], np.uint8)
    return RaggedTokens(tokens, offsets, np.array([value(tree) for tree in examples], np.uint8))


def trees_of(levels: list[Level]) -> list[Tree]:
    """The trees of a forest: left to right at every depth is also the order of reading."""
    ids = [iter(level.ids.tolist()) for level in levels]
    counts = [iter(level.counts.tolist()) for level in levels]

    def node(depth: int) -> Tree:
        symbol = SYMBOLS[next(ids[depth])]
        if symbol.isdigit():
            return int(symbol)
        return symbol, tuple(node(depth + 1) for _ in range(next(counts[depth])))

    return [node(0) for _ in levels[0].nodes]


def write_rows(path: Path, rows: list[str], header: str = "Source\tTarget", end: str = "\r\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in [header, *rows]).encode())
    return path
