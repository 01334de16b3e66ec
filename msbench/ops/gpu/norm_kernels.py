"""Batch norm over the positions where a mask is 1, in two passes over x forward and two backward.

Moments are gathered as Welford does, for each row of a tile alone, with the numbers in registers: nothing is
the difference of large sums, and no program waits for another. They are merged in a fixed order (Chan et al.
1979): over the rows of a program, then over the programs.

``x``, ``g`` and ``y`` are (rows, D), ``mask`` is (rows,). ``count`` is at least 1.
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
def collapse(count, mean, m2):
    """Return count, mean and sum of squared deviations over all rows of a tile, from those of each row.

    Counts are (rows, 1) or (rows, columns). The mean is corrected by that of what it leaves over, which makes
    it right to the last bit or so even far from 0.
    """
    total = tl.sum(count, axis=0, keep_dims=True)
    share = count / tl.maximum(total, 1.0)
    middle = tl.sum(share * mean, axis=0, keep_dims=True)
    middle += tl.sum(share * (mean - middle), axis=0, keep_dims=True)
    apart = mean - middle
    return total, middle, tl.sum(m2 + count * apart * apart, axis=0, keep_dims=True)


@triton.jit(do_not_specialize=("rows", "tiles", "chunks"))
def gather_moments(
    x, mask, counts, parts, rows, tiles, chunks, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write count (chunks,), mean and sum of squared deviations (2, chunks, D) of `tiles` tiles each."""
    columns, first = find_columns(D, COLUMNS), find_first_row(tiles * ROWS, D, COLUMNS)
    left = count_left(first, rows, tiles * ROWS)
    p_x, p_mask = x + first * D, mask + first
    count = tl.zeros([ROWS, 1], tl.float32)
    mean = tl.zeros([ROWS, COLUMNS], tl.float32)
    m2 = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(tiles):
        value = load_tile(p_x, D, columns, find_inside(left, columns, D, ROWS, COLUMNS), ROWS)
        real = load_rows(p_mask, left, ROWS)
        count += real
        apart = value - mean
        mean += apart * (real / tl.maximum(count, 1.0))
        m2 += real * apart * (value - mean)
        p_x += ROWS * D
        p_mask += ROWS
        left -= ROWS
    count, mean, m2 = collapse(count, mean, m2)
    chunk = find_first_row(1, D, COLUMNS)
    store_columns(parts + chunk * D, columns, mean, D, COLUMNS)
    store_columns(parts + (chunks + chunk) * D, columns, m2, D, COLUMNS)
    tl.store(counts + chunk + tl.zeros([1, 1], tl.int32), count)  # the same from all blocks of channels


