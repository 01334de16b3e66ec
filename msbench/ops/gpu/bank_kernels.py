"""A bank of nested causal filters on a GPU, and its gradients.

A warp filters 32 channels, one in each lane, over a span of time. It goes through the span in chunks of a few
steps, forward or, for gradients, in reverse, all levels one after the other in each chunk. What the filters
of a level reach outside of a chunk stays in registers, as a tuple of tiles that is carried from chunk to
chunk; a span begins with chunks that only fill it. So signals and gradients are read once, but for these
chunks, and low-pass signals never go through memory.

With a dilation every phase is a sequence of its own: steps and lags are counted in it, and only addresses are
multiplied. Levels are counted from 0, and level s has lags of 2^s. All tuples of tiles are ordered by time.
"""

import triton
import triton.language as tl

FORWARD_TENSORS = ("x", "taps", "bias", "streams", "low")
BACKWARD_TENSORS = ("g", "g_low", "x", "taps", "bias", "g_x", "parts")
"""Tensors of which a lane accesses one number at a time: their alignment needs no specialised kernel."""
INTEGERS = ("length", "span", "x_row", "x_step")


@triton.constexpr_function
def reach_of(s, B):
    """Return the steps that level s reaches back."""
    return (B.K - 1) * 2**s


@triton.constexpr_function
def reach_before(s, B):
    """Return the steps that the levels before s reach back together."""
    return (B.K - 1) * (2**s - 1)


@triton.constexpr_function
def ahead_of(s, B):
    """Return the steps that the input of level s is ahead of the gradients."""
    return (B.K - 1) * (2**B.LOWS - 2**s)


@triton.constexpr_function
def ahead_before(s, B):
    """Return the sum of `ahead_of` over the levels before s."""
    return (B.K - 1) * (s * 2**B.LOWS - 2**s + 1)


