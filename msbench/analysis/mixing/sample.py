"""The test examples and channels that are measured: fixed, seeded, the same for every model."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SEED = 0
CHOICE = (
    "the first of a permutation of the test split by NumPy's PCG64 from seed 0, in the split's order: of a"
    " dataset the same for every model, and part of any larger choice"
)


def first(available: int, count: int) -> NDArray[np.int64]:
    """Return `count` of the numbers below `available`, ascending; all if there are no more."""
    shuffled = np.random.Generator(np.random.PCG64(SEED)).permutation(available)
    return np.sort(shuffled[:count]).astype(np.int64)


def batches(lengths: NDArray[np.int64], positions: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches of example indices, sorted by length: at most `positions` padded positions each.

    A batch has at least one example.
    """
    pending: list[int] = []
    for place in np.argsort(lengths, kind="stable").tolist():
        if pending and (len(pending) + 1) * lengths[place] > positions:
            yield np.array(pending)
            pending = []
        pending.append(place)
    if pending:
        yield np.array(pending)
