"""Conversion of a picture of any size to standardised patches, by random or fixed crops."""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msbench.datasets.imagenet.rand_augment import FILTERS, Generator, Picture

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


def centre_crop(picture: Picture, side: int, share: float) -> Picture:
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


def random_crop(picture: Picture, side: int, generator: Generator, *, any_filter: bool = False) -> Picture:
    """Return a random crop resized to `side`: 8 to 100 % of the area, ratio 3:4 to 4:3; bicubic.

    With `any_filter` it is bilinear half of the time.
    """
    box = _box(*picture.size, generator)
    resample = FILTERS[generator.integers(len(FILTERS))] if any_filter else BICUBIC
    return picture.crop(box).resize((side, side), resample)


def _box(width: int, height: int, generator: Generator) -> tuple[int, int, int, int]:
    for _ in range(ATTEMPTS):
        drawn = _rectangle(width * height, AREA, RATIO, generator)
        if 0 < drawn[0] <= width and 0 < drawn[1] <= height:
            left = int(generator.integers(width - drawn[0] + 1))
            top = int(generator.integers(height - drawn[1] + 1))
            return left, top, left + drawn[0], top + drawn[1]
    # as torchvision and timm do: the largest central crop with an allowed ratio
    across = min(width, round(height * RATIO[1]))
    down = min(height, round(width / RATIO[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _rectangle(
    area: int, share: tuple[float, float], ratio: tuple[float, float], generator: Generator
) -> tuple[int, int]:
    """Draw width and height of a rectangle: its share of the area uniform, its ratio log-uniform."""
    target = area * generator.uniform(*share)
    drawn = math.exp(generator.uniform(math.log(ratio[0]), math.log(ratio[1])))
    return round(math.sqrt(target * drawn)), round(math.sqrt(target / drawn))


def standardised(picture: Picture) -> Pixels:
    """Return pixels (height, width, 3), standardised by ImageNet's mean and deviation."""
    # A row at a time: numpy is ten times slower where its innermost loop is over three colours.
    rows = np.asarray(picture).reshape(picture.height, -1).astype(np.float32)
    rows *= np.tile(FACTOR, picture.width)
    rows -= np.tile(OFFSET, picture.width)
    return rows.reshape(picture.height, picture.width, COLOURS)


def erase(pixels: Pixels, generator: Generator) -> None:
    """Replace a rectangle of 2 to 33 % of the area by noise of deviation 1, in place."""
    height, width, _ = pixels.shape
    for _ in range(ATTEMPTS):
        across, down = _rectangle(height * width, ERASED_AREA, ERASED_RATIO, generator)
        if across < width and down < height:
            left = int(generator.integers(width - across + 1))
            top = int(generator.integers(height - down + 1))
            pixels[top : top + down, left : left + across] = generator.standard_normal(
                (down, across, 3), dtype=np.float32
            )
            return


def patches(pixels: Pixels, patch: int) -> Pixels:
    """Return patches (positions, 3 patch²) in reading order, each with its pixels in reading order."""
    height, width, colours = pixels.shape
    grid = pixels.reshape(height // patch, patch, width // patch, patch, colours)
    return grid.transpose(0, 2, 1, 3, 4).reshape(-1, colours * patch * patch)
