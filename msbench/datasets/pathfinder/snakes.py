"""Growth of an image's snakes, paddle by paddle, in plain Python.

Every paddle has a mask around itself, and a further one must not overlap the masks of the others. The
original's order is kept with its quirks:

- A paddle's mask is added when its successor is accepted, so that neighbours of a snake may touch; the last
  mask of the first target snake is never added.
- The second target snake starts at a fixed distance from the first, wherever that is: nothing is tested.
- A dead end restarts both target snakes, and a distractor up to `distractor_retries` times.
- No snake starts in an orientation whose kernel is blind; see `msbench.datasets.pathfinder.tables`.

The same steps are in ``native/pathfinder.cpp``, about 100 times as fast.
"""

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.tables import BLOCKED, DEGREES, LEAST_WEIGHT, Bytes, Integers, Tables, tables
from msbench.errors import DataError

MOST_ATTEMPTS = 1_000_000
"""Attempts to place both target snakes of one image; the presets need a few hundred."""
LEAST_ROOM = 100
"""No more distractors are drawn where less than one pixel in this many is free."""

WORD = 2**64 - 1


def hash_first_state(seed: int, batch: int, index: int) -> int:
    """Return the first state of the stream of image `index` of `batch`: a hash of seed, batch and index."""
    key = f"{seed} {batch} {index}".encode()
    return int.from_bytes(blake2b(key, digest_size=8, person=b"pathfinder").digest(), "little")


