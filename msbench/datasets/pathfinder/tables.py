"""All computations of snake drawing with real numbers, as tables of integers made once.

Snakes grow on integer coordinates, so every sine, weight and picture that they may need is known in advance.
Both engines read these tables and compute with integers alone, so their results agree to the last bit.

An orientation has a number: 0 to 359 are the degrees -180 to 179 of a snake's first paddle; 360 + c is that
of `ends[c]`, the place where a further paddle may end, seen from its pivot. Coordinates are (row, column).

The end of a step depends on its start: the original rounds up the sum of a coordinate and a sine. The sine's
last bit is lost in the sum with a large coordinate, but near the upper and left border it raises the result
by a pixel. So steps are tables over all coordinates. The machine's sine can only matter for sums as near to
an integer as that; a golden digest in the tests would show it.

Pictures of paddles and markers are drawn large and reduced by Pillow, as in the original. Numbers are bytes:
a paddle's brightness and its mask are in 255ths until an image is complete.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from msbench.datasets.pathfinder.parameters import Parameters

Integers = NDArray[np.int32]

Bytes = NDArray[np.uint8]
LANCZOS_REACH = 3
"""Pixels of the reduced image that the filter reaches on each side."""


def make_disc(radius: float) -> NDArray[np.bool_]:
    """Return a mask: True where a pixel's centre is within `radius` of the middle one; the side is odd."""
    reach = int(radius)
    y, x = np.ogrid[-reach : reach + 1, -reach : reach + 1]
    inside: NDArray[np.bool_] = y**2 + x**2 <= radius**2
    return inside


def dilate(pictures: Bytes, kernel: NDArray[np.bool_]) -> Bytes:
    """Return the largest value under the kernel, over the last two axes; there is none beyond the borders."""
    reach = kernel.shape[0] // 2
    height, width = pictures.shape[-2:]
    padded = np.pad(pictures, [(0, 0)] * (pictures.ndim - 2) + [(reach, reach)] * 2)
    out = np.zeros_like(pictures)
    for y, x in np.argwhere(kernel).tolist():
        np.maximum(out, padded[..., y : y + height, x : x + width], out=out)
    return out


def reduce_pictures(pictures: Bytes, side: int) -> Bytes:
    """Reduce each of these pictures (n, h, h) to (n, side, side)."""
    small = [Image.fromarray(picture).resize((side, side), Image.Resampling.LANCZOS) for picture in pictures]
    return np.stack([np.asarray(picture) for picture in small])


def draw_paddles(parameters: Parameters, margin: int, angles: list[float]) -> tuple[Bytes, Bytes]:
    """Return brightness and mask of paddles from the middle of a picture in each of n directions.

    Both are (n, s, s), s = 2 (paddle_length + ceil(paddle_thickness) + margin) + 1.
    """
    half = measure_half_side(parameters, margin)
    large = np.stack([_line(half * parameters.antialias, angle, parameters) for angle in angles])
    masks = dilate(large, make_disc(margin * parameters.antialias))
    return reduce_pictures(large, 2 * half + 1), reduce_pictures(masks, 2 * half + 1)


def measure_half_side(parameters: Parameters, margin: int) -> int:
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


DEGREES = 360
WEIGHT_ONE = 2**24
"""Integer that represents the weight 1 of a place; times 255 and summed it stays far below 2^63."""
LEAST_WEIGHT = math.ceil(1e-4 * 255 * WEIGHT_ONE)
"""Below this sum of weights a snake is at a dead end."""
OVERLAP = 459
"""Two paddles overlap where their masks add up to this (1.8) or more."""
BLOCKED = 77
"""From this value on (above 0.3), a mask counts as taken where a first paddle is placed."""


class Tables(NamedTuple):
    """The tables of one margin, for c places and orientations o = 360 + c, of pictures with side s.

    `canvas` and `spread` have `border` more pixels on each side than an image, so that no picture is cut.
    """

    margin: int
    border: int
    canvas: Bytes
    """Masks before the first paddle, 0 outside the image."""
    spread: Bytes
    """`canvas` dilated by the margin, 255 outside the image."""
    heads: Integers
    """(360, 2, p) from the tail of a first paddle to its head, for p coordinates of the canvas."""
    pivots: Integers
    """(360, 2, p) from the head of a first paddle to its pivot, which lies behind it."""
    cells: Integers
    """(360, 4) positions allowed for the very first tail: first row, rows, first column, columns."""
    seconds: Integers
    """(360, 2, p) from the first snake's tail to the second's."""
    kernel: Integers
    """(k, 2) pixels that must be free for a first paddle, seen from its tail, orientation by orientation.

    An orientation without pixels is one in which no snake starts.
    """
    kernel_starts: Integers
    """(361,) start of each degree in `kernel`."""
    ends: Integers
    """(c, 2) from a pivot to the places where the next paddle may end, in reading order."""
    advances: Integers
    """(o, 2, p) from a pivot to the next."""
    weights: Integers
    """(o, c) of each place after a paddle of each orientation."""
    lines: Bytes
    """(o, s, s) brightness, seen from the tail (degrees) or from the end (places)."""
    masks: Bytes
    """(o, s, s)"""
    limits: Bytes
    """(o, s, s) the largest mask that a paddle's mask does not overlap."""
    spreads: Bytes
    """(o, s + 2 margin, s + 2 margin) masks dilated by the margin."""


@lru_cache(maxsize=8)
def tables(parameters: Parameters) -> tuple[Tables, ...]:
    """Return the tables of each margin."""
    return tuple(_of_margin(parameters, margin) for margin in parameters.paddle_margins)


