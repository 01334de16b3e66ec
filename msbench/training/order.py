"""The order of examples: a pure function of lengths, seed and epoch, so that any step can be resumed."""

import numpy as np
from numpy.typing import NDArray

from msbench.training.seeding import derive

POOL = 50
"""Batches in a bucketing pool: enough for even lengths, few enough to stay near random order."""

Indices = NDArray[np.int64]


def epoch_batches(
    lengths: Indices, batch_size: int, seed: int, epoch: int, *, bucketing: bool
) -> list[Indices]:
    """Return batches of example numbers for one epoch; each example once, the last batch may be smaller.

    With `bucketing`, pools of `POOL` shuffled batches are sorted by length, cut into batches and shuffled
    again, so that a batch holds similar lengths while the order stays random.
    """
    generator = np.random.default_rng([derive(seed, "order"), epoch])
    order = generator.permutation(len(lengths)).astype(np.int64)
    if not bucketing:
        return _cut(order, batch_size)
    batches = [
        batch
        for pool in _cut(order, batch_size * POOL)
        for batch in _cut(pool[np.argsort(lengths[pool], kind="stable")], batch_size)
    ]
    return [batches[index] for index in generator.permutation(len(batches))]


def sorted_batches(lengths: Indices, batch_size: int) -> list[Indices]:
    """Return batches for evaluation: all examples, longest first, so that a lack of memory shows at once."""
    return _cut(np.argsort(-lengths, kind="stable").astype(np.int64), batch_size)


def steps_per_epoch(examples: int, batch_size: int) -> int:
    """Return the number of batches in an epoch, the last small one included."""
    return -(-examples // batch_size)


def _cut(order: Indices, size: int) -> list[Indices]:
    return [order[start : start + size] for start in range(0, len(order), size)]
