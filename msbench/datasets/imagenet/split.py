"""Splits of ImageNet: pictures decoded, cropped, augmented and cut into patches when a batch is requested.

Pictures are prepared over the cores that this process may use. RandAugment is that of timm's
``rand-m9-mstd0.5-inc1`` (Cubuk et al. 2020, with timm's increasing levels): two of 15 operations, each
applied with probability one half, at a level around 9 of 10. Every number is drawn from the generator of the
picture, so that its changes do not depend on threads or on the order.

torchvision's transforms.v2 can do neither. Its RandAugment has no probability, no deviation of the level and
no random filter, other ranges, and neither invert nor solarize-add. All of its transforms draw from torch's
global generator, which threads share, the one that trains too: seeded for each picture, 149 of 250 pictures
were others in four threads than in one. They also take 4.7 ms of a core for a picture, and these 1.9 ms.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from msbench.datasets.dataset import Batch
from msbench.datasets.imagenet import pictures
from msbench.datasets.imagenet.pictures import decode_picture
from msbench.datasets.parallel import count_default_processes
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import ImageNetConfig

Picture = Image.Image
Generator = np.random.Generator
Operation = Callable[[Picture, float, Generator], Picture]

COUNT, CHANCE = 2, 0.5
LEVEL, LEVEL_DEVIATION, TOP = 9.0, 0.5, 10.0
FILL = (124, 116, 104)
"""ImageNet's mean colour, for pixels from outside of the picture."""
FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def apply_rand_augment(picture: Picture, generator: Generator) -> Picture:
    """Return the picture after two random operations."""
    for number in generator.integers(len(OPERATIONS), size=COUNT):
        if generator.random() < CHANCE:
            level = min(max(generator.normal(LEVEL, LEVEL_DEVIATION), 0.0), TOP) / TOP
            picture = list(OPERATIONS.values())[number](picture, level, generator)
    return picture


def _draw_sign(value: float, generator: Generator) -> float:
    return value if generator.random() < 0.5 else -value


def _transform(
    picture: Picture, matrix: tuple[float, float, float, float, float, float], generator: Generator
) -> Picture:
    resample = FILTERS[generator.integers(len(FILTERS))]
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=resample, fillcolor=FILL)


