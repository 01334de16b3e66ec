"""The split drawn by torch's ``random_split``, without torch and whatever its version."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


def random_split(count: int, first: int, seed: int) -> tuple[Numbers, Numbers]:
    """Shuffle the numbers below `count` and return them in two parts: `first` of them, and the rest.

    Equal to ``torch.utils.data.random_split`` with ``torch.Generator().manual_seed(seed)``, by which public
    loaders split CIFAR-10 and Pathfinder. `seed` is below 2^32.
    """
    # Both seed the same Mersenne Twister; torch uses one word per swap, with modulo bias.
    words = np.random.RandomState(seed).randint(0, 2**32, size=count, dtype=np.uint32).tolist()
    order = list(range(count))
    for place in range(count - 1):
        other = place + words[place] % (count - place)
        order[place], order[other] = order[other], order[place]
    drawn = np.array(order, np.int64)
    return drawn[:first], drawn[first:]
