"""Pathfinder images once more, slowly: real numbers, whole canvases, and the original's formulas one by one.

What the original takes from OpenCV and from the SciPy of its day is written with today's SciPy. Random
numbers are those of the generator, so that images can be compared pixel by pixel.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import maximum_filter

from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.snakes import RandomStream

Reals = NDArray[np.float64]
Point = tuple[int, int]


def bytescale(picture: NDArray[np.generic]) -> NDArray[np.uint8]:
    if picture.dtype == np.uint8:
        return picture.astype(np.uint8, copy=False)
    values = picture.astype(np.float64)
    scaled = (values - values.min()) * (255.0 / ((values.max() - values.min()) or 1))
    rounded: NDArray[np.uint8] = (scaled.clip(0, 255) + 0.5).astype(np.uint8)
    return rounded


def resized(picture: NDArray[np.generic], shape: Point) -> NDArray[np.uint8]:
    small = Image.fromarray(bytescale(picture)).resize(shape[::-1], Image.Resampling.LANCZOS)
    return np.asarray(small)


def dilate(picture: Reals, kernel: NDArray[np.uint8]) -> Reals:
    out: Reals = maximum_filter(picture, footprint=kernel > 0, mode="constant", cval=-np.inf)
    return out


def disc(radius: int) -> NDArray[np.uint8]:
    y, x = np.ogrid[-radius : radius + 1, -radius : radius + 1]
    kernel: NDArray[np.uint8] = (x**2 + y**2 <= radius**2).astype(np.uint8)
    return kernel


def translate(start: Point, angle: float, distance: float) -> Point:
    return (
        int(np.ceil(start[0] + distance * np.sin(angle))),
        int(np.ceil(start[1] + distance * np.cos(angle))),
    )


def turned(angle: float) -> float:
    return angle + np.pi if angle < 0 else angle - np.pi


@dataclass
class Witness:
    parameters: Parameters
    stream: RandomStream
    margin: int = 0
    distractors: int = 0
    label: int = 0
    mask: Reals = field(default_factory=lambda: np.zeros(0))

    def draw(self) -> NDArray[np.uint8]:
        p = self.parameters
        self.label = self.stream.below(2)
        self.margin = p.paddle_margins[self.stream.below(len(p.paddle_margins))]
        targets = None
        while targets is None:
            targets = self.targets()
        image, tails, ends = targets
        for _ in range(p.distractors):
            for _ in range(p.distractor_retries + 1):
                before = self.mask
                drawn = self.distractor(image)
                if drawn is not None:
                    image = drawn
                    self.distractors += 1
                    break
                self.mask = before
        origin = self.stream.below(2)
        end = origin if self.label else 1 - origin
        circles = [self.circle(tails[origin]), self.circle(ends[end])]
        return bytescale(np.maximum(image, np.maximum(*circles) / 255))

    def targets(self) -> tuple[Reals, list[Point], list[Point]] | None:
        p = self.parameters
        self.mask = np.ones((p.window, p.window))
        self.mask[p.padding : -p.padding, p.padding : -p.padding] = 0
        contrast = p.paddle_contrast * p.snake_contrast
        first = self.seed(frame=2 * p.seed_distance)
        if first is None:
            return None
        second = self.second_seed(first[0])
        if second is None:
            return None
        image = np.zeros_like(self.mask)
        snakes = [first, second]
        tails = [first[0], second[0]]
        ends: list[Point] = [(0, 0), (0, 0)]
        last = []
        for tail, angle in snakes:
            line, paddle_mask = self.paddle(self.mask.shape, tail, angle, contrast)
            image = np.maximum(image, line)
            last.append(paddle_mask)
        states = [(self.pivot(tail, angle), angle) for tail, angle in snakes]
        for _ in range(p.contour_length - 1):
            for snake in (0, 1):
                extended = self.extend(*states[snake], last[snake], contrast)
                if extended is None:
                    return None
                line, last[snake], pivot, angle, ends[snake] = extended
                states[snake] = pivot, angle
                image = np.maximum(image, line)
        self.mask = np.maximum(self.mask, last[-1])
        return image, tails, ends

    def distractor(self, image: Reals) -> Reals | None:
        p = self.parameters
        first = self.seed(frame=1, room=0.01)
        if first is None:
            return None
        tail, angle = first
        line, last = self.paddle(self.mask.shape, tail, angle, p.snake_contrast)
        image = np.maximum(image, line)
        pivot = self.pivot(tail, angle)
        for _ in range(p.distractor_length - 1):
            extended = self.extend(pivot, angle, last, p.snake_contrast)
            if extended is None:
                return None
            line, last, pivot, angle, _ = extended
            image = np.maximum(image, line)
        self.mask = np.maximum(self.mask, last)
        return image

    def seed(self, frame: int, room: float = 0.0) -> tuple[Point, float] | None:
        p = self.parameters
        reach = p.paddle_length + self.margin
        if np.mean(np.ceil(self.mask - 0.3) == 0) < room:
            return None
        for _ in range(p.paddle_retries + 1):
            angle = (self.stream.below(360) - 180) * np.pi / 180
            kernel = self.paddle((2 * reach + 1,) * 2, (reach + 1,) * 2, angle, 1.0)[1].astype(np.uint8)
            framed = np.ones_like(self.mask)
            framed[frame:-frame, frame:-frame] = self.mask[frame:-frame, frame:-frame]
            forbidden = np.ceil(dilate(framed, kernel) - 0.3)
            if forbidden.min() < 0:
                return None
            y, x = np.nonzero(forbidden == 0)
            if len(y) == 0:
                return None
            drawn = self.stream.below(len(y))
            tail = int(y[drawn]), int(x[drawn])
            if self.fits(tail, angle):
                return tail, angle
        return None

    def second_seed(self, first: Point) -> tuple[Point, float] | None:
        p = self.parameters
        for _ in range(p.paddle_retries + 1):
            angle = (self.stream.below(360) - 180) * np.pi / 180
            way = self.stream.below(360) * np.pi / 180
            tail = (
                int(np.round(first[0] + p.seed_distance * np.sin(way))),
                int(np.round(first[1] + p.seed_distance * np.cos(way))),
            )
            if self.fits(tail, angle):
                return tail, angle
        return None

    def pivot(self, tail: Point, angle: float) -> Point:
        head = translate(tail, angle, self.parameters.paddle_length)
        return translate(head, turned(angle), self.parameters.paddle_length + self.margin)

    def fits(self, tail: Point, angle: float) -> bool:
        head = translate(tail, angle, self.parameters.paddle_length)
        return all(0 <= at < self.parameters.window for at in (*head, *self.pivot(tail, angle)))

    def extend(
        self, pivot: Point, angle: float, last: Reals, contrast: float
    ) -> tuple[Reals, Reals, Point, float, Point] | None:
        p = self.parameters
        radius = p.paddle_length + self.margin
        pivot = translate(pivot, angle, p.paddle_length + 2 * self.margin)
        around = np.arange(0, 360, 360.0 / (2 * radius * np.pi)) * np.pi / 180
        y, x = pivot[0] + radius * np.sin(around), pivot[1] + radius * np.cos(around)
        inside = (y >= 0) & (y < p.window) & (x >= 0) & (x < p.window)
        if not inside.any():
            return None
        ends = np.unique(np.stack([y, x], axis=1)[inside].astype(int), axis=0)
        ways = ends - pivot
        angles = np.arctan2(ways[:, 0], ways[:, 1])
        bend = np.minimum(np.abs(angles - angle), 2 * np.pi - np.abs(angles - angle))
        weights = np.maximum(np.cos(np.minimum(bend * p.continuity, 0.5 * np.pi)), 0) ** 2
        room = 1 - dilate(self.mask, disc(self.margin))[ends[:, 0], ends[:, 1]]
        if np.sum(weights * room) < 1e-4:
            return None
        shares = np.rint(weights * 2**24).astype(np.int64) * np.rint(room * 255).astype(np.int64)
        for _ in range(p.paddle_retries + 1):
            chosen = int(np.argmax(np.cumsum(shares) > self.stream.below(int(shares.sum()))))
            end = int(ends[chosen, 0]), int(ends[chosen, 1])
            line, paddle_mask = self.paddle(self.mask.shape, end, turned(float(angles[chosen])), contrast)
            if np.max(self.mask + paddle_mask) < 1.8:
                self.mask = np.maximum(self.mask, last)
                return line, paddle_mask, pivot, float(angles[chosen]), end
        return None

    def paddle(
        self, shape: tuple[int, ...], start: Point, angle: float, contrast: float
    ) -> tuple[Reals, Reals]:
        p = self.parameters
        half = p.paddle_length + math.ceil(p.paddle_thickness) + self.margin
        centre = half * p.antialias
        head = translate((centre, centre), angle, p.paddle_length * p.antialias)
        large = Image.new("F", (2 * centre + 1, 2 * centre + 1), "black")
        width = round(p.paddle_thickness * p.antialias)
        ImageDraw.Draw(large).line([(centre, centre), head[::-1]], fill="white", width=width)
        line = np.asarray(large).astype(np.float64)
        mask = dilate(line, disc(self.margin * p.antialias)).astype(np.uint8)
        small = 2 * half + 1, 2 * half + 1
        pictures = resized(line, small) / 255 * contrast, resized(mask, small) / 255
        placed = []
        for picture in pictures:
            canvas = np.zeros((shape[0] + 4 * half, shape[1] + 4 * half), np.float32)
            y, x = start[0] + half, start[1] + half
            canvas[y : y + small[0], x : x + small[1]] = picture
            inner = canvas[2 * half : 2 * half + shape[0], 2 * half : 2 * half + shape[1]]
            placed.append(inner.astype(np.float64))
        return placed[0], placed[1]

    def circle(self, middle: Point) -> Reals:
        p = self.parameters
        side = np.arange(p.window * p.antialias)
        y, x = side[:, None] - middle[0] * p.antialias, side - middle[1] * p.antialias
        large = (x**2 + y**2 <= (p.marker_radius * p.antialias) ** 2).astype(np.float64)
        return resized(large, (p.window, p.window)).astype(np.float64)
