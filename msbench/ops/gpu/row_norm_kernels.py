"""Layer norm and RMS norm over the channels of each row, and times a mask, in one pass in each direction.

A tile has all channels of its rows: W is D rounded up to a power of two. The moments of a row are computed
anew in the backward, from the numbers in registers.
"""

import triton
import triton.language as tl

from msbench.ops.gpu.tile_kernels import (
    count_left,
    find_columns,
    find_first_row,
    find_inside,
    load_columns,
    load_rows,
    load_tile,
    store_columns,
    store_tile,
)


@triton.jit
def standardise(value, columns, epsilon, RMS: tl.constexpr, D: tl.constexpr):
    """Return rows without their mean (with RMS as they are) divided by their deviation, and its inverse."""
    if not RMS:
        value -= tl.sum(value, axis=1, keep_dims=True) / D
        value = tl.where((columns < D)[None, :], value, 0.0)
    inverse = tl.rsqrt(tl.sum(value * value, axis=1, keep_dims=True) / D + epsilon)
    return value * inverse, inverse


@triton.jit(do_not_specialize=("rows", "epsilon"))
def normalise_rows(
    x,
    mask,
    weight,
    bias,
    y,
    rows,
    epsilon,
    RMS: tl.constexpr,
    ZERO: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    W: tl.constexpr,
):
    """Write x (rows, D) normalised; with ZERO times the mask (rows,)."""
    columns, first = find_columns(D, W), find_first_row(ROWS, D, W)
    left = count_left(first, rows, ROWS)
    inside = find_inside(left, columns, D, ROWS, W)
    value = standardise(load_tile(x + first * D, D, columns, inside, ROWS), columns, epsilon, RMS, D)[0]
    value *= load_columns(weight, columns, D, W)
    if not RMS:
        value += load_columns(bias, columns, D, W)
    if ZERO:
        value *= load_rows(mask + first, left, ROWS)
    store_tile(y + first * D, D, columns, inside, value, ROWS)


@triton.jit(do_not_specialize=("rows", "tiles", "epsilon"))
def normalise_rows_backward(
    g,
    x,
    mask,
    weight,
    g_x,
    parts,
    rows,
    tiles,
    epsilon,
    RMS: tl.constexpr,
    ZERO: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    W: tl.constexpr,
):
    """Write the gradient of x, and of bias and weight the parts (chunks, 2, D) of a program's tiles."""
    columns, first = find_columns(D, W), find_first_row(tiles * ROWS, D, W)
    left = count_left(first, rows, tiles * ROWS)
    scale = load_columns(weight, columns, D, W)
    p_g, p_x, p_mask, p_g_x = g + first * D, x + first * D, mask + first, g_x + first * D
    total = tl.zeros([ROWS, W], tl.float32)
    product = tl.zeros([ROWS, W], tl.float32)
    for _ in range(tiles):
        inside = find_inside(left, columns, D, ROWS, W)
        gradient = load_tile(p_g, D, columns, inside, ROWS)
        if ZERO:
            gradient *= load_rows(p_mask, left, ROWS)
        value, inverse = standardise(load_tile(p_x, D, columns, inside, ROWS), columns, epsilon, RMS, D)
        total += gradient
        product += gradient * value
        gradient *= scale
        through = value * (tl.sum(gradient * value, axis=1, keep_dims=True) / D)
        if not RMS:
            through += tl.sum(gradient, axis=1, keep_dims=True) / D
        store_tile(p_g_x, D, columns, inside, (gradient - through) * inverse, ROWS)
        p_g += ROWS * D
        p_x += ROWS * D
        p_mask += ROWS
        p_g_x += ROWS * D
        left -= ROWS
    p_parts = parts + find_first_row(2, D, W) * D
    store_columns(p_parts, columns, tl.sum(total, axis=0, keep_dims=True), D, W)
    store_columns(p_parts + D, columns, tl.sum(product, axis=0, keep_dims=True), D, W)
