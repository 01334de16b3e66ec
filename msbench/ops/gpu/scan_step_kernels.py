"""The low-rank step sizes dt = softplus(W low + bias) of all streams, and their gradients.

A row is one stream at one step of one example. A program is one warp, which takes some channels of one
stream at many steps, so that W, and the sums of its gradients, stay in registers: lanes are along channels.
"""

import triton
import triton.language as tl

INTEGERS = ("steps", "low_stride", "tiles")
FORWARD_TENSORS = ("low", "weight", "bias", "dt")
BACKWARD_TENSORS = ("low", "weight", "bias", "g_dt", "g_low", "g_weight", "g_bias")


@triton.jit
def locate_program(S: tl.constexpr):
    """Return the stream of a program, its column of channels, its channels, and its number in the column."""
    stream = tl.program_id(0) % S.M
    column = tl.program_id(0) // S.M % S.COLUMNS
    channel = column * S.CHANNELS + tl.arange(0, S.CHANNELS)[None, :]
    return stream, column, channel, tl.program_id(0) // (S.M * S.COLUMNS)


@triton.jit
def load_maps(weight, stream, channel, S: tl.constexpr):
    """Load W of some channels of a stream: R tiles (1, CHANNELS)."""
    maps = ()
    for r in tl.static_range(S.R):
        at = (stream * S.D + channel) * S.R + r
        maps = maps + (tl.load(weight + at, mask=channel < S.D, other=0.0),)
    return maps


@triton.jit
def load_low(low, row, inside, low_stride, S: tl.constexpr):
    """Load low of some rows: R tiles (ROWS, 1)."""
    values = ()
    for r in tl.static_range(S.R):
        values = values + (tl.load(low + row * low_stride + r, mask=inside, other=0.0).to(tl.float32),)
    return values


@triton.jit
def project_steps(values, maps, bias, S: tl.constexpr):
    """Return the step sizes before the softplus, and exp(-|x|) of these."""
    x = bias
    for r in tl.static_range(S.R):
        x = x + values[r] * maps[r]
    return x, tl.exp2(tl.abs(x) * -1.4426950408889634)  # log2(e)


@triton.jit
def log1p_of_fraction(e):
    """Return log(1 + e) for e between 0 and 1, relatively right for any e: 2 artanh(e / (2 + e))."""
    s = e / (2.0 + e)
    q = s * s
    series = 1.0 / 13 + q * (1.0 / 15)
    series = 1.0 / 9 + q * (1.0 / 11 + q * series)
    series = 1.0 / 5 + q * (1.0 / 7 + q * series)
    return 2.0 * s * (1.0 + q * (1.0 / 3 + q * series))


@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=FORWARD_TENSORS)
def compute_steps(low, weight, bias, dt, steps, low_stride, tiles, S: tl.constexpr):
    """Write dt (steps, M, D)."""
    stream, _, channel, part = locate_program(S)
    maps = load_maps(weight, stream, channel, S)
    shift = tl.load(bias + stream * S.D + channel, mask=channel < S.D, other=0.0)
    for tile in range(tiles):
        step = (part * tiles + tile).to(tl.int64) * S.ROWS + tl.arange(0, S.ROWS)[:, None]
        row = step * S.M + stream
        values = load_low(low, row, step < steps, low_stride, S)
        x, e = project_steps(values, maps, shift, S)
        softplus = tl.maximum(x, 0.0) + log1p_of_fraction(e)
        tl.store(dt + row * S.D + channel, softplus, mask=(step < steps) & (channel < S.D))


@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=BACKWARD_TENSORS)
def compute_step_gradients(
    low, weight, bias, g_dt, g_low, g_weight, g_bias, steps, low_stride, tiles, S: tl.constexpr
):
    """Write a program's parts of the gradients of low, W and bias.

    The gradient of dt is (steps, M, GROUPS, D), to be summed over groups; parts are (COLUMNS, steps, M, R),
    (programs of a column, M, D, R) and (programs of a column, M, D). Without SUMS, in place of the first, the
    gradient before the softplus (steps, M, D), and no second.
    """
    stream, column, channel, part = locate_program(S)
    maps = load_maps(weight, stream, channel, S)
    shift = tl.load(bias + stream * S.D + channel, mask=channel < S.D, other=0.0)
    of_bias = tl.zeros([S.ROWS, S.CHANNELS], tl.float32)
    of_weight = ()
    for _ in tl.static_range(S.R if S.SUMS else 0):
        of_weight = of_weight + (tl.zeros([1, S.CHANNELS], tl.float32),)
    for tile in range(tiles):
        step = (part * tiles + tile).to(tl.int64) * S.ROWS + tl.arange(0, S.ROWS)[:, None]
        row = step * S.M + stream
        inside = (step < steps) & (channel < S.D)
        g = tl.load(g_dt + row * (S.GROUPS * S.D) + channel, mask=inside, other=0.0)
        for group in tl.static_range(1, S.GROUPS):
            g += tl.load(g_dt + row * (S.GROUPS * S.D) + group * S.D + channel, mask=inside, other=0.0)
        values = load_low(low, row, step < steps, low_stride, S)
        x, e = project_steps(values, maps, shift, S)
        g = g * tl.where(x > 0, 1.0, e) / (1.0 + e)
        of_bias += g
        at = (column.to(tl.int64) * steps + step) * (S.M * S.R) + stream * S.R
        if S.SUMS:
            sums = ()
            for r in tl.static_range(S.R):
                sums = sums + (of_weight[r] + tl.sum(g * values[r], axis=0, keep_dims=True),)
                tl.store(g_low + at + r, tl.sum(g * maps[r], axis=1, keep_dims=True), mask=step < steps)
            of_weight = sums
        else:
            tl.store(g_low + row * S.D + channel, g, mask=inside)
    at = (part * S.M + stream) * S.D + channel
    if S.SUMS:
        for r in tl.static_range(S.R):
            tl.store(g_weight + at * S.R + r, of_weight[r], mask=channel < S.D)
    tl.store(g_bias + at, tl.sum(of_bias, axis=0, keep_dims=True), mask=channel < S.D)
