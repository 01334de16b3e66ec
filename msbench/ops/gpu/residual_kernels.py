"""A sum with one of two arrays scaled for each example and channel, as dropout of whole channels does."""

import triton
import triton.language as tl

from msbench.ops.gpu.tile_kernels import (
    find_columns,
    find_inside,
    load_columns,
    load_tile,
    store_tile,
)


@triton.jit
def find_place(length, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the example, the first row, and the rows left in the example, of a program with one tile."""
    BLOCKS: tl.constexpr = (D + COLUMNS - 1) // COLUMNS
    tile, tiles = tl.program_id(0) // BLOCKS, tl.cdiv(length, ROWS)
    example, done = (tile // tiles).to(tl.int64), tile % tiles * ROWS
    return example, example * length + done, length - done


@triton.jit(do_not_specialize=("length",))
def add_scaled(x, y, factors, out, length, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write x + y factors for x and y (b, length, D) and factors (b, D)."""
    columns = find_columns(D, COLUMNS)
    example, first, left = find_place(length, D, ROWS, COLUMNS)
    inside = find_inside(left, columns, D, ROWS, COLUMNS)
    value = load_tile(y + first * D, D, columns, inside, ROWS)
    value *= load_columns(factors + example * D, columns, D, COLUMNS)
    value += load_tile(x + first * D, D, columns, inside, ROWS)
    store_tile(out + first * D, D, columns, inside, value, ROWS)


@triton.jit(do_not_specialize=("length",))
def scale(g, factors, out, length, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Write g factors for g (b, length, D) and factors (b, D)."""
    columns = find_columns(D, COLUMNS)
    example, first, left = find_place(length, D, ROWS, COLUMNS)
    inside = find_inside(left, columns, D, ROWS, COLUMNS)
    value = load_tile(g + first * D, D, columns, inside, ROWS)
    value *= load_columns(factors + example * D, columns, D, COLUMNS)
    store_tile(out + first * D, D, columns, inside, value, ROWS)
