"""The backward of the scan on a GPU, from the tiles of one step to the loops over all.

A warp scans a block of channels, step after step, with states in registers. It is a grid of LN lanes of
states by LD lanes of channels, and a lane holds KN by K states of a stream. The tiles (J, K, LN, LD) of these
kernels are J times K registers per lane, every J a power of two: KN = 7 has tiles of 4, 2 and 1, `PIECES`. So
only n is padded, to a multiple of LN; inner products over n are sums in a lane and a few shuffles; and B and
C, which all channels share, are read once for K channels.

B and C come in pairs, as the halves of one 64-bit word (b, l, m, KN LN), so that one load reads both. All
sizes except the length are compile-time constants (`triton_shape.BackwardShape`), and so are addresses.
"""

import triton
import triton.language as tl

TENSORS = ("u", "dt", "A", "bc", "skip", "mix", "kept", "gy", "saved")
TENSORS += ("g_h", "g_u", "g_dt", "g_A", "g_bc", "g_skip")
"""Tensors accessed 4 or 8 bytes at a time, so that 16-byte alignment needs no specialised kernel."""
INTEGERS = ("length", "mix_stride", "first_example", "first_span", "last_span", "one")


@triton.jit
def low(pair):
    """Return the first float32 of a 64-bit word."""
    return (pair & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def high(pair):
    """Return the second float32 of a 64-bit word."""
    return (pair >> 32).to(tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def offsets(START: tl.constexpr, J: tl.constexpr, APART: tl.constexpr):
    """Return START .. START + J - 1, times APART, along the first axis of a tile."""
    if J == 1:
        j = START * APART
    else:
        j = (START * APART + tl.arange(0, J) * APART)[:, None, None, None]
    return j


@triton.jit
def channels(S: tl.constexpr):
    """Return the channels 0, LD, .. of a lane, along the second axis of a tile."""
    if S.K == 1:
        k = 0
    else:
        k = (tl.arange(0, S.K) * S.LD)[None, :, None, None]
    return k


@triton.jit
def lanes(one, S: tl.constexpr):
    """Return the number of each lane along n and along the channels, as tiles (1, 1, LN, LD).

    `one` is 1, but not known at compile time: if the compiler can see that lanes are contiguous in memory, it
    gives loads another order of lanes, and exchanges them through shared memory.
    """
    n = tl.broadcast_to(tl.arange(0, S.LN)[None, None, :, None], [1, 1, S.LN, S.LD])
    return n * one, tl.broadcast_to(tl.arange(0, S.LD)[None, None, None, :], [1, 1, S.LN, S.LD]) * one


@triton.jit
def load_channels(pointer, left, S: tl.constexpr):
    """Load channels (1, K, LN, LD), zeros after the last (`left`: number of channels from each lane on)."""
    if S.WHOLE:
        x = tl.load(pointer + channels(S))
    else:
        x = tl.load(pointer + channels(S), mask=left > channels(S), other=0.0)
    return x.to(tl.float32)


@triton.jit
def store_channels(pointer, x, left, S: tl.constexpr):
    """Write channels in the layout of `load_channels`."""
    if S.WHOLE:
        tl.store(pointer + channels(S), x)
    else:
        tl.store(pointer + channels(S), x, mask=left > channels(S))


@triton.jit
def load_skip(pointer, stream, left, S: tl.constexpr):
    """Load the skips of a stream for its first group of states; zeros for other groups."""
    return load_channels(pointer + stream // S.GROUPS * S.D, left, S) * (stream % S.GROUPS == 0)


@triton.jit
def rates_at(stream, lane_n, first, S: tl.constexpr):
    """Return where a group's decay rates are in A (m, d, n), and the number of states from each lane on."""
    start = stream % S.GROUPS * S.N + lane_n
    at = (stream // S.GROUPS * S.D + first) * S.STATES + start
    return at, tl.minimum(S.N - lane_n, S.STATES - start)


@triton.jit
def load_rates(pointer, left_n, left, S: tl.constexpr):
    """Load the pieces of a group's (d, n), zeros outside."""
    x = ()
    for p in tl.static_range(S.COUNT):
        inside = (left_n > offsets(S.STARTS[p], S.PIECES[p], S.LN)) & (left > channels(S))
        at = offsets(S.STARTS[p], S.PIECES[p], S.LN) + channels(S) * S.STATES
        x = x + (tl.load(pointer + at, mask=inside, other=0.0),)
    return x


@triton.jit
def load_decays(pointer, left_n, left, S: tl.constexpr):
    """Load the pieces of a group's A as exponents of two."""
    rates = load_rates(pointer, left_n, left, S)
    x = ()
    for p in tl.static_range(S.COUNT):
        x = x + (rates[p] * 1.4426950408889634,)  # log2(e)
    return x


@triton.jit
def store_rates(pointer, x, left_n, left, S: tl.constexpr):
    """Write pieces in the layout of `load_rates`."""
    for p in tl.static_range(S.COUNT):
        inside = (left_n > offsets(S.STARTS[p], S.PIECES[p], S.LN)) & (left > channels(S))
        at = offsets(S.STARTS[p], S.PIECES[p], S.LN) + channels(S) * S.STATES
        tl.store(pointer + at, x[p], mask=inside)


@triton.jit
def load_states(pointer, left_n, left, S: tl.constexpr):
    """Load the pieces of (n, d), zeros outside."""
    x = ()
    for p in tl.static_range(S.COUNT):
        inside = (left_n > offsets(S.STARTS[p], S.PIECES[p], S.LN)) & (left > channels(S))
        at = offsets(S.STARTS[p], S.PIECES[p], S.LN * S.D) + channels(S)
        x = x + (tl.load(pointer + at, mask=inside, other=0.0),)
    return x


@triton.jit
def store_states(pointer, x, left_n, left, S: tl.constexpr):
    """Write states in the layout of `load_states`."""
    for p in tl.static_range(S.COUNT):
        inside = (left_n > offsets(S.STARTS[p], S.PIECES[p], S.LN)) & (left > channels(S))
        at = offsets(S.STARTS[p], S.PIECES[p], S.LN * S.D) + channels(S)
        tl.store(pointer + at, x[p], mask=inside)


@triton.jit
def save(pointer, h, S: tl.constexpr):
    """Write states for `restore`."""
    for p in tl.static_range(S.COUNT):
        at = offsets(S.STARTS[p], S.PIECES[p], S.K * S.LN * S.LD) + channels(S) * S.LN
        tl.store(pointer + at, h[p])


@triton.jit
def restore(pointer, S: tl.constexpr):
    """Load the states written by `save`."""
    h = ()
    for p in tl.static_range(S.COUNT):
        at = offsets(S.STARTS[p], S.PIECES[p], S.K * S.LN * S.LD) + channels(S) * S.LN
        h = h + (tl.load(pointer + at),)
    return h


@triton.jit
def load_pairs(pointer, S: tl.constexpr):
    """Load B and C of one step, pieces (J, 1, LN, LD)."""
    x = ()
    for p in tl.static_range(S.COUNT):
        x = x + (tl.load(pointer + offsets(S.STARTS[p], S.PIECES[p], S.LN)),)
    return x


@triton.jit
def load_step(p_u, p_dt, p_bc, left, S: tl.constexpr):
    """Load one step of one stream: u, dt, the pieces of B and C."""
    return (load_channels(p_u, left, S), load_channels(p_dt, left, S)) + load_pairs(p_bc, S)


@triton.jit
def entering(x, S: tl.constexpr):
    """Return the input of the states in a loaded step: u times the step size, or u."""
    if S.SCALED:
        v = x[0] * x[1]
    else:
        v = x[0]
    return v


@triton.jit
def advance(h, decay, x, S: tl.constexpr):
    """Return decays and states after a loaded step."""
    v = entering(x, S)
    decays = ()
    states = ()
    for p in tl.static_range(S.COUNT):
        a = tl.exp2(x[1] * decay[p])
        decays = decays + (a,)
        states = states + (a * h[p] + low(x[2 + p]) * v,)
    return decays, states


@triton.jit
def over_lanes_of_n(x, S: tl.constexpr):
    """Return the sum of a tile (1, K, LN, LD) over the lanes of n, in all of them."""
    return tl.broadcast_to(tl.sum(x, axis=2, keep_dims=True), [1, S.K, S.LN, S.LD])


# fmt: off
@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=TENSORS)
def scan_backward(
    u, dt, A, bc, skip, mix, kept, gy, saved, g_h, g_u, g_dt, g_A, g_bc, g_skip,
    length, mix_stride, first_example, first_span, last_span, one, S: tl.constexpr,
):
    # fmt: on
    """Compute one stream's gradients of u and dt, and a program's part of those of A, B, C, mix and skip.

    Runs over spans of EVERY steps from `last_span` down to `first_span`, and continues the gradients of the
    states, of A and of skip from the launch for the later spans. Each span is recomputed, with the state
    before every STEPS steps written to `saved`, and then run in reverse, STEPS steps at a time.
    """
    SLOT: tl.constexpr = S.KN * S.K * S.LN * S.LD
    block = tl.program_id(0) % S.BLOCKS
    stream = tl.program_id(0) // S.BLOCKS % S.M
    example = (tl.program_id(0) // (S.BLOCKS * S.M)).to(tl.int64)
    row = first_example + example
    lane_n, lane = lanes(one, S)
    first = block * (S.LD * S.K) + lane
    left, left_n = S.D - first, S.N - lane_n

    states_at = (stream * S.N + lane_n) * S.D + first
    at_rates, left_rates = rates_at(stream, lane_n, first, S)
    decay = load_decays(A + at_rates, left_rates, left, S)
    p_g_h, p_g_A = g_h + row * (S.M * S.N * S.D) + states_at, g_A + row * (S.M_IN * S.D * S.STATES) + at_rates
    p_g_skip = g_skip + (row * S.M_IN + stream // S.GROUPS) * S.D + first
    left_carried = tl.where((last_span + 1) * S.EVERY < length, left, 0)  # nothing at an example's end
    carried = load_states(p_g_h, left_n, left_carried, S) + load_rates(p_g_A, left_rates, left_carried, S)
    skipped = tl.zeros([1, S.K, S.LN, S.LD], tl.float32)
    left_skip = left
    if S.SKIP:
        skipped = load_skip(skip + first, stream, left, S)
        left_skip = tl.where(stream % S.GROUPS == 0, left, 0)
        inside = tl.minimum(left_carried, left_skip) > channels(S)
        carried = carried + (tl.load(p_g_skip + channels(S), mask=inside, other=0.0),)

    start = first_span * S.EVERY
    steps = tl.minimum((last_span + 1) * S.EVERY, length) - start
    behind = row * length + start - example * steps  # `g_bc` has these steps of these examples only
    p_g_bc = g_bc + (stream * S.BLOCKS + block - behind * (S.M * S.BLOCKS)) * (2 * S.KN * S.LN + 2)
    stream_in = stream // S.GROUPS
    pointers = (
        u + stream_in * S.D + first,
        dt + stream_in * S.D + first,
        bc + stream * (S.KN * S.LN) + lane_n,
        mix + stream_in * mix_stride,
        gy + (0 if S.MIXED else stream_in * S.D) + first,
        g_u + stream * S.D + first,
        g_dt + stream * S.D + first,
        p_g_bc + lane_n * 0,
    )
    spans = tl.cdiv(length, S.EVERY)
    p_saved = saved + tl.program_id(0).to(tl.int64) * (S.SLOTS * SLOT) + lane_n * S.LD + lane
    for back in range(last_span + 1 - first_span):
        span = last_span - back
        h = load_states(kept + (row * spans + span) * (S.M * S.N * S.D) + states_at, left_n, left, S)
        bounds = (row * length, span * S.EVERY, tl.minimum((span + 1) * S.EVERY, length), mix_stride)
        carried = reverse_span(h, carried, decay, skipped, pointers, p_saved, bounds, left, lane_n, lane, S)
    store_states(p_g_h, carried[: S.COUNT], left_n, left, S)
    store_rates(p_g_A, carried[S.COUNT : 2 * S.COUNT], left_rates, left, S)
    if S.SKIP:
        tl.store(p_g_skip + channels(S), carried[2 * S.COUNT], mask=left_skip > channels(S))


@triton.jit
def reverse_span(
    h, carried, decay, skipped, pointers, p_saved, bounds, left, lane_n, lane, S: tl.constexpr
):
    """Run one span of steps forward from the state before it, and then in reverse."""
    SLOT: tl.constexpr = S.KN * S.K * S.LN * S.LD
    origin, start, stop, mix_stride = bounds
    full = (stop - start) // S.STEPS
    split = start + full * S.STEPS
    for i in range(full):
        save(p_saved + i * SLOT, h, S)
        here = at_step(pointers, origin + (start + i * S.STEPS), mix_stride, S)
        h = recompute_states(h, decay, here, left, S.STEPS, S)
    for i in range(stop - split):
        save(p_saved + (full + i) * SLOT, h, S)
        h = recompute_states(h, decay, at_step(pointers, origin + (split + i), mix_stride, S), left, 1, S)
    tl.debug_barrier()  # `save` and `restore` may give a tile to other lanes
    for i in range(stop - split):
        h = restore(p_saved + (full + (stop - split - 1 - i)) * SLOT, S)
        here = at_step(pointers, origin + (stop - 1 - i), mix_stride, S)
        carried = reverse(h, carried, decay, skipped, here, mix_stride, left, lane_n, lane, 1, S)
    for i in range(full):
        h = restore(p_saved + (full - 1 - i) * SLOT, S)
        here = at_step(pointers, origin + (split - (i + 1) * S.STEPS), mix_stride, S)
        carried = reverse(h, carried, decay, skipped, here, mix_stride, left, lane_n, lane, S.STEPS, S)
    tl.debug_barrier()
    return carried


@triton.jit
def at_step(pointers, step, mix_stride, S: tl.constexpr):
    """Return the pointers at a step, counted from the first step of the first example."""
    u, dt, bc, mix, gy, g_u, g_dt, g_bc = pointers
    at = step * S.M
    return (
        u + step * (S.M_IN * S.D),
        dt + step * (S.M_IN * S.D),
        bc + at * (S.KN * S.LN),
        mix + step * (S.M_IN * mix_stride),
        gy + step * (S.D if S.MIXED else S.M_IN * S.D),
        g_u + at * S.D,
        g_dt + at * S.D,
        g_bc + at * (S.BLOCKS * (2 * S.KN * S.LN + 2)),
    )


@triton.jit
def recompute_states(h, decay, pointers, left, STEPS: tl.constexpr, S: tl.constexpr):
    """Return the states after some steps."""
    p_u, p_dt, p_bc = pointers[0], pointers[1], pointers[2]
    for i in tl.static_range(STEPS):
        x = load_step(p_u + i * S.M_IN * S.D, p_dt + i * S.M_IN * S.D, p_bc + i * S.M * S.KN * S.LN, left, S)
        h = advance(h, decay, x, S)[1]
    return h


@triton.jit
def reverse(
    h, carried, decay, skipped, pointers, mix_stride, left, lane_n, lane, STEPS: tl.constexpr, S: tl.constexpr
):
    """Run some steps in reverse, from the states before them: write gradients, return the carried ones."""
    X: tl.constexpr = 2 + S.COUNT
    p_u, p_dt, p_bc, p_mix, p_gy, p_g_u, p_g_dt, p_g_bc = pointers
    decays = ()
    xs = ()
    for i in tl.static_range(STEPS):
        x = load_step(p_u + i * S.M_IN * S.D, p_dt + i * S.M_IN * S.D, p_bc + i * S.M * S.KN * S.LN, left, S)
        a, states = advance(h[i * S.COUNT : (i + 1) * S.COUNT], decay, x, S)
        h = h + states
        decays = decays + a
        xs = xs + x
    parts = ()
    gy, weight = load_gradient(p_gy, p_mix, STEPS - 1, mix_stride, left, S)
    pairs = load_pairs(p_bc + (STEPS - 1) * S.M * S.KN * S.LN, S)  # again: saves registers
    for i in tl.static_range(STEPS - 1, -1, -1):
        x = xs[i * X : i * X + 2] + pairs
        # One step ahead, because the compiler moves no load past the stores below.
        pairs = load_pairs(p_bc + (i - 1 if i > 0 else 0) * S.M * S.KN * S.LN, S)
        gy_next, weight_next = load_gradient(p_gy, p_mix, i - 1 if i > 0 else 0, mix_stride, left, S)
        before, after = h[i * S.COUNT : (i + 1) * S.COUNT], h[(i + 1) * S.COUNT : (i + 2) * S.COUNT]
        a = decays[i * S.COUNT : (i + 1) * S.COUNT]
        carried, one_step, g_v, g_dt = reverse_step(carried, before, after, a, decay, x, gy, lane, S)
        parts = one_step + parts
        g_u, g_dt = of_inputs(g_v, g_dt, x, S)
        if S.SKIP:
            g_skipped = gy
            if S.MIXED:
                g_skipped = gy * weight
                of_mix = tl.sum(tl.sum(skipped * x[0] * gy, axis=1, keep_dims=True), axis=3, keep_dims=True)
                at_mix = p_g_bc + (i * S.M * S.BLOCKS * (2 * S.KN * S.LN + 2) + 2 * S.KN * S.LN)
                tl.store(at_mix, tl.broadcast_to(of_mix, [1, 1, S.LN, S.LD]))
            g_u += skipped * g_skipped
            carried = carried[: 2 * S.COUNT] + (carried[2 * S.COUNT] + x[0] * g_skipped,)
        store_channels(p_g_u + i * S.M * S.D, g_u, left, S)
        store_channels(p_g_dt + i * S.M * S.D, g_dt, left, S)
        gy = gy_next
        weight = weight_next
    for p in tl.static_range(S.COUNT):
        store_parts(p_g_bc, parts[p :: S.COUNT], p, lane_n, lane, STEPS, S)
    return carried


@triton.jit
def load_gradient(p_gy, p_mix, i, mix_stride, left, S: tl.constexpr):
    """Return the gradient of the output at step i, and the weight of the stream."""
    gy = load_channels(p_gy + i * (S.D if S.MIXED else S.M_IN * S.D), left, S)
    weight = 1.0
    if S.MIXED and S.SKIP:
        weight = tl.load(p_mix + i * S.M_IN * mix_stride).to(tl.float32)
    return gy, weight


@triton.jit
def of_inputs(g_v, g_dt, x, S: tl.constexpr):
    """Return the gradients of u and dt from those of v and the exponents, still to sum over lanes of n."""
    g_v = over_lanes_of_n(g_v, S)
    g_dt = over_lanes_of_n(g_dt, S) * 0.6931471805599453  # log(2): decays are powers of two
    if S.SCALED:
        g_dt += g_v * x[0]
        g_v = g_v * x[1]
    return g_v, g_dt


@triton.jit
def reverse_step(carried, before, after, decays, decay, x, gy, lane, S: tl.constexpr):
    """Return carried gradients, parts of those of B and C, and those of v and dt not summed over lanes."""
    v = entering(x, S)
    g_states = ()
    g_decay = ()
    parts = ()
    g_v = tl.zeros([1, S.K, S.LN, S.LD], tl.float32)
    g_dt = tl.zeros([1, S.K, S.LN, S.LD], tl.float32)
    for p in tl.static_range(S.COUNT):
        g = carried[p] + high(x[2 + p]) * gy
        g_b = tl.sum(v * g, axis=1, keep_dims=True)
        g_c = tl.sum(gy * after[p], axis=1, keep_dims=True)
        parts = parts + fold((g_b, g_c), 2, 1, lane, S)
        g_v += tl.sum(low(x[2 + p]) * g, axis=0, keep_dims=True)
        g = decays[p] * g
        g_states = g_states + (g,)
        g = g * before[p]
        g_dt += tl.sum(decay[p] * g, axis=0, keep_dims=True)
        g_decay = g_decay + (carried[S.COUNT + p] + x[1] * g,)
    return g_states + g_decay + carried[2 * S.COUNT :], parts, g_v, g_dt


# Sums over the lanes of channels. Of two values a lane keeps one and sends the other, so that the sums of B
# and C of 4 steps over 8 lanes take 3.5 instructions per value instead of 6, with one result per lane.


@triton.jit
def fold(x, COUNT: tl.constexpr, BIT: tl.constexpr, lane, S: tl.constexpr):
    """Reduce COUNT tiles (J, 1, LN, LD) to half as many by sums over pairs of lanes that differ in BIT.

    The lane without BIT gets the sum of the first of two tiles, the lane with BIT that of the second.
    """
    out = ()
    if BIT >= S.LD:
        out = x
    else:
        odd = (lane & BIT) != 0
        other = tl.broadcast_to(lane ^ BIT, x[0].shape)
        for i in tl.static_range(COUNT // 2):
            sent = tl.gather(tl.where(odd, x[2 * i], x[2 * i + 1]), other, 3)
            out = out + (tl.where(odd, x[2 * i + 1], x[2 * i]) + sent,)
        if COUNT % 2 == 1:
            out = out + (x[COUNT - 1] + tl.gather(x[COUNT - 1], other, 3),)
    return out


@triton.jit
def store_parts(pointer, x, p: tl.constexpr, lane_n, lane, STEPS: tl.constexpr, S: tl.constexpr):
    """Write piece p of the gradients of B and C, already paired by `fold`, for some steps."""
    HALF: tl.constexpr = S.LD // 2
    STRIDE: tl.constexpr = S.M * S.BLOCKS * (2 * S.KN * S.LN + 2)
    x = fold(x, STEPS, 2, lane, S)
    x = fold(x, (STEPS + 1) // 2, 4, lane, S)
    x = fold(x, (STEPS + 3) // 4, 8, lane, S)
    x = fold(x, (STEPS + 7) // 8, 16, lane, S)
    at = lane // 2 * STRIDE + lane % 2 + 2 * lane_n
    for r in tl.static_range((STEPS + HALF - 1) // HALF):
        j = offsets(S.STARTS[p], S.PIECES[p], 2 * S.LN)
        if STEPS % HALF == 0:
            tl.store(pointer + at + r * HALF * STRIDE + j, x[r])
        else:
            inside = tl.broadcast_to(r * HALF + lane // 2 < STEPS, x[r].shape)
            tl.store(pointer + at + r * HALF * STRIDE + j, x[r], mask=inside)