def _of_margin(parameters: Parameters, margin: int) -> Tables:
    length = parameters.paddle_length
    ends = _ends(length + margin)
    degrees = [degree * np.pi / 180 for degree in range(-180, 180)]
    directions = [math.atan2(y, x) for y, x in ends.tolist()]
    # A further paddle is drawn backwards, from its end.
    lines, masks = draw_paddles(parameters, margin, [*degrees, *map(_turned, directions)])
    kernels = [
        _kernel(mask, measure_half_side(parameters, margin), length + margin) for mask in masks[:DEGREES]
    ]
    border = 2 * (length + margin) + math.ceil(parameters.paddle_thickness) + 4
    canvas, spread = _canvases(parameters, margin, border)
    places = np.arange(-border, parameters.window + border)
    second = [degree * np.pi / 180 for degree in range(DEGREES)]
    return Tables(
        margin=margin,
        border=border,
        canvas=canvas,
        spread=spread,
        heads=_integers(np.ceil(_moved(places, degrees, length))),
        pivots=_integers(np.ceil(_moved(places, [*map(_turned, degrees)], length + margin))),
        cells=np.array([_cells(parameters, kernel) for kernel in kernels], np.int32),
        seconds=_integers(np.rint(_moved(places, second, parameters.seed_distance))),
        kernel=_integers(np.concatenate(kernels)),
        kernel_starts=_integers(np.cumsum([0, *map(len, kernels)])),
        ends=ends,
        advances=_integers(np.ceil(_moved(places, [*degrees, *directions], length + 2 * margin))),
        weights=_weights(np.array([*degrees, *directions]), np.array(directions), parameters.continuity),
        lines=lines,
        masks=masks,
        limits=np.minimum(OVERLAP - 1 - masks.astype(np.int32), 255).astype(np.uint8),
        spreads=dilate(np.pad(masks, ((0, 0), (margin, margin), (margin, margin))), make_disc(margin)),
    )


def _turned(angle: float) -> float:
    return angle + np.pi if angle < 0 else angle - np.pi


def _moved(places: NDArray[Any], angles: list[float], distance: int) -> NDArray[np.float64]:
    """Return the ends of steps from each of these coordinates, (angles, 2, places); rows go with the sine."""
    steps = [(distance * math.sin(angle), distance * math.cos(angle)) for angle in angles]
    moved: NDArray[np.float64] = places + np.array(steps)[:, :, None]
    return moved


def _integers(values: NDArray[Any]) -> Integers:
    return np.ascontiguousarray(values, np.int32)


def _ends(radius: int) -> Integers:
    """Return the distinct pixels on a circle, sampled in steps of one pixel along it."""
    angles = [step / radius for step in range(math.ceil(2 * math.pi * radius))]
    points = np.array([(radius * math.sin(angle), radius * math.cos(angle)) for angle in angles])
    return _integers(np.unique(np.floor(points), axis=0))


def _weights(
    orientations: NDArray[np.float64], directions: NDArray[np.float64], continuity: float
) -> Integers:
    """Return weights of directions after each orientation: cosine squared of the bend times continuity."""
    bend = np.abs(directions - orientations[:, None])
    bend = np.minimum(bend, 2 * np.pi - bend)
    cosine = np.cos(np.minimum(continuity * bend, np.pi / 2))
    return _integers(np.rint(np.maximum(cosine, 0) ** 2 * WEIGHT_ONE))


def _kernel(mask: Bytes, half: int, reach: int) -> NDArray[np.int64]:
    """Return pixels (k, 2), seen from a tail, that must be free: those of a full mask, shifted by one.

    The original centres the mask on the pixel after the middle of its kernel, and cuts it to the kernel.
    """
    y, x = (np.argwhere(mask == 255) - half + 1).T
    inside = (np.abs(y) <= reach) & (np.abs(x) <= reach)
    kernel = np.stack([y[inside], x[inside]], axis=1)
    return kernel[:0] if _is_blind(kernel, reach) else kernel


def _is_blind(kernel: NDArray[np.int64], reach: int) -> bool:
    """Return True if there is a place in an image from which all of the kernel lies outside.

    There OpenCV's dilation returns the lowest representable number, which the original takes for an image
    without room: no snake starts in such an orientation. With 32 pixels this holds for most.
    """
    side = 2 * reach + 1
    seen = np.zeros((side, side), bool)
    for y, x in kernel.tolist():
        seen[max(0, -y) : side - max(0, y), max(0, -x) : side - max(0, x)] = True
    return not seen.all()


def _cells(parameters: Parameters, kernel: NDArray[np.int64]) -> tuple[int, int, int, int]:
    """Return the rectangle of tails whose kernel keeps twice the seed distance from the border."""
    if not len(kernel):
        return 0, 0, 0, 0
    frame = max(2 * parameters.seed_distance, parameters.padding)
    low, high = kernel.min(axis=0), kernel.max(axis=0)
    first = frame - low
    counts = np.maximum(parameters.window - frame - high - first, 0)
    return int(first[0]), int(counts[0]), int(first[1]), int(counts[1])


def _canvases(parameters: Parameters, margin: int, border: int) -> tuple[Bytes, Bytes]:
    window, padding = parameters.window, parameters.padding
    mask = np.full((window, window), 255, np.uint8)
    mask[padding:-padding, padding:-padding] = 0
    spread = dilate(mask, make_disc(margin))
    return np.pad(mask, border), np.pad(spread, border, constant_values=255)
