"""Small images as sequences: one pixel a position, row after row from the top left."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import Batch, Fixed, Split
from msbench.datasets.manifest import Arrays
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import PixelConfig

Bytes = NDArray[np.uint8]
LEVELS = 256
CHUNK = 64  # images that fit the cache as 4-byte values: three times as fast as 2048
LUMA = (19595, 38470, 7471)
"""Weights of red, green and blue in 1/65536: 0.299, 0.587 and 0.114 as Pillow rounds them."""


class PixelTokens(Fixed):
    """A split of images whose grey levels `values` (n, l, 1) are token ids: one higher, as 0 is padding."""

    def __init__(self, values: Bytes, labels: Bytes) -> None:
        self.values, self.labels = values, labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The common length, for every example (n,)."""
        return np.full(len(self), self.values.shape[1], np.int64)

    @property
    def targets(self) -> Bytes:
        """Label of every example (n,)."""
        return self.labels

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:
        """Return the examples with these numbers, padded on the right with 0."""
        length = self.values.shape[1]
        inputs = np.zeros((len(indices), max(length, pad_to or 0)), np.int64)
        inputs[:, :length] = self.values[indices, :, 0]
        inputs[:, :length] += 1
        lengths = np.full(len(indices), length, np.int64)
        return Batch(inputs, lengths, self.labels[indices].astype(np.int64))


def convert_to_grey(rgb: Bytes) -> Bytes:
    """Return grey levels (n, l, 1) of colours (n, l, 3) as Pillow's ``convert("L")``."""
    grey = np.empty((*rgb.shape[:-1], 1), np.uint8)
    for start in range(0, len(rgb), CHUNK):
        wide = rgb[start : start + CHUNK].astype(np.uint32)
        red, green, blue = (wide[..., number] * weight for number, weight in enumerate(LUMA))
        grey[start : start + CHUNK, :, 0] = (red + green + blue + 0x8000) >> 16
    return grey


def keep_colours(images: Bytes) -> Bytes:
    """Return the images unchanged."""
    return images


def split_images(
    config: "PixelConfig",
    arrays: Arrays,
    look: Callable[[Bytes], Bytes],
    split_of: Callable[[Bytes, Bytes], Split],
) -> dict[str, Split]:
    """Make three splits from ``images`` and ``labels`` of train and test: validation is a share of train.

    `look` converts images (n, l, channels) to the values of a model, `split_of` makes a split of values and
    labels (n,). Raises DataError where the share leaves nothing on either side.
    """
    name, share, seed = config.dataset, config.validation, config.split_seed
    values, labels = look(arrays["train"]["images"]), arrays["train"]["labels"]
    count = int(len(labels) * (1 - share))
    if not 0 < count < len(labels):
        raise DataError(
            f"{name}: data.validation {share} of {len(labels):,} train images leaves a split empty"
        )
    train, validation = split_randomly(len(labels), count, seed)
    return {
        "train": split_of(values[train], labels[train]),
        "validation": split_of(values[validation], labels[validation]),
        "test": split_of(look(arrays["test"]["images"]), arrays["test"]["labels"]),
    }


Numbers = NDArray[np.int64]


def split_randomly(count: int, first: int, seed: int) -> tuple[Numbers, Numbers]:
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
