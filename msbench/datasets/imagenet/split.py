"""Splits of ImageNet, decoded when a batch is requested, over the cores that this process may use."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import picture_files
from msbench.datasets.dataset import Batch
from msbench.datasets.imagenet import crops
from msbench.datasets.imagenet.rand_augment import Generator, Picture, rand_augment
from msbench.datasets.parallel import default_processes
from msbench.datasets.pictures import decode
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import ImageNetConfig

Numbers = NDArray[np.int64]


@cache
def _pool() -> ThreadPoolExecutor:
    """Return one thread pool for all splits: Pillow decodes and scales without the interpreter's lock."""
    return ThreadPoolExecutor(default_processes(), "decode")


@dataclass(frozen=True)
class Index:
    """Files below `root`: concatenated names with `offsets` (n + 1,), sizes, CRCs and labels (n,)."""

    root: Path
    names: NDArray[np.uint8]
    offsets: Numbers
    sizes: Numbers
    checksums: NDArray[np.uint32]
    labels: NDArray[np.uint16]

    def name(self, number: int) -> str:
        """Return a file's path below `root`."""
        start, end = self.offsets[number : number + 2]
        return self.names[start:end].tobytes().decode(errors="surrogateescape")

    def path(self, number: int) -> Path:
        """Return the full path of a file."""
        return self.root / self.name(number)

    def read(self, number: int, *, full: bool) -> bytes:
        """Return the bytes of a file. Raises DataError where they differ from those at set-up."""
        size, checksum = int(self.sizes[number]), int(self.checksums[number])
        return picture_files.read(self.path(number), size, checksum, full=full)


def joined(names: Sequence[str]) -> tuple[NDArray[np.uint8], Numbers]:
    """Return the concatenated names, the start of each and the end of the last one."""
    encoded = [name.encode(errors="surrogateescape") for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


@dataclass(frozen=True)
class Pictures:
    """A split: the files with these `numbers`, in patches; augmented if `chance` (seed, epoch) is given."""

    config: "ImageNetConfig"
    index: Index
    numbers: Numbers
    chance: tuple[int, int] | None = None

    slow = True

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def lengths(self) -> Numbers:
        """The common length, for every example (n,)."""
        return np.full(len(self), self.config.positions, np.int64)

    @property
    def targets(self) -> NDArray[np.uint16]:
        """Label of every example (n,)."""
        return self.index.labels[self.numbers]

    def augmented(self, seed: int, epoch: int) -> Self:
        """Return the split for this epoch; augmentation depends on seed, epoch and picture number alone."""
        return self if self.config.augmentation == "none" else replace(self, chance=(seed, epoch))

    def batch(self, indices: Numbers, pad_to: int | None = None) -> Batch:
        """Return these examples, padded on the right with 0. Raises DataError naming the file."""
        length = self.config.positions
        numbers = self.numbers[indices]
        inputs = np.zeros((len(numbers), max(length, pad_to or 0), self.config.channels), np.float32)

        def fill(row: int) -> None:
            inputs[row, :length] = crops.patches(self.pixels(int(numbers[row])), self.config.patch)

        for _ in _pool().map(fill, range(len(numbers))):
            pass
        lengths = np.full(len(numbers), length, np.int64)
        return Batch(inputs, lengths, self.index.labels[numbers].astype(np.int64))

    def pixels(self, number: int) -> crops.Pixels:
        """Return one picture (image_size, image_size, 3), standardised."""
        config = self.config
        data = self.index.read(number, full=config.verify == "full")
        try:
            picture = decode(data)
        except ValueError as error:
            raise DataError(
                f"{self.index.path(number)}: {error}; data.verify: full finds such files at set-up"
            ) from None
        if self.chance is None:
            return crops.standardised(crops.centre_crop(picture, config.image_size, config.crop))
        return self._by_chance(picture, np.random.default_rng([*self.chance, number]))

    def _by_chance(self, picture: Picture, generator: Generator) -> crops.Pixels:
        recipe = self.config.augmentation != "crop-flip"
        changed = crops.random_crop(picture, self.config.image_size, generator, any_filter=recipe)
        if generator.random() < 0.5:
            changed = changed.transpose(crops.FLIP)
        if recipe:
            changed = rand_augment(changed, generator)
        pixels = crops.standardised(changed)
        if generator.random() < self.config.erasing:
            crops.erase(pixels, generator)
        return pixels