class RandomStream:
    """Unlimited random numbers (Steele, Lea and Flood 2014); see ``below`` of ``native/pathfinder.cpp``."""

    def __init__(self, state: int) -> None:
        self.state = state

    def below(self, bound: int) -> int:
        """Draw uniformly from [0, bound); the modulo bias is under bound / 2^64."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & WORD
        return (mixed ^ (mixed >> 31)) % bound


Point = tuple[int, int]


class Paddle(NamedTuple):
    """One paddle: the number of its orientation, and row and column of its tail or, if not the first, end."""

    orientation: int
    y: int
    x: int


class Tip(NamedTuple):
    """Position and orientation from which a snake continues."""

    pivot: Point
    orientation: int


class Drawings(NamedTuple):
    """The snakes of n images, to be rendered.

    ``labels``, ``margins`` (indices into `paddle_margins`), ``origins`` (the snake whose tail is marked),
    ``distractors`` (the number placed) and ``attempts`` (at both targets) are (n,); ``paddles`` is
    (n, most_paddles, 3): those of both targets in turn, from tail to end, then those of each distractor.
    """

    labels: Integers
    margins: Integers
    origins: Integers
    distractors: Integers
    attempts: Integers
    paddles: Integers


def draw_snakes(parameters: Parameters, states: NDArray[np.uint64]) -> Drawings:
    """Draw the snakes of one image from each of these states of `RandomStream`.

    Raises DataError where the target snakes of an image do not fit.
    """
    facts = np.zeros((len(states), 5), np.int32)
    paddles = np.zeros((len(states), parameters.most_paddles, 3), np.int32)
    for image, state in enumerate(states.tolist()):
        facts[image], drawn = _draw_image(parameters, RandomStream(state))
        paddles[image, : len(drawn)] = drawn
    return gather_drawings(facts, paddles)


def gather_drawings(facts: Integers, paddles: Integers) -> Drawings:
    """Build drawings from facts (n, 5): labels, margins, origins, distractors, attempts; and from paddles."""
    labels, margins, origins, distractors, attempts = facts.T
    return Drawings(labels, margins, origins, distractors, attempts, paddles)


def report_no_room(parameters: Parameters) -> DataError:
    """Return the error for an image whose target snakes do not fit."""
    return DataError(
        f"pathfinder: two snakes of {parameters.contour_length} paddles found no room in {MOST_ATTEMPTS:,} "
        f"attempts on {parameters.window} x {parameters.window} pixels; shorten them or enlarge the window"
    )


def _draw_image(parameters: Parameters, stream: RandomStream) -> tuple[tuple[int, ...], list[Paddle]]:
    label = stream.below(2)
    margin = stream.below(len(parameters.paddle_margins))
    artist = Artist(parameters, tables(parameters)[margin], stream)
    for attempt in range(1, MOST_ATTEMPTS + 1):  # noqa: B007
        targets = artist.draw_targets()
        if targets:
            break
    else:
        raise report_no_room(parameters)
    distractors = artist.draw_distractors()
    origin = stream.below(2)
    paddles = [*targets, *(paddle for snake in distractors for paddle in snake)]
    return (label, margin, origin, len(distractors), attempt), paddles


class Artist:
    """Drawing of the snakes of one image; an empty list of paddles means that there was no room."""

    def __init__(self, parameters: Parameters, tables: Tables, stream: RandomStream) -> None:
        self.parameters, self.tables, self.stream = parameters, tables, stream
        self.mask, self.spread = tables.canvas.copy(), tables.spread.copy()

    def draw_targets(self) -> list[Paddle]:
        """Draw both target snakes; return their paddles in turn."""
        self.mask[:], self.spread[:] = self.tables.canvas, self.tables.spread
        first = self._start_first()
        second = first and self._start_second(first)
        if not first or not second:
            return []
        paddles = [first, second]
        tips = [self._tip(first), self._tip(second)]
        for count in range(2, 2 * self.parameters.contour_length):
            grown = self._extend(tips[count % 2], paddles[-2])
            if not grown:
                return []
            tips[count % 2], paddle = grown
            paddles.append(paddle)
        self._merge(paddles[-1])
        return paddles

    def draw_distractors(self) -> list[list[Paddle]]:
        """Draw the distractors; return the paddles of each that fits."""
        snakes: list[list[Paddle]] = []
        for _ in range(self.parameters.distractors):
            taken, free = self._taken()
            if free * LEAST_ROOM < self.parameters.window**2:
                break
            before = self.mask.copy(), self.spread.copy()
            for _ in range(self.parameters.distractor_retries + 1):
                snake = self._draw_distractor(taken)
                if snake:
                    snakes.append(snake)
                    break
                self.mask[:], self.spread[:] = before
        return snakes

    def _draw_distractor(self, taken: NDArray[np.bool_]) -> list[Paddle]:
        first = self._start_distractor(taken)
        if not first:
            return []
        paddles, tip = [first], self._tip(first)
        for _ in range(self.parameters.distractor_length - 1):
            grown = self._extend(tip, paddles[-1])
            if not grown:
                return []
            tip, paddle = grown
            paddles.append(paddle)
        self._merge(paddles[-1])
        return paddles

    def _start_first(self) -> Paddle | None:
        """Return the first paddle of the first snake, far from the border."""
        for _ in range(self.parameters.paddle_retries + 1):
            orientation = self.stream.below(DEGREES)
            first_y, rows, first_x, columns = self.tables.cells[orientation].tolist()
            if not rows * columns:
                return None
            y, x = divmod(self.stream.below(rows * columns), columns)
            paddle = Paddle(orientation, first_y + y, first_x + x)
            if self._fits(paddle):
                return paddle
        return None

    def _start_second(self, first: Paddle) -> Paddle | None:
        """Return the first paddle of the second snake, at the seed distance from the first."""
        for _ in range(self.parameters.paddle_retries + 1):
            orientation = self.stream.below(DEGREES)
            tail = self._step(self.tables.seconds, self.stream.below(DEGREES), first[1:])
            paddle = Paddle(orientation, *tail)
            if self._fits(paddle):
                return paddle
        return None

    def _start_distractor(self, taken: NDArray[np.bool_]) -> Paddle | None:
        """Return the first paddle of a distractor, wherever there is room."""
        for _ in range(self.parameters.paddle_retries + 1):
            orientation = self.stream.below(DEGREES)
            places = self._places(orientation, taken)
            if not len(places):
                return None
            place = int(places[self.stream.below(len(places))])
            paddle = Paddle(orientation, *divmod(place, self.parameters.window))
            if self._fits(paddle):
                return paddle
        return None

    def _taken(self) -> tuple[NDArray[np.bool_], int]:
        """Return the canvas pixels where no distractor may start, and the number of free pixels.

        The former include the outermost pixels of the image.
        """
        border, window = self.tables.border, self.parameters.window
        image = slice(border, border + window)
        taken = self.mask >= BLOCKED
        free = window**2 - int(np.count_nonzero(taken[image, image]))
        for line in (border, border + window - 1):
            taken[line, image] = taken[image, line] = True
        return taken, free

    def _places(self, orientation: int, taken: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the places with room for a first paddle in this orientation: row * window + column."""
        border, window = self.tables.border, self.parameters.window
        start, stop = self.tables.kernel_starts[orientation : orientation + 2].tolist()
        forbidden = np.full((window, window), start == stop)
        for y, x in self.tables.kernel[start:stop].tolist():
            forbidden |= taken[border + y : border + y + window, border + x : border + x + window]
        return np.flatnonzero(~forbidden)

    def _step(self, steps: Integers, orientation: int, start: Point) -> Point:
        to_y, to_x = steps[orientation]
        y, x = start
        return int(to_y[self.tables.border + y]), int(to_x[self.tables.border + x])

    def _head(self, first: Paddle) -> Point:
        return self._step(self.tables.heads, first.orientation, first[1:])

    def _tip(self, first: Paddle) -> Tip:
        pivot = self._step(self.tables.pivots, first.orientation, self._head(first))
        return Tip(pivot, first.orientation)

    def _fits(self, first: Paddle) -> bool:
        ends = self._head(first), self._tip(first).pivot
        return all(0 <= at < self.parameters.window for end in ends for at in end)

    def _extend(self, tip: Tip, last: Paddle) -> tuple[Tip, Paddle] | None:
        """Return the snake's next paddle, drawn from the places around its pivot by weight and room."""
        pivot = self._step(self.tables.advances, tip.orientation, tip.pivot)
        y, x = (self.tables.ends + pivot + self.tables.border).T
        room = 255 - self.spread[y, x].astype(np.int64)
        sums = np.cumsum(self.tables.weights[tip.orientation] * room)
        if sums[-1] < LEAST_WEIGHT:
            return None
        for _ in range(self.parameters.paddle_retries + 1):
            end = int(np.searchsorted(sums, self.stream.below(int(sums[-1])), "right"))
            end_y, end_x = self.tables.ends[end].tolist()
            paddle = Paddle(DEGREES + end, pivot[0] + end_y, pivot[1] + end_x)
            if not self._overlaps(paddle):
                self._merge(last)
                return Tip(pivot, paddle.orientation), paddle
        return None

    def _overlaps(self, paddle: Paddle) -> bool:
        limits = self.tables.limits[paddle.orientation]
        return bool((_around(self.mask, self.tables.border, paddle, limits) > limits).any())

    def _merge(self, paddle: Paddle) -> None:
        """Add the paddle's mask; in `mask`, only inside the image."""
        border, window = self.tables.border, self.parameters.window
        added = self.tables.masks[paddle.orientation]
        region = _around(self.mask, border, paddle, added)
        half = len(added) // 2
        y, x = (slice(max(0, half - at), window + half - at) for at in (paddle.y, paddle.x))
        np.maximum(region[y, x], added[y, x], out=region[y, x])
        spread = self.tables.spreads[paddle.orientation]
        region = _around(self.spread, border, paddle, spread)
        np.maximum(region, spread, out=region)


def _around(canvas: Bytes, border: int, paddle: Paddle, picture: Bytes) -> Bytes:
    """Return the part of the canvas that the picture of this paddle covers."""
    half = len(picture) // 2
    y, x = paddle.y + border - half, paddle.x + border - half
    return canvas[y : y + len(picture), x : x + len(picture)]
