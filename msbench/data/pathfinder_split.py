"""The split of the public PyTorch loaders: S4's, S5's and Mega's."""

import numpy as np
from numpy.typing import NDArray

SEED = 42


def public_split(images: int) -> dict[str, NDArray[np.int64]]:
    """Which images, by their number in the order of reading, are in each split and in which order.

    A tenth each, rounded down, is for validation and test. The permutation is that of
    ``torch.utils.data.random_split`` with its generator seeded with 42.
    """
    import torch

    order = torch.randperm(images, generator=torch.Generator().manual_seed(SEED)).numpy()
    held_out = int(0.1 * images)
    train = images - 2 * held_out
    parts = np.split(order, [train, train + held_out])
    return dict(zip(("train", "validation", "test"), parts, strict=True))