@triton.jit(do_not_specialize=("chunks",))
def merge_moments(
    counts, parts, mean, var, count, chunks, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write mean and biased variance (D,) and the count (1,) from those of chunks of rows."""
    columns, left = find_columns(D, COLUMNS), chunks
    p_counts, p_parts = counts, parts
    n = tl.zeros([ROWS, 1], tl.float32)
    middle = tl.zeros([ROWS, COLUMNS], tl.float32)
    m2 = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(tl.cdiv(chunks, ROWS)):
        inside = find_inside(left, columns, D, ROWS, COLUMNS)
        more = load_rows(p_counts, left, ROWS)
        apart = load_tile(p_parts, D, columns, inside, ROWS) - middle
        share = more / tl.maximum(n + more, 1.0)
        middle += apart * share
        m2 += load_tile(p_parts + chunks.to(tl.int64) * D, D, columns, inside, ROWS) + apart * apart * (
            n * share
        )
        n += more
        p_counts += ROWS
        p_parts += ROWS * D
        left -= ROWS
    n, middle, m2 = collapse(n, middle, m2)
    n = tl.maximum(n, 1.0)
    store_columns(mean, columns, middle, D, COLUMNS)
    store_columns(var, columns, m2 / n, D, COLUMNS)
    tl.store(count + tl.zeros([1, 1], tl.int32), n)


@triton.jit(do_not_specialize=("rows", "epsilon"))
def apply_moments(
    x,
    mask,
    weight,
    bias,
    mean,
    var,
    y,
    rows,
    epsilon,
    ZERO: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write x normalised by mean and variance; with ZERO times the mask."""
    columns, first = find_columns(D, COLUMNS), find_first_row(ROWS, D, COLUMNS)
    left = count_left(first, rows, ROWS)
    inside = find_inside(left, columns, D, ROWS, COLUMNS)
    middle, shift = load_columns(mean, columns, D, COLUMNS), load_columns(bias, columns, D, COLUMNS)
    scale = load_columns(weight, columns, D, COLUMNS) * tl.rsqrt(
        load_columns(var, columns, D, COLUMNS) + epsilon
    )
    value = (load_tile(x + first * D, D, columns, inside, ROWS) - middle) * scale + shift
    if ZERO:
        value *= load_rows(mask + first, left, ROWS)
    store_tile(y + first * D, D, columns, inside, value, ROWS)


@triton.jit(do_not_specialize=("rows", "tiles", "epsilon"))
def gather_gradients(
    g,
    x,
    mask,
    mean,
    var,
    parts,
    rows,
    tiles,
    epsilon,
    ZERO: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the sums of g, and of g times normalised x, (chunks, 2, D); with ZERO g is masked first."""
    columns, first = find_columns(D, COLUMNS), find_first_row(tiles * ROWS, D, COLUMNS)
    left = count_left(first, rows, tiles * ROWS)
    middle = load_columns(mean, columns, D, COLUMNS)
    p_g, p_x, p_mask = g + first * D, x + first * D, mask + first
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    product = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(tiles):
        inside = find_inside(left, columns, D, ROWS, COLUMNS)
        gradient = load_tile(p_g, D, columns, inside, ROWS)
        if ZERO:
            gradient *= load_rows(p_mask, left, ROWS)
        total += gradient
        product += gradient * (load_tile(p_x, D, columns, inside, ROWS) - middle)
        p_g += ROWS * D
        p_x += ROWS * D
        p_mask += ROWS
        left -= ROWS
    scale = tl.rsqrt(load_columns(var, columns, D, COLUMNS) + epsilon)
    p_parts = parts + find_first_row(2, D, COLUMNS) * D
    store_columns(p_parts, columns, tl.sum(total, axis=0, keep_dims=True), D, COLUMNS)
    store_columns(p_parts + D, columns, scale * tl.sum(product, axis=0, keep_dims=True), D, COLUMNS)


@triton.jit(do_not_specialize=("chunks",))
def merge_gradients(
    parts, g_bias, g_weight, chunks, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Write the sums (D,) over chunks of both parts of `gather_gradients`."""
    columns, left = find_columns(D, COLUMNS), chunks
    p_parts = parts
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    product = tl.zeros([ROWS, COLUMNS], tl.float32)
    for _ in range(tl.cdiv(chunks, ROWS)):
        inside = find_inside(left, columns, D, ROWS, COLUMNS)
        total += load_tile(p_parts, 2 * D, columns, inside, ROWS)
        product += load_tile(p_parts + D, 2 * D, columns, inside, ROWS)
        p_parts += ROWS * 2 * D
        left -= ROWS
    store_columns(g_bias, columns, tl.sum(total, axis=0, keep_dims=True), D, COLUMNS)
    store_columns(g_weight, columns, tl.sum(product, axis=0, keep_dims=True), D, COLUMNS)


@triton.jit(do_not_specialize=("rows", "epsilon"))
def apply_gradients(
    g,
    x,
    mask,
    weight,
    mean,
    var,
    count,
    g_weight,
    g_bias,
    g_x,
    rows,
    epsilon,
    ZERO: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the gradient of x, from those of weight and bias.

    Mean and variance depend on the real positions only; with ZERO only they have a gradient.
    """
    columns, first = find_columns(D, COLUMNS), find_first_row(ROWS, D, COLUMNS)
    left = count_left(first, rows, ROWS)
    inside = find_inside(left, columns, D, ROWS, COLUMNS)
    real = load_rows(mask + first, left, ROWS)
    gradient = load_tile(g + first * D, D, columns, inside, ROWS)
    if ZERO:
        gradient *= real
    scale = tl.rsqrt(load_columns(var, columns, D, COLUMNS) + epsilon)
    through_mean = load_columns(g_bias, columns, D, COLUMNS)
    through_var = load_columns(g_weight, columns, D, COLUMNS) * scale
    apart = load_tile(x + first * D, D, columns, inside, ROWS) - load_columns(mean, columns, D, COLUMNS)
    gradient -= real / tl.load(count) * (through_mean + apart * through_var)
    gradient *= load_columns(weight, columns, D, COLUMNS) * scale
    store_tile(g_x + first * D, D, columns, inside, gradient, ROWS)


@triton.jit(do_not_specialize=("momentum",))
def track_moments(
    running_mean, running_var, mean, var, count, momentum, D: tl.constexpr, COLUMNS: tl.constexpr
):
    """Move the running moments towards mean and unbiased variance, in place."""
    columns = find_columns(D, COLUMNS)
    n = tl.load(count)
    old_mean, old_var = (
        load_columns(running_mean, columns, D, COLUMNS),
        load_columns(running_var, columns, D, COLUMNS),
    )
    unbiased = load_columns(var, columns, D, COLUMNS) * (n / tl.maximum(n - 1.0, 1.0))
    new_mean = old_mean + momentum * (load_columns(mean, columns, D, COLUMNS) - old_mean)
    store_columns(running_mean, columns, new_mean, D, COLUMNS)
    store_columns(running_var, columns, old_var + momentum * (unbiased - old_var), D, COLUMNS)
