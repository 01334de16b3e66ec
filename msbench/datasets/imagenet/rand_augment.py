"""RandAugment as in timm's ``rand-m9-mstd0.5-inc1`` (Cubuk et al. 2020, with timm's increasing levels).

Two of 15 operations, each applied with probability one half, at a level around 9 of 10. Every number is
drawn from the given generator, so that a picture's changes do not depend on threads or on the order.
"""

import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

Picture = Image.Image
Generator = np.random.Generator
Operation = Callable[[Picture, float, Generator], Picture]

COUNT, CHANCE = 2, 0.5
LEVEL, LEVEL_DEVIATION, TOP = 9.0, 0.5, 10.0
FILL = (124, 116, 104)
"""ImageNet's mean colour, for pixels from outside of the picture."""
FILTERS = (Image.Resampling.BILINEAR, Image.Resampling.BICUBIC)


def rand_augment(picture: Picture, generator: Generator) -> Picture:
    """Return the picture after two random operations."""
    for number in generator.integers(len(OPERATIONS), size=COUNT):
        if generator.random() < CHANCE:
            level = min(max(generator.normal(LEVEL, LEVEL_DEVIATION), 0.0), TOP) / TOP
            picture = list(OPERATIONS.values())[number](picture, level, generator)
    return picture


def _signed(value: float, generator: Generator) -> float:
    return value if generator.random() < 0.5 else -value


def _affine(
    picture: Picture, matrix: tuple[float, float, float, float, float, float], generator: Generator
) -> Picture:
    resample = FILTERS[generator.integers(len(FILTERS))]
    return picture.transform(picture.size, Image.Transform.AFFINE, matrix, resample=resample, fillcolor=FILL)


def _rotate(picture: Picture, level: float, generator: Generator) -> Picture:
    angle = math.radians(_signed(30 * level, generator))
    cos, sin = math.cos(angle), math.sin(angle)
    x, y = picture.width / 2, picture.height / 2
    matrix = (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
    return _affine(picture, matrix, generator)


def _shear_x(picture: Picture, level: float, generator: Generator) -> Picture:
    return _affine(picture, (1, _signed(0.3 * level, generator), 0, 0, 1, 0), generator)


def _shear_y(picture: Picture, level: float, generator: Generator) -> Picture:
    return _affine(picture, (1, 0, 0, _signed(0.3 * level, generator), 1, 0), generator)


def _translate_x(picture: Picture, level: float, generator: Generator) -> Picture:
    shift = _signed(0.45 * level, generator) * picture.width
    return _affine(picture, (1, 0, shift, 0, 1, 0), generator)


def _translate_y(picture: Picture, level: float, generator: Generator) -> Picture:
    shift = _signed(0.45 * level, generator) * picture.height
    return _affine(picture, (1, 0, 0, 0, 1, shift), generator)


def _auto_contrast(picture: Picture, _level: float, _generator: Generator) -> Picture:
    return ImageOps.autocontrast(picture)


def _equalize(picture: Picture, _level: float, _generator: Generator) -> Picture:
    return ImageOps.equalize(picture)


def _invert(picture: Picture, _level: float, _generator: Generator) -> Picture:
    return ImageOps.invert(picture)


def _posterize(picture: Picture, level: float, _generator: Generator) -> Picture:
    # timm keeps 0 bits at the top level: a black picture, which current Pillow refuses to make.
    return ImageOps.posterize(picture, max(1, 4 - int(4 * level)))


def _solarize(picture: Picture, level: float, _generator: Generator) -> Picture:
    return ImageOps.solarize(picture, 256 - int(256 * level))


def _solarize_add(picture: Picture, level: float, _generator: Generator) -> Picture:
    added = int(110 * level)
    table = [min(255, value + added) if value < 128 else value for value in range(256)]
    return picture.point(table * 3)


def _factor(level: float, generator: Generator) -> float:
    """Return the weight of the picture in its blend with a picture without colour, contrast and so on."""
    return max(0.1, 1 + _signed(0.9 * level, generator))


def _colour(picture: Picture, level: float, generator: Generator) -> Picture:
    return ImageEnhance.Color(picture).enhance(_factor(level, generator))


def _contrast(picture: Picture, level: float, generator: Generator) -> Picture:
    return ImageEnhance.Contrast(picture).enhance(_factor(level, generator))


def _brightness(picture: Picture, level: float, generator: Generator) -> Picture:
    return ImageEnhance.Brightness(picture).enhance(_factor(level, generator))


def _sharpness(picture: Picture, level: float, generator: Generator) -> Picture:
    return ImageEnhance.Sharpness(picture).enhance(_factor(level, generator))


OPERATIONS: dict[str, Operation] = {
    "auto contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": _invert,
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": _solarize,
    "solarize add": _solarize_add,
    "colour": _colour,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
    "shear x": _shear_x,
    "shear y": _shear_y,
    "translate x": _translate_x,
    "translate y": _translate_y,
}
