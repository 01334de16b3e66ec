"""Unlimited Pathfinder and Path-X images, drawn as by the original.

An image is a function of its parameters, a seed, its batch and its index in the batch, and of nothing else:
not of the number of processes, the engine or the images drawn before. It may change only with `VERSION`,
which golden digests in the tests check: Pillow draws the paddles and reduces the pictures.

Runs in worker processes: imports NumPy and Pillow and nothing heavier.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np

from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.parallel import default_processes, ordered
from msbench.datasets.pathfinder import native_drawing as pathfinder_native
from msbench.datasets.pathfinder import snakes as pathfinder_snakes
from msbench.datasets.pathfinder.metadata import ImageMetadata, row
from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.patches import Bytes
from msbench.datasets.pathfinder.random import first_state
from msbench.datasets.pathfinder.render import render
from msbench.datasets.pathfinder.snakes import Drawings

VERSION = 1
BATCH = 1_000
"""Images of a batch, a folder of the release."""
BLOCK = 50
"""Images that a process draws at a time; a divisor of `BATCH`."""
ALONE = 200
"""Images that are drawn before a second interpreter has started."""

Engine = Literal["cpp", "python"]
ENGINES = {"cpp": pathfinder_native.draw, "python": pathfinder_snakes.draw}


@dataclass(frozen=True)
class DrawnImages:
    """Consecutive images (n, window, window) of one batch, and their rows."""

    images: Bytes
    rows: tuple[ImageMetadata, ...]


def default_engine() -> Engine:
    """Return ``cpp`` if it was compiled, else ``python``; both draw the same images."""
    return "cpp" if pathfinder_native.function() else "python"


def generate(
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
        processes = 1 if images - first <= ALONE else default_processes()
    starts = [first, *range(first - first % BLOCK + BLOCK, images, BLOCK)] if first < images else []
    work = partial(_draw_block, parameters, seed, (*starts, images), engine or default_engine())
    progress("generating pathfinder", 0, images - first)
    with closing(ordered(work, processes)) as blocks:
        done = 0
        for block in islice(blocks, len(starts)):
            done += len(block.rows)
            yield block
            progress("generating pathfinder", done, images - first)


def draw(parameters: Parameters, seed: int, numbers: range, engine: Engine) -> Drawings:
    """Draw the snakes of these images of a seed."""
    states = [first_state(seed, *divmod(number, BATCH)) for number in numbers]
    return ENGINES[engine](parameters, np.array(states, np.uint64))


def _draw_block(
    parameters: Parameters, seed: int, starts: tuple[int, ...], engine: Engine, block: int
) -> DrawnImages:
    """Draw block `block`, which is empty after the last: workers run ahead of what is requested."""
    numbers = range(*starts[block : block + 2]) if block + 1 < len(starts) else range(0)
    drawings = draw(parameters, seed, numbers, engine)
    labels = drawings.labels.tolist()
    margins = [parameters.paddle_margins[margin] for margin in drawings.margins.tolist()]
    rows = (
        row(parameters, *divmod(number, BATCH), label, margin)
        for number, label, margin in zip(numbers, labels, margins, strict=True)
    )
    return DrawnImages(render(parameters, drawings), tuple(rows))