def _rotate(picture: Picture, level: float, generator: Generator) -> Picture:
    angle = math.radians(_draw_sign(30 * level, generator))
    cos, sin = math.cos(angle), math.sin(angle)
    x, y = picture.width / 2, picture.height / 2
    matrix = (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
    return _transform(picture, matrix, generator)


def _shear_x(picture: Picture, level: float, generator: Generator) -> Picture:
    return _transform(picture, (1, _draw_sign(0.3 * level, generator), 0, 0, 1, 0), generator)


def _shear_y(picture: Picture, level: float, generator: Generator) -> Picture:
    return _transform(picture, (1, 0, 0, _draw_sign(0.3 * level, generator), 1, 0), generator)


def _translate_x(picture: Picture, level: float, generator: Generator) -> Picture:
    shift = _draw_sign(0.45 * level, generator) * picture.width
    return _transform(picture, (1, 0, shift, 0, 1, 0), generator)


def _translate_y(picture: Picture, level: float, generator: Generator) -> Picture:
    shift = _draw_sign(0.45 * level, generator) * picture.height
    return _transform(picture, (1, 0, 0, 0, 1, shift), generator)


def _posterize(picture: Picture, level: float, _generator: Generator) -> Picture:
    # timm keeps 0 bits at the top level: a black picture, which current Pillow refuses to make.
    return ImageOps.posterize(picture, max(1, 4 - int(4 * level)))


def _solarize(picture: Picture, level: float, _generator: Generator) -> Picture:
    return ImageOps.solarize(picture, 256 - int(256 * level))


def _solarize_add(picture: Picture, level: float, _generator: Generator) -> Picture:
    added = int(110 * level)
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return picture.point(table * 3)


def _without_level(change: Callable[[Picture], Picture]) -> Operation:
    return lambda picture, _level, _generator: change(picture)


def _blend(enhancer: Callable[[Picture], ImageEnhance._Enhance]) -> Operation:
    """Return the blend with a picture without colour, contrast and so on, by a random weight."""

    def blend(picture: Picture, level: float, generator: Generator) -> Picture:
        return enhancer(picture).enhance(max(0.1, 1 + _draw_sign(0.9 * level, generator)))

    return blend


OPERATIONS: dict[str, Operation] = {
    "auto contrast": _without_level(ImageOps.autocontrast),
    "equalize": _without_level(ImageOps.equalize),
    "invert": _without_level(ImageOps.invert),
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": _solarize,
    "solarize add": _solarize_add,
    "colour": _blend(ImageEnhance.Color),
    "contrast": _blend(ImageEnhance.Contrast),
    "brightness": _blend(ImageEnhance.Brightness),
    "sharpness": _blend(ImageEnhance.Sharpness),
    "shear x": _shear_x,
    "shear y": _shear_y,
    "translate x": _translate_x,
    "translate y": _translate_y,
}


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of ImageNet's colours, from 0 to 1."""
FACTOR = (1 / (255 * np.array(DEVIATION))).astype(np.float32)
OFFSET = (np.array(MEAN) / np.array(DEVIATION)).astype(np.float32)
COLOURS = len(MEAN)
BICUBIC = Image.Resampling.BICUBIC
FLIP = Image.Transpose.FLIP_LEFT_RIGHT
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
ERASED_AREA, ERASED_RATIO = (0.02, 1 / 3), (0.3, 1 / 0.3)
ATTEMPTS = 10

Pixels = NDArray[np.float32]


def crop_centre(picture: Picture, side: int, share: float) -> Picture:
    """Return the central square of `side`, after resizing the shorter side to floor(side / share)."""
    shorter = int(side / share)
    width, height = picture.size
    if width <= height:
        size = (shorter, int(shorter * height / width))
    else:
        size = (int(shorter * width / height), shorter)
    left, top = (round((length - side) / 2) for length in size)
    # Pillow's `box` would scale the square alone, in half the time, but not to the same pixels.
    return picture.resize(size, BICUBIC).crop((left, top, left + side, top + side))


def crop_randomly(picture: Picture, side: int, generator: Generator, *, any_filter: bool = False) -> Picture:
    """Return a random crop resized to `side`: 8 to 100 % of the area, ratio 3:4 to 4:3; bicubic.

    With `any_filter` it is bilinear half of the time.
    """
    box = _draw_box(*picture.size, generator)
    resample = FILTERS[generator.integers(len(FILTERS))] if any_filter else BICUBIC
    return picture.crop(box).resize((side, side), resample)


def _draw_box(width: int, height: int, generator: Generator) -> tuple[int, int, int, int]:
    for _ in range(ATTEMPTS):
        drawn = _draw_rectangle(width * height, AREA, RATIO, generator)
        if 0 < drawn[0] <= width and 0 < drawn[1] <= height:
            left = int(generator.integers(width - drawn[0] + 1))
            top = int(generator.integers(height - drawn[1] + 1))
            return left, top, left + drawn[0], top + drawn[1]
    # as torchvision and timm do: the largest central crop with an allowed ratio
    across = min(width, round(height * RATIO[1]))
    down = min(height, round(width / RATIO[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _draw_rectangle(
    area: int, share: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> tuple[int, int]:
    """Draw width and height of a rectangle: its share of the area uniform, its ratio log-uniform."""
    target = area * generator.uniform(*share)
    drawn = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(target * drawn)), round(math.sqrt(target / drawn))


def standardise(picture: Picture) -> Pixels:
    """Return pixels (height, width, 3), standardised by ImageNet's mean and deviation."""
    # A row at a time: numpy is ten times slower where its innermost loop is over three colours.
    rows = np.asarray(picture).reshape(picture.height, -1).astype(np.float32)
    rows *= np.tile(FACTOR, picture.width)
    rows -= np.tile(OFFSET, picture.width)
    return rows.reshape(picture.height, picture.width, COLOURS)


def erase_rectangle(pixels: Pixels, generator: Generator) -> None:
    """Replace a rectangle of 2 to 33 % of the area by noise of deviation 1, in place."""
    height, width, _ = pixels.shape
    for _ in range(ATTEMPTS):
        across, down = _draw_rectangle(height * width, ERASED_AREA, ERASED_RATIO, generator)
        if across < width and down < height:
            left = int(generator.integers(width - across + 1))
            top = int(generator.integers(height - down + 1))
            pixels[top : top + down, left : left + across] = generator.standard_normal(
                (down, across, 3), dtype=np.float32
            )
            return


def cut_patches(pixels: Pixels, patch: int) -> Pixels:
    """Return patches (positions, 3 patch²) in reading order, each with its pixels in reading order."""
    height, width, colours = pixels.shape
    grid = pixels.reshape(height // patch, patch, width // patch, patch, colours)
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, colours * patch * patch)


Numbers = NDArray[np.int64]


@cache
def _start_pool() -> ThreadPoolExecutor:
    """Return one thread pool for all splits: Pillow decodes and scales without the interpreter's lock."""
    return ThreadPoolExecutor(count_default_processes(), "decode")


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
        return pictures.read_checked(self.path(number), size, checksum, full=full)


def join_names(names: Sequence[str]) -> tuple[NDArray[np.uint8], Numbers]:
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
    crops = 1

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def repeats(self) -> int:
        """Times that an example is in an epoch of training."""
        return self.config.repeats or 1

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
        repeats, places = np.divmod(indices, len(self))
        numbers = self.numbers[places]
        inputs = np.zeros((len(numbers), max(length, pad_to or 0), self.config.channels), np.float32)

        def fill(row: int) -> None:
            inputs[row, :length] = cut_patches(
                self.pixels(int(numbers[row]), int(repeats[row])), self.config.patch
            )

        for _ in _start_pool().map(fill, range(len(numbers))):
            pass
        lengths = np.full(len(numbers), length, np.int64)
        return Batch(inputs, lengths, self.index.labels[numbers].astype(np.int64))

    def pixels(self, number: int, repeat: int = 0) -> Pixels:
        """Return one picture (image_size, image_size, 3), standardised; each `repeat` is augmented anew."""
        config = self.config
        data = self.index.read(number, full=config.verify == "full")
        try:
            picture = decode_picture(data)
        except ValueError as error:
            raise DataError(
                f"{self.index.path(number)}: {error}; data.verify: full finds such files at set-up"
            ) from None
        if self.chance is None:
            return standardise(crop_centre(picture, config.image_size, config.crop))
        seeds = [*self.chance, number, repeat] if repeat else [*self.chance, number]
        return self._by_chance(picture, np.random.default_rng(seeds))

    def _by_chance(self, picture: Picture, generator: Generator) -> Pixels:
        recipe = self.config.augmentation != "crop-flip"
        changed = crop_randomly(picture, self.config.image_size, generator, any_filter=recipe)
        if generator.random() < 0.5:
            changed = changed.transpose(FLIP)
        if recipe:
            changed = apply_rand_augment(changed, generator)
        pixels = standardise(changed)
        if generator.random() < self.config.erasing:
            erase_rectangle(pixels, generator)
        return pixels
