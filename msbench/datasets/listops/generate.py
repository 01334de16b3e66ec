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

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import Progress, RaggedTokens, ignore_progress
from msbench.datasets.listops.expressions import CLOSE, EOS, MAX, MED, MIN, OPERATORS, SM, ZERO
from msbench.datasets.parallel import count_default_processes, run_in_order
from msbench.errors import DataError

VERSION = 1
NODES_PER_BLOCK = 2**23  # limits the memory of the worst grammar to about 100 MB
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


def draw_block(grammar: Grammar, number: int) -> RaggedTokens:
    """Return all kept expressions among the draws of this block, in the order they were drawn."""
    sequence = np.random.SeedSequence(grammar.seed, spawn_key=(number,))
    levels, lengths = grow_forest(
        np.random.Generator(np.random.PCG64(sequence)), grammar, grammar.draws_per_block
    )
    kept = (lengths > grammar.min_length) & (lengths < grammar.max_length)
    forest = [_select_trees(level, kept) for level in levels]
    return serialise_forest(forest, lengths[kept])


def grow_forest(rng: np.random.Generator, grammar: Grammar, trees: int) -> tuple[list[Level], Indices]:
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


def _select_trees(level: Level, kept: NDArray[np.bool_]) -> Level:
    ids = level.ids[np.repeat(kept, level.nodes)]
    counts = level.counts[np.repeat(kept, level.operators)]
    return Level(ids, counts, level.nodes[kept], level.operators[kept])


def serialise_forest(levels: list[Level], lengths: Indices) -> RaggedTokens:
    """Return the tokens of every tree in reading order, and its value; `lengths` are those of the trees."""
    sizes, labels = _measure_subtrees(levels)
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
        positions = before + np.repeat(opens + 1 - before[_find_starts(level.counts)], level.counts)
    return RaggedTokens(tokens, offsets, labels)


def _measure_subtrees(levels: list[Level]) -> tuple[list[Indices], Bytes]:
    """Return the tokens of the subtree under every node, level by level, and the values of the roots."""
    sizes: list[Indices] = []
    size, value = np.zeros(0, np.int64), np.zeros(0, np.uint8)
    for level in reversed(levels):
        size_below, value_below = size, value
        size, value = np.ones(len(level.ids), np.int64), level.ids - np.uint8(ZERO)
        is_operator = level.ids >= MIN
        if is_operator.any():
            size[is_operator] = 2 + np.add.reduceat(size_below, _find_starts(level.counts))
            value[is_operator] = apply_operators(level.ids[is_operator], level.counts, value_below)
        sizes.append(size)
    return sizes[::-1], value


def apply_operators(operators: Bytes, counts: Indices, arguments: Bytes) -> Bytes:
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
            values[chosen] = reduce(arguments[owners == operator], _find_starts(counts[chosen]))
    return values


def _find_starts(counts: Indices) -> Indices:
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


WINDOW = 2**20  # draws between checks of the yield: a second or two
PATIENCE = 256  # most windows still needed at the current yield: minutes
ALONE = 2_000  # expressions that are drawn before a second interpreter has started


@dataclass(frozen=True)
class CollectedExpressions:
    """`examples` in the order of drawing, the number of `draws` made, and of `duplicates` dropped."""

    examples: RaggedTokens
    draws: int
    duplicates: int


def collect_expressions(
    grammar: Grammar, wanted: int, *, processes: int | None = None, progress: Progress = ignore_progress
) -> CollectedExpressions:
    """Collect the first `wanted` different expressions of the grammar, the same for any number of processes.

    Raises DataError where the grammar has too few, or so few that they would not be found in reasonable time.
    """
    if processes is None:
        processes = 1 if wanted <= ALONE else count_default_processes()
    with closing(run_in_order(partial(draw_block, grammar), processes)) as blocks:
        return _fill(grammar, wanted, blocks, progress)


def _fill(
    grammar: Grammar, wanted: int, blocks: Iterator[RaggedTokens], progress: Progress
) -> CollectedExpressions:
    seen: set[bytes] = set()
    parts: list[RaggedTokens] = []
    draws = duplicates = found_before = 0
    window = -(-WINDOW // grammar.draws_per_block)
    progress("generating listops", 0, wanted)
    for number, block in enumerate(blocks, start=1):
        new = _different(block, seen, wanted - len(seen))
        parts.append(new)
        draws += grammar.draws_per_block
        duplicates += 0 if len(seen) == wanted else len(block.labels) - len(new.labels)
        progress("generating listops", len(seen), wanted)
        if len(seen) == wanted:
            break
        if number % window == 0:
            _refuse_starving(grammar, window, len(seen), len(seen) - found_before, wanted)
            found_before = len(seen)
    return CollectedExpressions(_end_to_end(parts), draws, duplicates)


def _different(block: RaggedTokens, seen: set[bytes], room: int) -> RaggedTokens:
    """Return the first `room` expressions of the block not in `seen`, and add them to `seen`."""
    kept = np.zeros(len(block.labels), bool)
    for index in range(len(kept)):
        if room == 0:
            break
        # 16 bytes represent about 1,000: two expressions collide once in 10^28 data sets
        digest = blake2b(block.example(index).tobytes(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            kept[index] = True
            room -= 1
    if kept.all():
        return block
    lengths = np.diff(block.offsets)
    chosen = block.tokens[np.repeat(kept, lengths)]
    return RaggedTokens(chosen, np.append(0, np.cumsum(lengths[kept])), block.labels[kept])


def _refuse_starving(grammar: Grammar, window: int, found: int, lately: int, wanted: int) -> None:
    missing = wanted - found
    if lately * PATIENCE >= missing:
        return
    raise DataError(
        f"listops: {wanted:,} different expressions are wanted, {found:,} were found, and the last "
        f"{window * grammar.draws_per_block:,} draws gave {lately:,} new ones: strictly between "
        f"{grammar.min_length:,} and {grammar.max_length:,} tokens, max_depth {grammar.max_depth} and "
        f"max_args {grammar.max_args} give too few; widen the bounds or ask for fewer examples"
    )


def _end_to_end(parts: list[RaggedTokens]) -> RaggedTokens:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    tokens = np.concatenate([part.tokens for part in parts])
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return RaggedTokens(tokens, offsets, np.concatenate([part.labels for part in parts]))
