"""Collection of a given number of different ListOps expressions, or an error if there are too few."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

import numpy as np

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.listops.generate import LONGEST, ExpressionBlock, Grammar, draw_block
from msbench.datasets.parallel import default_processes, ordered
from msbench.errors import DataError

WINDOW = 2**20  # draws between checks of the yield: a second or two
PATIENCE = 256  # most windows still needed at the current yield: minutes
ALONE = 2_000  # expressions that are drawn before a second interpreter has started


@dataclass(frozen=True)
class CollectedExpressions:
    """`examples` in the order of drawing, the number of `draws` made, and of `duplicates` dropped."""

    examples: ExpressionBlock
    draws: int
    duplicates: int


def collect(
    grammar: Grammar, wanted: int, *, processes: int | None = None, progress: Progress = ignore_progress
) -> CollectedExpressions:
    """Collect the first `wanted` different expressions of the grammar, the same for any number of processes.

    Raises DataError where the grammar has too few, or so few that they would not be found in reasonable time.
    """
    _refuse_impossible(grammar)
    if processes is None:
        processes = 1 if wanted <= ALONE else default_processes()
    with closing(ordered(partial(draw_block, grammar), processes)) as blocks:
        return _fill(grammar, wanted, blocks, progress)


def _refuse_impossible(grammar: Grammar) -> None:
    if grammar.max_length > LONGEST:
        raise DataError(
            f"listops: max_length {grammar.max_length:,} is above {LONGEST:,}, the longest supported"
        )
    if grammar.longest <= grammar.min_length:
        raise DataError(
            f"listops: no expression is longer than min_length {grammar.min_length:,}: at max_depth "
            f"{grammar.max_depth} and max_args {grammar.max_args} the longest has {grammar.longest:,} tokens"
        )


def _fill(
    grammar: Grammar, wanted: int, blocks: Iterator[ExpressionBlock], progress: Progress
) -> CollectedExpressions:
    seen: set[bytes] = set()
    parts: list[ExpressionBlock] = []
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


def _different(block: ExpressionBlock, seen: set[bytes], room: int) -> ExpressionBlock:
    """Return the first `room` expressions of the block not in `seen`, and add them to `seen`."""
    kept = np.zeros(len(block.labels), bool)
    tokens, offsets = block.tokens.data, block.offsets.tolist()
    for index in range(len(kept)):
        if room == 0:
            break
        # 16 bytes represent about 1,000: two expressions collide once in 10^28 data sets
        digest = blake2b(tokens[offsets[index] : offsets[index + 1]], digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            kept[index] = True
            room -= 1
    if kept.all():
        return block
    lengths = np.diff(block.offsets)
    chosen = block.tokens[np.repeat(kept, lengths)]
    return ExpressionBlock(chosen, np.append(0, np.cumsum(lengths[kept])), block.labels[kept])


def _refuse_starving(grammar: Grammar, window: int, found: int, lately: int, wanted: int) -> None:
    missing = wanted - found
    if lately * PATIENCE >= missing:
        return
    raise DataError(
        f"listops: {wanted:,} different expressions are wanted, {found:,} were found, and the last "
        f"{window * grammar.draws_per_block:,} draws brought {lately:,} new ones: strictly between "
        f"{grammar.min_length:,} and {grammar.max_length:,} tokens, max_depth {grammar.max_depth} and "
        f"max_args {grammar.max_args} give too few; widen the bounds or ask for fewer examples"
    )


def _end_to_end(parts: list[ExpressionBlock]) -> ExpressionBlock:
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    tokens = np.concatenate([part.tokens for part in parts])
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int64)
    return ExpressionBlock(tokens, offsets, np.concatenate([part.labels for part in parts]))
