"""Pathfinder and Path-X images, drawn as by the original, in any number.

An image is a function of its parameters, a seed, its batch and its index in the batch, and of nothing else:
not of the number of processes, the engine or the images drawn before. It may change only with `VERSION`,
which golden digests in the tests check: Pillow draws the paddles and reduces the pictures.

Snakes are drawn by one of two engines with equal results: `msbench.datasets.pathfinder.snakes`, or the same
steps in C++ (``native/pathfinder.cpp``). The latter is in the library of `msbench.ops.native_library`, which
is located here without torch, as torch is too heavy for worker processes to import.

A brightness is a byte of a picture over 255, times a contrast, as float32 for paddles; where pictures
overlap, the larger counts. An image is saved with its smallest brightness as 0 and its largest as 255.

Runs in worker processes: imports NumPy and Pillow and nothing heavier.
"""

import ctypes
import warnings
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.parallel import count_default_processes, run_in_order
from msbench.datasets.pathfinder import snakes
from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.tables import (
    BLOCKED,
    LEAST_WEIGHT,
    Bytes,
    Integers,
    Tables,
    add_marker,
    tables,
)

Engine = Literal["cpp", "python"]

VERSION = 1
BATCH = 1_000
"""Images of a batch, a folder of the release."""
BLOCK = 50
"""Images that a process draws at a time; a divisor of `BATCH`."""
ALONE = 200
"""Images that are drawn before a second interpreter has started."""

LIBRARY = Path(__file__).parents[2] / "ops"
FUNCTION = "msbench_pathfinder_draw"
NO_MEMORY, NO_ROOM = 1, 2
ARRAYS = (
    *("canvas", "spread", "heads", "pivots", "seconds", "cells", "kernel", "kernel_starts", "ends"),
    *("advances", "weights", "masks", "limits", "spreads"),
)


