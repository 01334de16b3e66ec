"""ListOps expressions drawn from Long Range Arena's distribution, whole forests at a time.

The distribution (lra_benchmarks/data/listops.py of google-research/long-range-arena): a node above the
deepest level is an operator with probability 1/4; an operator is MIN, MAX, MED or SM, uniformly, with 2 to
`max_args` children, uniformly; any other node is a digit, uniformly. An expression is kept where its
length without round brackets lies strictly between the bounds. The original recurses node by node and has
no seed; here all trees of a block grow together, level by level, which is about 50 times as fast.

Data are a function of the grammar alone. Block `i` has its own stream, ``PCG64(SeedSequence(seed,
spawn_key=(i,)))``, read only by ``Generator.integers`` with dtype uint8. NumPy guarantees the stream of
bits, but may change that method in a feature release: a golden digest in the tests would then differ, and
`VERSION` would have to be raised.

Runs in worker processes: imports NumPy and nothing heavier.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.listops.symbols import CLOSE, EOS, MAX, MED, MIN, OPERATORS, SM, ZERO

VERSION = 1
NODES_PER_BLOCK = 2**23  # limits the memory of the worst grammar to about 100 MB
LONGEST = 100_000
DRAWN = 40  # a uniform draw below 40: below 10 (1/4) an operator, else a digit: its last decimal

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Grammar:
    """Parameters of drawing and of selection; both bounds of the length are exclusive."""

    min_length: int
    max_length: int
    max_depth: int
    max_args: int
    seed: int

    @property
    def draws_per_block(self) -> int:
        """Number of expressions drawn, kept or not, in each block."""
        return max(64, min(4096, NODES_PER_BLOCK // self.max_length))

    @property
    def longest(self) -> int:
        """Number of tokens of the grammar's longest expression, regardless of the bounds."""
        length = 1
        for _ in range(self.max_depth - 1):
            length = 2 + self.max_args * length
        return length


class Level(NamedTuple):
    """The nodes of one depth of a forest, tree by tree, left to right.

    `ids` (nodes,) are token ids; `counts` (operators,) the numbers of children, which are the nodes of the
    next level in the same order; `nodes` and `operators` (trees,) are the numbers of both in each tree at
    this depth.
    """

    ids: Bytes
    counts: Indices
    nodes: Indices
    operators: Indices


class ExpressionBlock(NamedTuple):
    """Concatenated expressions, each with ``<eos>``: `tokens` (total,), `offsets` (n + 1,), `labels` (n,)."""

    tokens: Bytes
    offsets: Indices
    labels: Bytes


def draw_block(grammar: Grammar, number: int) -> ExpressionBlock:
    """Return all kept expressions among the draws of this block, in the order they were drawn."""
    sequence = np.random.SeedSequence(grammar.seed, spawn_key=(number,))
    levels, lengths = grow(np.random.Generator(np.random.PCG64(sequence)), grammar, grammar.draws_per_block)
    kept = (lengths > grammar.min_length) & (lengths < grammar.max_length)
    forest = [_only_trees(level, kept) for level in levels]
    return serialise(forest, lengths[kept])


def grow(rng: np.random.Generator, grammar: Grammar, trees: int) -> tuple[list[Level], Indices]:
    """Grow a forest; return its levels and the length in tokens of each tree.

    A tree that is sure to reach `max_length` stops growing there: its length is then only a lower bound.
    """
    levels: list[Level] = []
    lengths = np.zeros(trees, np.int64)
    nodes = np.ones(trees, np.int64)
    for depth in range(1, grammar.max_depth + 1):
        ids, counts = _draw_nodes(rng, int(nodes.sum()), grammar, last=depth == grammar.max_depth)
        operators = _sum_by_group(ids >= MIN, nodes)
        children = _sum_by_group(counts, operators)
        lengths += nodes + operators
        full = lengths + children >= grammar.max_length
        lengths[full] += children[full]
        counts[np.repeat(full, operators)] = 0
        levels.append(Level(ids, counts, nodes, operators))
        nodes = np.where(full, 0, children)
        if not nodes.any():
            break
    return levels, lengths


