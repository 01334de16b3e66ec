"""Images of snakes: paddles and markers painted over each other, stretched to 0 to 255 as in the original.

A brightness is a byte of a picture over 255, times a contrast, as float32 for paddles; where pictures
overlap, the larger counts. An image is saved with its smallest brightness as 0 and its largest as 255.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.patches import Bytes, add_marker
from msbench.datasets.pathfinder.snakes import Drawings
from msbench.datasets.pathfinder.tables import tables


def render(parameters: Parameters, drawings: Drawings) -> Bytes:
    """Return the images (n, window, window) of these drawings."""
    images = np.empty((len(drawings.labels), parameters.window, parameters.window), np.uint8)
    for number, image in enumerate(images):
        lines = tables(parameters)[drawings.margins[number]].lines
        paddles = drawings.paddles[number]
        length = 2 * parameters.contour_length
        count = length + drawings.distractors[number] * parameters.distractor_length
        layers = np.zeros((3, *image.shape), np.uint8)
        _paint(layers[0], paddles[:length], lines)
        _paint(layers[1], paddles[length:count], lines)
        for tip in markers(parameters, drawings, number):
            add_marker(layers[2], tip, parameters)
        image[:] = _stretched(parameters, layers)
    return images


def markers(
    parameters: Parameters, drawings: Drawings, number: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return row and column of both markers: a target's tail, and the end of it (label 1) or of the other."""
    origin = int(drawings.origins[number])
    end = origin if drawings.labels[number] else 1 - origin
    paddles = drawings.paddles[number, :, 1:].tolist()
    last = 2 * (parameters.contour_length - 1)
    return tuple(paddles[origin]), tuple(paddles[last + end])


def _paint(layer: Bytes, paddles: NDArray[np.int32], lines: Bytes) -> None:
    """Paint the pictures of these paddles (n, 3), as far as they lie inside."""
    window, side = len(layer), lines.shape[1]
    half = side // 2
    for orientation, y, x in paddles.tolist():
        top, left = y - half, x - half
        rows = slice(max(0, top), max(0, min(window, top + side)))
        columns = slice(max(0, left), max(0, min(window, left + side)))
        region = layer[rows, columns]
        line = lines[
            orientation, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
        ]
        np.maximum(region, line, out=region)


def _stretched(parameters: Parameters, layers: Bytes) -> Bytes:
    """Return the image of the bytes of targets, distractors and markers (3, h, w), rounded half up."""
    brightness = np.take_along_axis(_scales(parameters), layers.reshape(3, -1), axis=1).max(axis=0)
    lowest, highest = brightness.min(), brightness.max()
    stretched = (brightness - lowest) * (255 / (highest - lowest))
    image: Bytes = (np.clip(stretched, 0, 255) + 0.5).astype(np.uint8)
    return image.reshape(layers.shape[1:])


@lru_cache(maxsize=8)
def _scales(parameters: Parameters) -> NDArray[np.float64]:
    """Return the brightness (3, 256) of each byte of targets, distractors and markers."""
    shares = np.arange(256) / 255
    distractor = parameters.snake_contrast
    contrasts = parameters.paddle_contrast * distractor, distractor
    paddles = [(shares * contrast).astype(np.float32) for contrast in contrasts]
    return np.stack([*paddles, shares]).astype(np.float64)
