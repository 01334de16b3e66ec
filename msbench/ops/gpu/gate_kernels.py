"""One array times an activation of another, in one pass forward and one backward."""

import triton
import triton.language as tl

from msbench.ops.gpu.tile_kernels import (
    count_left,
    find_columns,
    find_first_row,
    find_inside,
    load_tile,
    store_tile,
)


@triton.jit
def activate(z, KIND: tl.constexpr):
    """Return the activation and its derivative."""
    if KIND == "gelu":  # by tanh: z sigmoid(argument)
        square = z * z
        argument = 1.5957691216057308 * z * (1.0 + 0.044715 * square)
        slope = 1.5957691216057308 * (1.0 + 0.134145 * square)
    else:
        argument = z
        slope = 1.0
    small = tl.exp(-tl.abs(argument))  # no overflow
    near = 1.0 / (1.0 + small)
    share = tl.where(argument < 0, small * near, near)
    rest = tl.where(argument < 0, near, small * near)
    if KIND == "sigmoid":
        value, derivative = share, share * rest
    else:
        value, derivative = z * share, share + z * slope * share * rest
    return value, derivative


@triton.jit(do_not_specialize=("rows",))
def gate_forward(
    y,
    z,
    out,
    rows,
    y_stride,
    z_stride,
    KIND: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write y times the activation of z; rows of both are strided."""
    columns, first = find_columns(D, COLUMNS), find_first_row(ROWS, D, COLUMNS)
    inside = find_inside(count_left(first, rows, ROWS), columns, D, ROWS, COLUMNS)
    value = activate(load_tile(z + first * z_stride, z_stride, columns, inside, ROWS), KIND)[0]
    value *= load_tile(y + first * y_stride, y_stride, columns, inside, ROWS)
    store_tile(out + first * D, D, columns, inside, value, ROWS)


@triton.jit(do_not_specialize=("rows",))
def gate_backward(
    g,
    y,
    z,
    g_y,
    g_z,
    rows,
    y_stride,
    z_stride,
    KIND: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Write the gradients of y and z."""
    columns, first = find_columns(D, COLUMNS), find_first_row(ROWS, D, COLUMNS)
    inside = find_inside(count_left(first, rows, ROWS), columns, D, ROWS, COLUMNS)
    gradient = load_tile(g + first * D, D, columns, inside, ROWS)
    value, derivative = activate(load_tile(z + first * z_stride, z_stride, columns, inside, ROWS), KIND)
    derivative *= load_tile(y + first * y_stride, y_stride, columns, inside, ROWS)
    store_tile(g_y + first * D, D, columns, inside, gradient * value, ROWS)
    store_tile(g_z + first * D, D, columns, inside, gradient * derivative, ROWS)
