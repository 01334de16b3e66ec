"""What can be computed from Pathfinder images without their snakes: enough to see that two sets are alike."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.pathfinder.tables import Bytes, make_disc

LIT = 60
"""A byte above this is a paddle or a marker, not a fringe of one."""

Reals = NDArray[np.float64]


class Estimate(NamedTuple):
    """A mean and its standard error."""

    mean: float
    error: float

    def deviations(self, other: "Estimate") -> float:
        """How many standard errors of their difference two means lie apart."""
        difference, error = self.mean - other.mean, math.hypot(self.error, other.error)
        if not error:
            return math.copysign(math.inf, difference) if difference else 0.0
        return difference / error


def statistics(images: Bytes, labels: NDArray[np.int64], radius: float) -> dict[str, Estimate]:
    """Estimates, by name, over images (n, h, w) and their labels (n,); brightness is out of 255.

    `radius` is that of a marker.
    """
    first, second = find_markers(images, radius)
    flat = images.reshape(len(images), -1)
    brightness = flat.mean(axis=1)
    centred = images - images.mean(axis=(1, 2), keepdims=True)
    neighbours = [
        (centred[:, : -y or None, : -x or None] * centred[:, y:, x:]).mean(axis=(1, 2))
        for y, x in ((0, 1), (1, 0))
    ]
    values = {
        "label": labels.astype(np.float64),
        "brightness": brightness,
        "brightness, label 0": brightness[labels == 0],
        "brightness, label 1": brightness[labels == 1],
        "spread": flat.std(axis=1),
        "not black": (flat > 0).mean(axis=1),
        "lit": (flat > LIT).mean(axis=1),
        "brightest": flat.max(axis=1).astype(np.float64),
        "distance from the middle": _distance(images),
        "distance of markers": np.hypot(*(first - second).T),
        "neighbours in a row": neighbours[0],
        "neighbours in a column": neighbours[1],
    }
    return {name: _estimate(value) for name, value in values.items()}


def find_markers(images: Bytes, radius: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row and column (n, 2) of both markers, or of what looks most like them: the brightest discs."""
    reach = int(radius)
    blurred = np.zeros(images.shape)
    padded = np.pad(images, ((0, 0), (reach, reach), (reach, reach))).astype(np.float64)
    height, width = images.shape[1:]
    for y, x in np.argwhere(make_disc(radius)).tolist():
        blurred += padded[:, y : y + height, x : x + width]
    first = _brightest(blurred)
    rows, columns = (np.arange(side) for side in (height, width))
    away = [np.abs(along - at[:, None]) for along, at in zip((rows, columns), first.T, strict=True)]
    blurred[(away[0] <= 2 * radius)[:, :, None] & (away[1] <= 2 * radius)[:, None]] = 0
    return first, _brightest(blurred)


def _brightest(pictures: Reals) -> NDArray[np.int64]:
    flat = pictures.reshape(len(pictures), -1).argmax(axis=1)
    return np.stack(np.unravel_index(flat, pictures.shape[1:]), axis=1)


def _distance(images: Bytes) -> Reals:
    """The mean squared distance of brightness from the middle, in squares of half a side."""
    along = np.linspace(-1, 1, images.shape[1]) ** 2
    weight = images.sum(axis=(1, 2))
    distance: Reals = (images * (along[:, None] + along)).sum(axis=(1, 2)) / weight
    return distance


def _estimate(values: Reals) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
