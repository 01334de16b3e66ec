"""Pictures of one paddle and of one marker, drawn large and reduced by Pillow as in the original.

Numbers are bytes: a paddle's brightness and its mask are in 255ths until an image is complete.
"""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from msbench.datasets.pathfinder.parameters import Parameters

Bytes = NDArray[np.uint8]
LANCZOS_REACH = 3
"""Pixels of the reduced image that the filter reaches on each side."""


def disc(radius: float) -> NDArray[np.bool_]:
    """Return a mask: True where a pixel's centre is within `radius` of the middle one; the side is odd."""
    reach = int(radius)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    inside: NDArray[np.bool_] = y**2 + x**2 <= radius**2
    return inside


def dilated(pictures: Bytes, kernel: NDArray[np.bool_]) -> Bytes:
    """Return the largest value under the kernel, over the last two axes; there is none beyond the borders."""
    reach = kernel.shape[0] // 2
    height, width = pictures.shape[-2:]
    padded = np.pad(pictures, [(0, 0)] * (pictures.ndim - 2) + [(reach, reach)] * 2)
    out = np.zeros_like(pictures)
    for y, x in np.argwhere(kernel).tolist():
        np.maximum(out, padded[..., y : y + height, x : x + width], out=out)
    return out


def reduced(pictures: Bytes, side: int) -> Bytes:
    """Reduce each of these pictures (n, h, h) to (n, side, side)."""
    small = [Image.fromarray(picture).resize((side, side), Image.Resampling.LANCZOS) for picture in pictures]
    return np.stack([np.asarray(picture) for picture in small])


def paddles(parameters: Parameters, margin: int, angles: list[float]) -> tuple[Bytes, Bytes]:
    """Return brightness and mask of paddles from the middle of a picture in each of n directions.

    Both are (n, s, s), s = 2 (paddle_length + ceil(paddle_thickness) + margin) + 1.
    """
    half = half_side(parameters, margin)
    large = np.stack([_line(half * parameters.antialias, angle, parameters) for angle in angles])
    masks = dilated(large, disc(margin * parameters.antialias))
    return reduced(large, 2 * half + 1), reduced(masks, 2 * half + 1)


def half_side(parameters: Parameters, margin: int) -> int:
    """Return the number of pixels from the start of a paddle to the border of its picture."""
    return parameters.paddle_length + int(np.ceil(parameters.paddle_thickness)) + margin


def _line(centre: int, angle: float, parameters: Parameters) -> Bytes:
    length = parameters.paddle_length * parameters.antialias
    head = math.ceil(centre + length * math.cos(angle)), math.ceil(centre + length * math.sin(angle))
    picture = Image.new("L", (2 * centre + 1, 2 * centre + 1))
    ImageDraw.Draw(picture).line(((centre, centre), head), fill=255, width=parameters.line_width)
    return np.asarray(picture)


def add_marker(picture: Bytes, tip: tuple[int, int], parameters: Parameters) -> None:
    """Draw a marker into `picture` (window, window) at row and column `tip`, which may lie outside."""
    reach = int(np.ceil(parameters.marker_radius)) + LANCZOS_REACH
    starts = [max(0, at - reach) for at in tip]
    stops = [min(parameters.window, at + reach + 1) for at in tip]
    # The filter acts differently at a border of the image, so the picture ends where the image does.
    marker = _marker(
        parameters.marker_radius,
        parameters.antialias,
        (stops[0] - starts[0], stops[1] - starts[1]),
        (tip[0] - starts[0], tip[1] - starts[1]),
    )
    region = picture[starts[0] : stops[0], starts[1] : stops[1]]
    np.maximum(region, marker, out=region)


@lru_cache(maxsize=4096)
def _marker(radius: float, antialias: int, shape: tuple[int, int], middle: tuple[int, int]) -> Bytes:
    y, x = (np.arange(side * antialias) - at * antialias for side, at in zip(shape, middle, strict=True))
    inside = y[:, None] ** 2 + x**2 <= (radius * antialias) ** 2
    large = Image.fromarray(inside.astype(np.uint8) * 255)
    return np.asarray(large.resize((shape[1], shape[0]), Image.Resampling.LANCZOS))
