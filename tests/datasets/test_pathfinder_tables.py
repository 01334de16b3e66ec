"""Bounds in bytes against the original's bounds in real numbers, and what no image may depend on."""

import numpy as np

from msbench.datasets.pathfinder.parameters import SIZES, find_preset
from msbench.datasets.pathfinder.tables import BLOCKED, DEGREES, OVERLAP, tables

HARD = "curv_contour_length_14"


def test_bounds_in_bytes_are_those_in_real_numbers() -> None:
    masks = (np.arange(256) / 255).astype(np.float32).astype(np.float64)
    sums = np.add.outer(np.arange(256), np.arange(256))
    assert ((np.add.outer(masks, masks) < 1.8) == (sums < OVERLAP)).all()
    assert ((np.ceil(masks - 0.3) > 0) == (np.arange(256) >= BLOCKED)).all()


def test_most_orientations_start_no_snake_where_images_are_small() -> None:
    blind = {
        size: [
            int(np.count_nonzero(np.diff(made.kernel_starts) == 0))
            for made in tables(find_preset(size, HARD))
        ]
        for size in SIZES
    }
    assert blind == {32: [330], 64: [265], 128: [6, 0], 256: [0]}


def test_steps_along_the_left_border_drift_inwards() -> None:
    (made,) = tables(find_preset(32, HARD))
    down = made.advances[DEGREES // 4 * 3]
    moved = {x: int(down[1, made.border + x]) for x in (1, 2, 3, 4, 20)}
    assert moved == {1: 2, 2: 3, 3: 4, 4: 4, 20: 20}


def test_a_first_snake_starts_twice_the_seed_distance_from_the_border() -> None:
    for size in SIZES:
        parameters = find_preset(size, HARD)
        for made in tables(parameters):
            first, last = made.cells[:, ::2], made.cells[:, ::2] + made.cells[:, 1::2] - 1
            used = made.cells[:, 1] * made.cells[:, 3] > 0
            kernels = zip(made.kernel_starts[:-1], made.kernel_starts[1:], strict=True)
            for orientation, (start, stop) in enumerate(kernels):
                assert used[orientation] == (stop > start)
                if stop > start:
                    kernel = made.kernel[start:stop]
                    assert (first[orientation] + kernel.min(axis=0) == 2 * parameters.seed_distance).all()
                    reach = size - 1 - 2 * parameters.seed_distance
                    assert (last[orientation] + kernel.max(axis=0) == reach).all()


def test_tables_are_laid_out_as_c_reads_them() -> None:
    for made in tables(find_preset(128, HARD)):
        arrays = [value for value in made if isinstance(value, np.ndarray)]
        assert all(array.flags.c_contiguous for array in arrays)
        assert {array.dtype for array in arrays} == {np.dtype(np.int32), np.dtype(np.uint8)}
