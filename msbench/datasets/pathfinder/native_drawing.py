"""The engine of `msbench.datasets.pathfinder.snakes` in C++ (``native/pathfinder.cpp``).

It is in the library of `msbench.ops.scan_native`, which is located here without torch, as torch is too heavy
for worker processes to import.
"""

import ctypes
import warnings
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.pathfinder.parameters import Parameters
from msbench.datasets.pathfinder.snakes import MOST_ATTEMPTS, Drawings, gathered, no_room
from msbench.datasets.pathfinder.tables import BLOCKED, LEAST_WEIGHT, Tables, tables

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
def function() -> Any | None:
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


def draw(parameters: Parameters, states: NDArray[np.uint64]) -> Drawings:
    """Draw the snakes as `msbench.datasets.pathfinder.snakes.draw` does."""
    call = function()
    assert call is not None, "the choice of engines has seen that the library is there"
    problem, *_kept = _problem(parameters)
    states = np.ascontiguousarray(states)
    facts = np.zeros((len(states), 5), np.int32)
    paddles = np.zeros((len(states), parameters.most_paddles, 3), np.int32)
    arrays = (array.ctypes.data for array in (states, facts, paddles))
    fault = call(ctypes.byref(problem), len(states), *arrays)
    if fault == NO_MEMORY:
        raise MemoryError("not enough memory to draw an image")
    if fault == NO_ROOM:
        raise no_room(parameters)
    return gathered(facts, paddles)


@lru_cache(maxsize=8)
def _problem(
    parameters: Parameters,
) -> tuple[PathfinderProblem, ctypes.Array[NativeTables], tuple[Tables, ...]]:
    """Return the arguments, and the objects they point to, which must live as long."""
    made = tables(parameters)
    margins = (NativeTables * len(made))(*map(_native, made))
    problem = PathfinderProblem(
        ctypes.addressof(margins),
        *(LEAST_WEIGHT, MOST_ATTEMPTS, len(made), parameters.window, parameters.contour_length),
        *(parameters.distractor_length, parameters.distractors, parameters.paddle_retries),
        *(parameters.distractor_retries, BLOCKED),
    )
    return problem, margins, made


def _native(made: Tables) -> NativeTables:
    arrays = (getattr(made, name) for name in ARRAYS)
    return NativeTables(
        *(made.margin, made.border, len(made.ends), made.masks.shape[1]),
        *(array.ctypes.data for array in arrays),
    )