@triton.jit
def find_block(length, span, dilation, B: tl.constexpr):
    """Return the example, the phase and its steps, and the first and last step and channels of a program."""
    rest = tl.program_id(0) // B.BLOCKS
    spans = tl.cdiv(tl.cdiv(length, dilation), span)
    first = rest % spans * span
    phase = rest // spans % dilation
    row = (rest // spans // dilation).to(tl.int64)
    count = tl.cdiv(length - phase, dilation)
    channel = tl.program_id(0) % B.BLOCKS * B.WIDTH + tl.arange(0, B.WIDTH)
    return row, phase, count, first, tl.minimum(first + span, count), channel


@triton.jit
def load_taps(taps, channel, B: tl.constexpr):
    """Load the taps, by level, side and lag."""
    x = ()
    for i in tl.static_range(B.FILTERS * B.K):
        tap = tl.load(taps + (i * B.LAG + channel * B.ACROSS), mask=channel < B.D, other=0.0)
        x = x + (tap.to(tl.float32),)
    return x


@triton.jit
def load_bias(bias, channel, B: tl.constexpr):
    """Load the biases, by level and side; zeros if there are none."""
    x = ()
    for i in tl.static_range(B.FILTERS):
        if B.BIAS:
            x = x + (tl.load(bias + i * B.D + channel, mask=channel < B.D, other=0.0).to(tl.float32),)
        else:
            x = x + (tl.zeros([B.WIDTH], tl.float32),)
    return x


@triton.jit
def no_tiles(COUNT: tl.constexpr, B: tl.constexpr):
    """Return tiles of zeros."""
    x = ()
    for _ in tl.static_range(COUNT):
        x = x + (tl.zeros([B.WIDTH], tl.float32),)
    return x


@triton.jit
def load_chunk(pointer, step, t, count, channel, B: tl.constexpr):
    """Load the steps from t on; zeros before the first step and from `count` on."""
    x = ()
    for i in tl.static_range(B.STEPS):
        inside = (channel < B.D) & (t + i >= 0) & (t + i < count)
        x = x + (tl.load(pointer + i * step, mask=inside, other=0.0).to(tl.float32),)
    return x


@triton.jit
def taps_of(taps, s: tl.constexpr, side: tl.constexpr, B: tl.constexpr):
    """Return the taps of one filter."""
    return taps[(s * B.SIDES + side) * B.K : (s * B.SIDES + side + 1) * B.K]


@triton.jit
def filter_window(window, taps, bias, s: tl.constexpr, t, B: tl.constexpr):
    """Return the outputs of a filter of level s for a window that begins (K - 1) 2^s steps before them.

    The first of them is of step t. Before step 0 there is no signal and no bias.
    """
    y = ()
    for i in tl.static_range(B.STEPS):
        out = tl.where(t + i >= 0, bias, 0.0)
        for j in tl.static_range(B.K):
            out += taps[j] * window[(B.K - 1 - j) * 2**s + i]
        y = y + (out,)
    return y


@triton.jit
def filter_chunk(past, x, taps, bias, B: tl.constexpr):
    """Return the past of the next chunk, and the outputs of a chunk: all high-passes, then the last low-pass.

    The past of level s is the last (K - 1) 2^s values of its input.
    """
    after = ()
    out = ()
    for s in tl.static_range(B.LEVELS):
        window = past[reach_before(s, B) : reach_before(s + 1, B)] + x
        after = after + window[B.STEPS :]
        if B.SIDES == 2:
            out = out + filter_window(window, taps_of(taps, s, 1, B), bias[2 * s + 1], s, 0, B)
        x = filter_window(window, taps_of(taps, s, 0, B), bias[s * B.SIDES], s, 0, B)
    return after, out + x


# fmt: off
@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=FORWARD_TENSORS)
def bank_forward(x, taps, bias, streams, low, length, span, x_row, x_step, dilation, B: tl.constexpr):
    # fmt: on
    """Write the streams of some levels into `streams`, and the low-pass signal of the last one into `low`."""
    HIGHS: tl.constexpr = B.LEVELS * (B.SIDES - 1)
    row, phase, count, first, last, channel = find_block(length, span, dilation, B)
    weights, offsets = load_taps(taps, channel, B), load_bias(bias, channel, B)
    past = no_tiles(B.REACH, B)
    begin = tl.maximum(first - B.AROUND, 0)  # a sequence begins without a past
    step = x_step.to(tl.int64) * dilation
    p_x = x + row * x_row + (phase * x_step.to(tl.int64) + begin * step) + channel
    now = load_chunk(p_x, step, begin, count, channel, B)
    for t in range(begin, first, B.STEPS):
        p_x += B.STEPS * step
        following = load_chunk(p_x, step, t + B.STEPS, count, channel, B)
        past = filter_chunk(past, now, weights, offsets, B)[0]
        now = following
    at = row * length + (phase + first * dilation)
    p_out, p_low = streams + at * (B.M * B.D) + channel, low + at * B.LOW + B.LOW_AT + channel
    for t in range(first, last, B.STEPS):
        p_x += B.STEPS * step
        following = load_chunk(p_x, step, t + B.STEPS, last, channel, B)
        past, out = filter_chunk(past, now, weights, offsets, B)
        for i in tl.static_range(B.STEPS):
            inside = (channel < B.D) & (t + i < last)
            if B.SIGNAL:
                tl.store(p_out + i * dilation * (B.M * B.D), now[i], mask=inside)
            for s in tl.static_range(HIGHS):
                at_high = p_out + (i * dilation * (B.M * B.D) + (s + 1) * B.D)
                tl.store(at_high, out[s * B.STEPS + i], mask=inside)
            y = out[HIGHS * B.STEPS + i]
            if B.SILU:
                y = y * tl.sigmoid(y)
            tl.store(p_low + i * dilation * B.LOW, y, mask=inside)
        p_out += B.STEPS * dilation * (B.M * B.D)
        p_low += B.STEPS * dilation * B.LOW
        now = following


