"""Tiles of rows by channels, which the kernels of norms and gates share.

A row is one position of one example. A program has a block of COLUMNS of the D channels, and ROWS rows at a
time; numbers are float32 in registers, whatever they are in memory.
"""

import triton
import triton.language as tl


@triton.jit
def find_columns(D: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the channels of a program's block; the blocks of the same rows are neighbours."""
    BLOCKS: tl.constexpr = (D + COLUMNS - 1) // COLUMNS
    return tl.program_id(0) % BLOCKS * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def find_first_row(size, D: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the first row of a program, in int64, if every one has `size` rows."""
    BLOCKS: tl.constexpr = (D + COLUMNS - 1) // COLUMNS
    return (tl.program_id(0) // BLOCKS).to(tl.int64) * size


@triton.jit
def count_left(first, rows, size):
    """Return how many of `size` rows from `first` on exist, in int32."""
    return tl.minimum(rows - first, size).to(tl.int32)


@triton.jit
def find_inside(left, columns, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return a tile that is True for the first `left` rows and D channels."""
    inside = (tl.arange(0, ROWS) < left)[:, None]
    if D % COLUMNS != 0:
        inside = inside & (columns < D)[None, :]
    return inside


@triton.jit
def load_tile(pointer, stride, columns, inside, ROWS: tl.constexpr):
    """Load a tile from the row at `pointer` on, `stride` numbers apart; zeros where it is not inside."""
    at = tl.arange(0, ROWS)[:, None] * stride + columns[None, :]
    return tl.load(pointer + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_tile(pointer, stride, columns, inside, value, ROWS: tl.constexpr):
    """Write a tile where it is inside, rounded to the type of the memory."""
    at = tl.arange(0, ROWS)[:, None] * stride + columns[None, :]
    tl.store(pointer + at, value.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def load_rows(pointer, left, ROWS: tl.constexpr):
    """Load one number for each row, as a column; zeros beyond `left` rows."""
    row = tl.arange(0, ROWS)
    return tl.load(pointer + row, mask=row < left, other=0.0).to(tl.float32)[:, None]


@triton.jit
def load_columns(pointer, columns, D: tl.constexpr, COLUMNS: tl.constexpr):
    """Load one number for each channel, as a row; zeros beyond D channels."""
    if D % COLUMNS == 0:
        x = tl.load(pointer + columns)
    else:
        x = tl.load(pointer + columns, mask=columns < D, other=0.0)
    return x.to(tl.float32)[None, :]


@triton.jit
def store_columns(pointer, columns, value, D: tl.constexpr, COLUMNS: tl.constexpr):
    """Write one number for each channel from a row (1, COLUMNS)."""
    x = tl.reshape(value, [COLUMNS])
    if D % COLUMNS == 0:
        tl.store(pointer + columns, x)
    else:
        tl.store(pointer + columns, x, mask=columns < D)
