"""The split of the public PyTorch loaders: S4's, S5's and Mega's."""

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.pixels import split_randomly

SEED = 42


def public_split(images: int) -> dict[str, NDArray[np.int64]]:
    """Return the image numbers, in the order of reading, of each split in its order.

    A tenth each, rounded down, is for validation and test; the rest, drawn first, is for training.
    """
    held_out = int(0.1 * images)
    train, rest = split_randomly(images, images - 2 * held_out, SEED)
    return {"train": train, "validation": rest[:held_out], "test": rest[held_out:]}