class NativeTables(ctypes.Structure):
    """``PathfinderTables`` of ``native/pathfinder.h``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("margin", "border", "ends_count", "side")),
        *((name, ctypes.c_void_p) for name in ARRAYS),
    )


class PathfinderProblem(ctypes.Structure):
    """``PathfinderProblem`` of ``native/pathfinder.h``."""

    _fields_ = (
        ("margins", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("least_weight", "most_attempts")),
        *((name, ctypes.c_int32) for name in ("margins_count", "window", "contour_length")),
        *((name, ctypes.c_int32) for name in ("distractor_length", "distractors", "paddle_retries")),
        *((name, ctypes.c_int32) for name in ("distractor_retries", "blocked")),
    )


@cache
def find_native_function() -> Any | None:
    """Return the compiled function, or None where the library was not built or cannot be loaded."""
    spec = PathFinder.find_spec("_native", [str(LIBRARY)])
    if spec is None or spec.origin is None:
        return None
    try:
        found = getattr(ctypes.CDLL(spec.origin), FUNCTION)
    except (OSError, AttributeError) as error:
        # Built but unusable: unlike a missing compiler, this deserves a warning.
        warnings.warn(f"pathfinder is generated without C++, slowly: {error}", RuntimeWarning, stacklevel=2)
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_int64, *(ctypes.c_void_p,) * 3)
    return found


def draw_natively(parameters: Parameters, states: NDArray[np.uint64]) -> snakes.Drawings:
    """Draw the snakes as `msbench.datasets.pathfinder.snakes.draw_snakes` does."""
    call = find_native_function()
    assert call is not None, "the choice of engines has seen that the library is there"
    problem, *_kept = _build_problem(parameters)
    states = np.ascontiguousarray(states)
    facts = np.zeros((len(states), 5), np.int32)
    paddles = np.zeros((len(states), parameters.most_paddles, 3), np.int32)
    arrays = (array.ctypes.data for array in (states, facts, paddles))
    fault = call(ctypes.byref(problem), len(states), *arrays)
    if fault == NO_MEMORY:
        raise MemoryError("not enough memory to draw an image")
    if fault == NO_ROOM:
        raise snakes.report_no_room(parameters)
    return snakes.gather_drawings(facts, paddles)


@lru_cache(maxsize=8)
def _build_problem(
    parameters: Parameters,
) -> tuple[PathfinderProblem, ctypes.Array[NativeTables], tuple[Tables, ...]]:
    """Return the arguments, and the objects they point to, which must live as long."""
    made = tables(parameters)
    margins = (NativeTables * len(made))(*map(_convert_tables, made))
    problem = PathfinderProblem(
        ctypes.addressof(margins),
        *(LEAST_WEIGHT, snakes.MOST_ATTEMPTS, len(made), parameters.window, parameters.contour_length),
        *(parameters.distractor_length, parameters.distractors, parameters.paddle_retries),
        *(parameters.distractor_retries, BLOCKED),
    )
    return problem, margins, made


def _convert_tables(made: Tables) -> NativeTables:
    arrays = (getattr(made, name) for name in ARRAYS)
    return NativeTables(
        *(made.margin, made.border, len(made.ends), made.masks.shape[1]),
        *(array.ctypes.data for array in arrays),
    )


def render_images(parameters: Parameters, drawings: snakes.Drawings) -> Bytes:
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
        for tip in find_markers(parameters, drawings, number):
            add_marker(layers[2], tip, parameters)
        image[:] = _stretch(parameters, layers)
    return images


def find_markers(
    parameters: Parameters, drawings: snakes.Drawings, number: int
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


def _stretch(parameters: Parameters, layers: Bytes) -> Bytes:
    """Return the image of the bytes of targets, distractors and markers (3, h, w), rounded half up."""
    brightness = np.take_along_axis(_make_scales(parameters), layers.reshape(3, -1), axis=1).max(axis=0)
    lowest, highest = brightness.min(), brightness.max()
    stretched = (brightness - lowest) * (255 / (highest - lowest))
    image: Bytes = (np.clip(stretched, 0, 255) + 0.5).astype(np.uint8)
    return image.reshape(layers.shape[1:])


@lru_cache(maxsize=8)
def _make_scales(parameters: Parameters) -> NDArray[np.float64]:
    """Return the brightness (3, 256) of each byte of targets, distractors and markers."""
    shares = np.arange(256) / 255
    distractor = parameters.snake_contrast
    contrasts = parameters.paddle_contrast * distractor, distractor
    paddles = [(shares * contrast).astype(np.float32) for contrast in contrasts]
    return np.stack([*paddles, shares]).astype(np.float64)


ENGINES = {"cpp": draw_natively, "python": snakes.draw_snakes}


@dataclass(frozen=True)
class DrawnImages:
    """Consecutive images (n, window, window) of one batch; a label (n,) is 1 for markers on one snake."""

    images: Bytes
    labels: Integers


def choose_engine() -> Engine:
    """Return ``cpp`` if it was compiled, else ``python``; both draw the same images."""
    return "cpp" if find_native_function() else "python"


def generate_images(
    parameters: Parameters,
    seed: int,
    images: int,
    *,
    first: int = 0,
    processes: int | None = None,
    engine: Engine | None = None,
    progress: Progress = ignore_progress,
) -> Generator[DrawnImages, None, None]:
    """Yield images `first` to `images` - 1 of this seed, in order and in blocks.

    Image i is index i modulo `BATCH` of batch i // `BATCH`. Raises DataError where the target snakes of an
    image do not fit, or where a worker process dies.
    """
    if processes is None:
        processes = 1 if images - first <= ALONE else count_default_processes()
    starts = [first, *range(first - first % BLOCK + BLOCK, images, BLOCK)] if first < images else []
    work = partial(_draw_block, parameters, seed, (*starts, images), engine or choose_engine())
    progress("generating pathfinder", 0, images - first)
    with closing(run_in_order(work, processes)) as blocks:
        done = 0
        for block in islice(blocks, len(starts)):
            done += len(block.labels)
            yield block
            progress("generating pathfinder", done, images - first)


def draw_images(parameters: Parameters, seed: int, numbers: range, engine: Engine) -> snakes.Drawings:
    """Draw the snakes of these images of a seed."""
    states = [snakes.hash_first_state(seed, *divmod(number, BATCH)) for number in numbers]
    return ENGINES[engine](parameters, np.array(states, np.uint64))


def _draw_block(
    parameters: Parameters, seed: int, starts: tuple[int, ...], engine: Engine, block: int
) -> DrawnImages:
    """Draw block `block`, which is empty after the last: workers run ahead of what is requested."""
    numbers = range(*starts[block : block + 2]) if block + 1 < len(starts) else range(0)
    drawings = draw_images(parameters, seed, numbers, engine)
    return DrawnImages(render_images(parameters, drawings), drawings.labels)