# fmt: off
@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=BACKWARD_TENSORS)
def bank_backward(
    g, g_low, x, taps, bias, g_x, parts, length, span, x_row, x_step, dilation, B: tl.constexpr,
):
    # fmt: on
    """Write the gradient of the input of some levels, and a program's part of those of taps and biases.

    `g` has the gradients of the streams, `g_low` that of the last low-pass signal. The inputs of all levels
    are computed again; since filters reach back, this runs ahead of the gradients.
    """
    row, phase, count, first, last, channel = find_block(length, span, dilation, B)
    weights, offsets = load_taps(taps, channel, B), load_bias(bias, channel, B)
    chunks = tl.cdiv(tl.maximum(last - first, 0), B.STEPS)
    t = first + chunks * B.STEPS + B.AROUND - B.STEPS
    at = row * length + phase + t.to(tl.int64) * dilation
    step = x_step.to(tl.int64) * dilation
    p_x = x + row * x_row + (phase * x_step.to(tl.int64) + (t - B.AHEAD) * step) + channel
    p_low = g_low + at * B.LOW + B.LOW_AT + channel
    pointers = p_x, g + at * (B.M * B.D) + channel, p_low, g_x + at * B.D + channel
    past, later, sums = no_tiles(B.PAST, B), no_tiles(B.REACH * B.SIDES, B), no_tiles(B.SUMS, B)
    now = load_gradients(pointers, step, dilation, t, count, channel, B)
    for _ in range(B.AROUND // B.STEPS):
        pointers = go_back(pointers, step, dilation, B)
        following = load_gradients(pointers, step, dilation, t - B.STEPS, count, channel, B)
        past, signals = recompute_lows(past, now, weights, offsets, t, B)
        later = reverse_chunk(later, now, signals, sums, weights, B)[0]
        now = following
        t -= B.STEPS
    for _ in range(chunks):
        p_signal, p_g_x = pointers[1], pointers[3]
        g_signal = no_tiles(B.STEPS, B)
        if B.SIGNAL:
            g_signal = load_chunk(p_signal, dilation * (B.M * B.D), t, last, channel, B)
        pointers = go_back(pointers, step, dilation, B)
        following = load_gradients(pointers, step, dilation, t - B.STEPS, count, channel, B)
        past, signals = recompute_lows(past, now, weights, offsets, t, B)
        later, g_input, sums = reverse_chunk(later, now, signals, sums, weights, B)
        for i in tl.static_range(B.STEPS):
            inside = (channel < B.D) & (t + i < last)
            tl.store(p_g_x + i * dilation * B.D, g_input[i] + g_signal[i], mask=inside)
        now = following
        t -= B.STEPS
    p_parts = parts + (tl.program_id(0) // B.BLOCKS).to(tl.int64) * (B.SUMS * B.D) + channel
    for i in tl.static_range(B.SUMS):
        tl.store(p_parts + i * B.D, sums[i], mask=channel < B.D)


@triton.jit
def go_back(pointers, step, dilation, B: tl.constexpr):
    """Return the pointers one chunk before."""
    p_x, p_g, p_low, p_g_x = pointers
    p_g -= B.STEPS * dilation * (B.M * B.D)
    return p_x - B.STEPS * step, p_g, p_low - B.STEPS * dilation * B.LOW, p_g_x - B.STEPS * dilation * B.D


@triton.jit
def load_gradients(pointers, step, dilation, t, count, channel, B: tl.constexpr):
    """Load the gradients of the high-pass streams and of the last low-pass from t on, and x AHEAD of them."""
    p_x, p_g, p_low = pointers[0], pointers[1], pointers[2]
    x = ()
    for s in tl.static_range(B.LEVELS * (B.SIDES - 1)):
        x = x + load_chunk(p_g + (s + 1) * B.D, dilation * (B.M * B.D), t, count, channel, B)
    x = x + load_chunk(p_low, dilation * B.LOW, t, count, channel, B)
    return x + load_chunk(p_x, step, t - B.AHEAD, count, channel, B)


@triton.jit
def recompute_lows(past, now, taps, bias, t, B: tl.constexpr):
    """Return the past of the chunk before, and from t on the inputs of all levels; with SILU, the output too.

    They are computed in steps ahead of t, and the past of a level has the steps from there to t.
    """
    x = now[B.LEVELS * (B.SIDES - 1) * B.STEPS + B.STEPS :]
    after = ()
    signals = ()
    for s in tl.static_range(B.LOWS + 1):
        window = x + past[ahead_before(s, B) : ahead_before(s + 1, B)]
        after = after + window[: ahead_of(s, B)]
        signals = signals + window[ahead_of(s, B) :]
        if s < B.LOWS:
            first = t - ahead_of(s + 1, B)
            x = filter_window(window, taps_of(taps, s, 0, B), bias[s * B.SIDES], s, first, B)
    return after, signals


@triton.jit
def reverse_chunk(later, now, signals, sums, taps, B: tl.constexpr):
    """Return the later gradients for the chunk before, the gradient of the input, and the sums.

    The later gradients of level s are the (K - 1) 2^s of its outputs that follow a chunk, side by side.
    """
    HIGHS: tl.constexpr = B.LEVELS * (B.SIDES - 1)
    g = now[HIGHS * B.STEPS : (HIGHS + 1) * B.STEPS]
    if B.SILU:
        g = through_silu(g, signals[B.LEVELS * B.STEPS :], B)
    after = ()
    of_taps = ()
    of_bias = ()
    for s in tl.static_range(B.LEVELS - 1, -1, -1):
        x = signals[s * B.STEPS : (s + 1) * B.STEPS]
        window = g + later[reach_before(s, B) * B.SIDES : reach_before(s, B) * B.SIDES + reach_of(s, B)]
        kept = window[: reach_of(s, B)]
        g = correlate_window(no_tiles(B.STEPS, B), window, taps_of(taps, s, 0, B), s, B)
        sums_of_level = sum_products(taps_of(sums, s, 0, B), x, window, s, B)
        totals = sum_window(sums, s, 0, window, B)
        if B.SIDES == 2:
            middle = later[reach_before(s, B) * 2 + reach_of(s, B) : reach_before(s + 1, B) * 2]
            window = now[s * B.STEPS : (s + 1) * B.STEPS] + middle
            kept = kept + window[: reach_of(s, B)]
            g = correlate_window(g, window, taps_of(taps, s, 1, B), s, B)
            sums_of_level = sums_of_level + sum_products(taps_of(sums, s, 1, B), x, window, s, B)
            totals = totals + sum_window(sums, s, 1, window, B)
        after = kept + after
        of_taps = sums_of_level + of_taps
        of_bias = totals + of_bias
    return after, g, of_taps + of_bias


@triton.jit
def through_silu(g, x, B: tl.constexpr):
    """Return the gradients of the inputs of SiLU."""
    out = ()
    for i in tl.static_range(B.STEPS):
        share = tl.sigmoid(x[i])
        out = out + (g[i] * share * (1.0 + x[i] * (1.0 - share)),)
    return out


@triton.jit
def correlate_window(start, window, taps, s: tl.constexpr, B: tl.constexpr):
    """Return `start` plus the transpose of `filter_window` for a window that begins with its outputs."""
    y = ()
    for i in tl.static_range(B.STEPS):
        out = start[i]
        for j in tl.static_range(B.K):
            out += taps[j] * window[j * 2**s + i]
        y = y + (out,)
    return y


@triton.jit
def sum_products(sums, x, window, s: tl.constexpr, B: tl.constexpr):
    """Return the sums for the taps of one filter, plus those of a chunk."""
    y = ()
    for j in tl.static_range(B.K):
        out = sums[j]
        for i in tl.static_range(B.STEPS):
            out += x[i] * window[j * 2**s + i]
        y = y + (out,)
    return y


@triton.jit
def sum_window(sums, s: tl.constexpr, side: tl.constexpr, window, B: tl.constexpr):
    """Return the sum for the bias of one filter, plus that of a chunk; nothing without biases."""
    y = ()
    if B.BIAS:
        out = sums[B.FILTERS * B.K + s * B.SIDES + side]
        for i in tl.static_range(B.STEPS):
            out += window[i]
        y = (out,)
    return y