def _draw_nodes(
    rng: np.random.Generator, nodes: int, grammar: Grammar, *, last: bool
) -> tuple[Bytes, Indices]:
    """Draw token ids of the next nodes, and the number of children of each operator among them."""
    if last:
        return rng.integers(0, 10, nodes, np.uint8) + np.uint8(ZERO), np.zeros(0, np.int64)
    drawn = rng.integers(0, DRAWN, nodes, np.uint8)
    is_operator = drawn < DRAWN // 4
    ids = drawn % np.uint8(10) + np.uint8(ZERO)
    choices = len(OPERATORS) * (grammar.max_args - 1)
    chosen = rng.integers(0, choices, int(np.count_nonzero(is_operator)), np.uint8)
    ids[is_operator] = MIN + chosen % np.uint8(len(OPERATORS))
    return ids, 2 + (chosen // np.uint8(len(OPERATORS))).astype(np.int64)


def _sum_by_group(values: NDArray[np.bool_] | Indices, sizes: Indices) -> Indices:
    """Return the sums of consecutive groups of these sizes; a group may be empty."""
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    ends = np.cumsum(sizes)
    sums: Indices = running[ends] - running[ends - sizes]
    return sums


def _only_trees(level: Level, kept: NDArray[np.bool_]) -> Level:
    ids = level.ids[np.repeat(kept, level.nodes)]
    counts = level.counts[np.repeat(kept, level.operators)]
    return Level(ids, counts, level.nodes[kept], level.operators[kept])


def serialise(levels: list[Level], lengths: Indices) -> ExpressionBlock:
    """Return the tokens of every tree in reading order, and its value; `lengths` are those of the trees."""
    sizes, labels = _from_the_leaves_up(levels)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths + 1, out=offsets[1:])
    tokens = np.full(int(offsets[-1]), EOS, np.uint8)
    positions = offsets[:-1]
    for level, own, below in zip(levels, sizes, [*sizes[1:], np.zeros(0, np.int64)], strict=True):
        is_operator = level.ids >= MIN
        opens = positions[is_operator]
        tokens[positions] = level.ids
        tokens[opens + own[is_operator] - 1] = CLOSE
        if len(opens) == 0:  # stopped trees were removed, so nothing lies below
            break
        before = np.cumsum(below) - below
        positions = before + np.repeat(opens + 1 - before[_starts(level.counts)], level.counts)
    return ExpressionBlock(tokens, offsets, labels)


def _from_the_leaves_up(levels: list[Level]) -> tuple[list[Indices], Bytes]:
    """Return the tokens of the subtree under every node, level by level, and the values of the roots."""
    sizes: list[Indices] = []
    size, value = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    for level in reversed(levels):
        size_below, value_below = size, value
        size, value = np.ones(len(level.ids), np.int64), level.ids - np.uint8(ZERO)
        is_operator = level.ids >= MIN
        if is_operator.any():
            size[is_operator] = 2 + np.add.reduceat(size_below, _starts(level.counts))
            value[is_operator] = apply(level.ids[is_operator], level.counts, value_below)
        sizes.append(size)
    return sizes[::-1], value


def apply(operators: Bytes, counts: Indices, arguments: Bytes) -> Bytes:
    """Return the values (n,) of n operators; each has `counts` consecutive `arguments`."""
    values = np.zeros(len(operators), np.uint8)
    owners = np.repeat(operators, counts)
    for operator, reduce in (
        (MIN, np.minimum.reduceat),
        (MAX, np.maximum.reduceat),
        (SM, _sum),
        (MED, _median),
    ):
        chosen = operators == operator
        if chosen.any():
            values[chosen] = reduce(arguments[owners == operator], _starts(counts[chosen]))
    return values


def _starts(counts: Indices) -> Indices:
    return np.cumsum(counts) - counts


def _sum(arguments: Bytes, starts: Indices) -> Bytes:
    # 20 arguments of 9 still fit a byte
    return np.add.reduceat(arguments, starts, dtype=np.uint8) % np.uint8(10)


def _median(arguments: Bytes, starts: Indices) -> Bytes:
    """Return the floor of each median; sorting (group, value) pairs as numbers sorts all groups at once."""
    counts = np.diff(starts, append=len(arguments))
    groups = np.repeat(np.arange(len(starts), dtype=np.int32) * 10, counts)
    ranked = np.sort(groups + arguments) - groups
    middle = ranked[starts + (counts - 1) // 2] + ranked[starts + counts // 2]
    medians: Bytes = (middle // 2).astype(np.uint8)
    return medians
