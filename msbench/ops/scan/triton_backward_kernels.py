"""The backward of the scan on a GPU, from the numbers of one step to the loops over all.

A warp scans blocks of channels of one group of states, one block after the other, with states in registers.
It is a grid of LN lanes of states by LD lanes of channels, lane LD n + d; a lane holds KN states of K
channels, each in a tile of 32 numbers, one per lane. KN is a power of two, and n is padded to KN LN; sums
over n are sums in a lane and a few shuffles; and B and C, which all channels share, are read once for K
channels.

Steps come in blocks of 4. What a channel has one number of at each step is spread over the lanes of states:
of the lane's own step and channel it loads u, dt and the gradient of y, hands them out by shuffles, gets the
sums over states of its own step, and writes the gradients. SPREAD tiles hold all K channels. A block that
ends after the last step has zeros there, which change no state and no sum.

B and C come in pairs, see `msbench.ops.gpu.scan_packing_kernels`, and so do their gradients. All sizes except
the length are constants at compile time (`triton_shape.BackwardShape`), and so are addresses.
"""

import os

import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
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
def exchange(x, BIT: tl.constexpr):
    """Return what the lane that differs in BIT has. A gather of Triton needs a register for each BIT."""
    if INTERPRETED:
        y = tl.gather(x, tl.arange(0, 32) ^ BIT, 0)
    else:
        y = tl.inline_asm_elementwise(
            "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;", "=f,f,r", [x, BIT], tl.float32, True, 1
        )
    return y


@triton.jit
def take(x, n: tl.constexpr, S: tl.constexpr):
    """Return what lane n of the states has, of the same lane of channels."""
    if INTERPRETED:
        y = tl.gather(x, tl.arange(0, 32) % S.LD + n * S.LD, 0)
    else:
        SEGMENTS: tl.constexpr = (S.LD - 1) * 256 + 31
        y = tl.inline_asm_elementwise(
            "shfl.sync.idx.b32 $0, $1, $2, $3, 0xffffffff;",
            "=f,f,r,r",
            [x, n * S.LD, SEGMENTS],
            tl.float32,
            True,
            1,
        )
    return y


@triton.jit
def find_lanes(one, S: tl.constexpr):
    """Return the number of each lane along n, and along the channels.

    `one` is 1, but not known at compile time: if the compiler can see that lanes are contiguous in memory, it
    gives loads another order of lanes, and exchanges them through shared memory.
    """
    lane = tl.arange(0, 32)
    return lane // S.LD * one, lane % S.LD * one


@triton.jit
def find_state(s: tl.constexpr, lane_n, lane_d, S: tl.constexpr):
    """Return the state of each lane in its tile number s.

    Lane d of the channels has state s ^ d (the last bits of d) of those of its lane of n: then two lanes that
    exchange states for a sum need not select what to send.
    """
    return ((lane_d & (S.KN - 1)) ^ s) * S.LN + lane_n


@triton.jit
def load_states(
    pointer, n_stride: tl.constexpr, d_stride: tl.constexpr, lane_n, lane_d, left_n, left, S: tl.constexpr
):
    """Load the states of a lane, channel by channel for each tile of states; zeros outside."""
    x = ()
    for s in tl.static_range(S.KN):
        n = find_state(s, lane_n, lane_d, S)
        for k in tl.static_range(S.K):
            d = lane_d + k * S.LD
            inside = (n < left_n) & (d < left)
            x = x + (tl.load(pointer + n * n_stride + d * d_stride, mask=inside, other=0.0),)
    return x


@triton.jit
def store_states(
    pointer, x, n_stride: tl.constexpr, d_stride: tl.constexpr, lane_n, lane_d, left_n, left, S: tl.constexpr
):
    """Write states in the layout of `load_states`."""
    for s in tl.static_range(S.KN):
        n = find_state(s, lane_n, lane_d, S)
        for k in tl.static_range(S.K):
            d = lane_d + k * S.LD
            tl.store(pointer + n * n_stride + d * d_stride, x[s * S.K + k], mask=(n < left_n) & (d < left))


@triton.jit
def load_decays(pointer, lane_n, lane_d, left_n, left, S: tl.constexpr):
    """Load a group's A as exponents of two."""
    rates = load_states(pointer, 1, S.STATES, lane_n, lane_d, left_n, left, S)
    x = ()
    for i in tl.static_range(S.KN * S.K):
        x = x + (rates[i] * 1.4426950408889634,)  # log2(e)
    return x


@triton.jit
def load_pairs(pointer, lane_n, lane_d, S: tl.constexpr):
    """Load B and C of one step."""
    x = ()
    for s in tl.static_range(S.KN):
        x = x + (tl.load(pointer + find_state(s, lane_n, lane_d, S)),)
    return x


# What is spread over lanes of states: lane n has step n % 4 of its own channel.


@triton.jit
def own_channel(r: tl.constexpr, lane_n, lane_d, S: tl.constexpr):
    """Return the channel of each lane in spread tile r."""
    return lane_d + (lane_n // 4 + r * (S.LN // 4)) * S.LD


@triton.jit
def load_spread(pointer, step, steps, lane_n, lane_d, left, S: tl.constexpr):
    """Load the numbers of each lane's own step and channels; zeros after the last."""
    x = ()
    for r in tl.static_range(S.SPREAD):
        d = own_channel(r, lane_n, lane_d, S)
        x = x + (tl.load(pointer + d, mask=(step < steps) & (d < left), other=0.0).to(tl.float32),)
    return x


@triton.jit
def store_spread(pointer, x, step, steps, lane_n, lane_d, left, S: tl.constexpr):
    """Write the numbers of each lane's own step and channels."""
    for r in tl.static_range(S.SPREAD):
        d = own_channel(r, lane_n, lane_d, S)
        tl.store(pointer + d, x[r], mask=(step < steps) & (d < left))


@triton.jit
def multiply_spread(x, y, S: tl.constexpr):
    """Return the products of two spread values."""
    z = ()
    for r in tl.static_range(S.SPREAD):
        z = z + (x[r] * y[r],)
    return z


@triton.jit
def hand_out(x, i: tl.constexpr, S: tl.constexpr):
    """Return in all lanes of states what the lanes of step i have, channel by channel."""
    y = ()
    for k in tl.static_range(S.K):
        y = y + (take(x[k // (S.LN // 4)], i + k % (S.LN // 4) * 4, S),)
    return y


@triton.jit
def fold(x, y, BIT: tl.constexpr):
    """Return sums over pairs of lanes that differ in BIT: of x in the lane without it, of y in that with it.

    Of two values a lane keeps one and sends the other: sums of four values over four lanes take three
    shuffles instead of eight, with one result per lane.
    """
    odd = (tl.arange(0, 32) & BIT) != 0
    return tl.where(odd, y, x) + exchange(tl.where(odd, x, y), BIT)


@triton.jit
def fold_channels(x, y, BIT: tl.constexpr, S: tl.constexpr):
    """Return the `fold` of two values of each channel."""
    z = ()
    for k in tl.static_range(S.K):
        z = z + (fold(x[k], y[k], BIT),)
    return z


@triton.jit
def spread(x, S: tl.constexpr):
    """Return as spread values the sums that are folded by steps."""
    y = ()
    for r in tl.static_range(S.SPREAD):
        if S.LN == 8:
            y = y + (fold(x[2 * r], x[2 * r + 1], 4 * S.LD),)
        else:
            y = y + (x[r],)
    return y


@triton.jit
def unite(x, FROM: tl.constexpr, UNTIL: tl.constexpr):
    """Return x plus its values in the lanes that differ in the bits FROM, 2 FROM, .. before UNTIL."""
    if FROM < UNTIL:
        x = unite(x + exchange(x, FROM), FROM * 2, UNTIL)
    return x


@triton.jit
def advance(h, decay, dt, v, pairs, S: tl.constexpr):
    """Return the states after a step."""
    states = ()
    for s in tl.static_range(S.KN):
        for k in tl.static_range(S.K):
            a = tl.exp2(dt[k] * decay[s * S.K + k])
            states = states + (a * h[s * S.K + k] + low(pairs[s]) * v[k],)
    return states


# fmt: off
@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=TENSORS)
def scan_backward(
    u, dt, A, bc, skip, mix, kept, gy, saved, g_h, g_u, g_dt, g_A, g_bc, g_skip,
    length, mix_stride, first_example, first_span, last_span, one, S: tl.constexpr,
):
    # fmt: on
    """Compute one group's gradients of u and dt, and a program's part of those of A, B, C, mix and skip.

    Runs over spans of EVERY steps from `last_span` down to `first_span`, and continues the gradients of the
    states, of A and of skip from the launch for the later spans. Each span is recomputed, with the state
    before every block of steps written to `saved`, and then run in reverse, block by block. Does so for one
    block of channels after the other, and adds to the parts of B, C and mix what the blocks before wrote.
    """
    blocks = tl.cdiv(S.D, S.LD * S.K)
    here = first_example, first_span, last_span, length, mix_stride, one
    # From `one - 1`, so that the compiler does not know that turn is not negative.
    for turn in range(one - 1, tl.minimum(S.TURNS, blocks - tl.program_id(0) % S.BLOCKS * S.TURNS)):
        scan_block(u, dt, A, bc, skip, mix, kept, gy, saved, g_h, g_u, g_dt, g_A, g_bc, g_skip, here, turn, S)


@triton.jit
def find_block(first_example, turn, one, zero, S: tl.constexpr):
    """Return which channels of which group, stream, example and row a program has, and its lanes of them.

    `zero` is 0, but not known at compile time: it lets the compiler compute addresses where they are used,
    instead of keeping them in registers over loops.
    """
    program = tl.program_id(0) + zero
    group = program // S.BLOCKS % S.M
    example = (program // (S.BLOCKS * S.M)).to(tl.int64)
    block = (program % S.BLOCKS * S.TURNS + turn) * (S.LD * S.K)
    lane_n, lane_d = find_lanes(one + zero, S)
    left, left_n = S.D - block, tl.minimum(S.N, S.STATES - group % S.GROUPS * S.N)
    return program, group, example, first_example + example, block, lane_n, lane_d, left, left_n


@triton.jit
def find_rates(group, block, S: tl.constexpr):
    """Return where the rates of the channels of a group are."""
    return (group // S.GROUPS * S.D + block) * S.STATES + group % S.GROUPS * S.N


# fmt: off
@triton.jit
def scan_block(
    u, dt, A, bc, skip, mix, kept, gy, saved, g_h, g_u, g_dt, g_A, g_bc, g_skip, here, turn, S: tl.constexpr
):
    # fmt: on
    """Compute the gradients of one block of channels of a program, number `turn`."""
    first_example, first_span, last_span, length, mix_stride, one = here
    start = first_span * S.EVERY
    steps = tl.minimum((last_span + 1) * S.EVERY, length) - start
    found = find_block(first_example, turn, one, tl.minimum(turn, 0), S)
    _, group, _, row, block, lane_n, lane_d, left, left_n = found
    stream = group // S.GROUPS
    rates = find_rates(group, block, S)
    decay = load_decays(A + rates, lane_n, lane_d, left_n, left, S)
    left_carried = tl.where((last_span + 1) * S.EVERY < length, left, 0)  # nothing at an example's end
    p_g_h = g_h + (row * S.M + group) * (S.N * S.D) + block
    g_states = load_states(p_g_h, S.D, 1, lane_n, lane_d, left_n, left_carried, S)
    p_g_A = g_A + row * (S.M_IN * S.D * S.STATES) + rates
    g_decay = load_states(p_g_A, 1, S.STATES, lane_n, lane_d, left_n, left_carried, S)
    skips = ()
    of_skip = ()
    if S.SKIP:
        once = tl.where(group % S.GROUPS == 0, 1, 0)  # for the first group of a stream
        skips = load_spread(skip + stream * S.D + block, 0, once, lane_n, lane_d, left, S)
        p_g_skip = g_skip + (row * S.M_IN + stream) * S.D + block
        of_skip = load_spread(p_g_skip, lane_n % 4, once, lane_n, lane_d, left_carried, S)

    for back in range(last_span + 1 - first_span):
        span = last_span - back
        begin, stop = span * S.EVERY, tl.minimum((span + 1) * S.EVERY, length)
        found = find_block(first_example, turn, one, tl.minimum(span, 0), S)
        program, group, example, row, block, lane_n, lane_d, left, left_n = found
        stream = group // S.GROUPS
        at = (row * length * S.M_IN + stream) * S.D + block
        inputs = (
            u + at,
            dt + at,
            gy + (row * length * S.D + block if S.MIXED else at),
            mix + (row * length * S.M_IN + stream) * mix_stride,
            bc + (row * (tl.cdiv(length, 4) * 4) * S.M + group) * (S.KN * S.LN),
        )
        at = (row * length * S.M + group) * S.D + block
        # `g_bc` has these steps of these examples only.
        at_parts = ((example * steps - start) * S.M + group) * S.BLOCKS + program % S.BLOCKS
        outputs = g_u + at, g_dt + at, g_bc + at_parts * (S.N + 1)
        p_saved = saved + program.to(tl.int64) * (S.SLOTS * S.KN * S.K * 32)
        p_kept = kept + ((row * tl.cdiv(length, S.EVERY) + span) * S.M + group) * (S.N * S.D) + block
        h = load_states(p_kept, S.D, 1, lane_n, lane_d, left_n, left, S)
        repeat_span(h, decay, inputs, p_saved, begin, stop, lane_n, lane_d, left, S)
        bounds = begin, stop, turn, mix_stride, one
        carried = reverse_span(
            *(g_states, g_decay, of_skip, decay, skips),
            *(inputs, outputs, p_saved, bounds, lane_n, lane_d, left, S),
        )
        g_states, g_decay, of_steps = carried
        of_skip = ()
        for r in tl.static_range(S.SPREAD if S.SKIP else 0):
            # After each span, so that results do not depend on the spans of a launch.
            of_skip = of_skip + (tl.where(lane_n % 4 == 0, unite(of_steps[r], S.LD, 4 * S.LD), 0.0),)

    found = find_block(first_example, turn, one, tl.minimum(last_span + turn, 0), S)
    _, group, _, row, block, lane_n, lane_d, left, left_n = found
    p_g_h = g_h + (row * S.M + group) * (S.N * S.D) + block
    store_states(p_g_h, g_states, S.D, 1, lane_n, lane_d, left_n, left, S)
    p_g_A = g_A + row * (S.M_IN * S.D * S.STATES) + find_rates(group, block, S)
    store_states(p_g_A, g_decay, 1, S.STATES, lane_n, lane_d, left_n, left, S)
    if S.SKIP:
        once = tl.where(group % S.GROUPS == 0, 1, 0)
        p_g_skip = g_skip + (row * S.M_IN + group // S.GROUPS) * S.D + block
        store_spread(p_g_skip, of_skip, lane_n % 4, once, lane_n, lane_d, left, S)


@triton.jit
def repeat_span(h, decay, inputs, p_saved, begin, stop, lane_n, lane_d, left, S: tl.constexpr):
    """Run a span from the state before it, and write the state before every block."""
    own = lane_n % 4
    at = own * (S.M_IN * S.D)
    far = begin.to(tl.int64)
    p_u, p_dt = inputs[0] + far * (S.M_IN * S.D), inputs[1] + far * (S.M_IN * S.D)
    p_bc = inputs[4] + far * (S.M * S.KN * S.LN)
    now_u = load_spread(p_u + at, own, stop - begin, lane_n, lane_d, left, S)
    now_dt = load_spread(p_dt + at, own, stop - begin, lane_n, lane_d, left, S)
    pairs = load_block(p_bc, lane_n, lane_d, S)
    for step in range(begin, stop, 4):
        p_u += 4 * S.M_IN * S.D
        p_dt += 4 * S.M_IN * S.D
        p_bc += 4 * S.M * S.KN * S.LN
        next_u = load_spread(p_u + at, own, stop - step - 4, lane_n, lane_d, left, S)
        next_dt = load_spread(p_dt + at, own, stop - step - 4, lane_n, lane_d, left, S)
        for i in tl.static_range(S.KN * S.K):
            tl.store(p_saved + i * 32 + (lane_n * S.LD + lane_d), h[i])
        v = now_u
        if S.SCALED:
            v = multiply_spread(now_u, now_dt, S)
        following = ()
        for i in tl.static_range(4):
            here = pairs[i * S.KN : (i + 1) * S.KN]
            h = advance(h, decay, hand_out(now_dt, i, S), hand_out(v, i, S), here, S)
            following = following + load_pairs(p_bc + i * (S.M * S.KN * S.LN), lane_n, lane_d, S)
        now_u, now_dt, pairs = next_u, next_dt, following
        p_saved += S.KN * S.K * 32


@triton.jit
def load_saved(pointer, lane_n, lane_d, S: tl.constexpr):
    """Load the state before a block."""
    h = ()
    for i in tl.static_range(S.KN * S.K):
        h = h + (tl.load(pointer + i * 32 + (lane_n * S.LD + lane_d)),)
    return h


@triton.jit
def load_block(pointer, lane_n, lane_d, S: tl.constexpr):
    """Load B and C of a block of steps."""
    x = ()
    for i in tl.static_range(4):
        x = x + load_pairs(pointer + i * (S.M * S.KN * S.LN), lane_n, lane_d, S)
    return x


@triton.jit
def load_inputs(pointers, step, stop, mix_stride, lane_n, lane_d, left, S: tl.constexpr):
    """Load u, dt, the gradient of y and the weight of the stream at the steps of the lanes."""
    p_u, p_dt, p_gy, p_mix = pointers[0], pointers[1], pointers[2], pointers[3]
    OF_Y: tl.constexpr = S.D if S.MIXED else S.M_IN * S.D
    far, own = step.to(tl.int64), lane_n % 4
    at = own * (S.M_IN * S.D)
    weight = tl.full([32], 1.0, tl.float32)
    if S.MIXED and S.SKIP:
        p_mix += far * (S.M_IN * mix_stride)
        p_mix += own * (S.M_IN * mix_stride)
        weight = tl.load(p_mix, mask=own < stop - step, other=0.0).to(tl.float32)
    return (
        load_spread(p_u + far * (S.M_IN * S.D) + at, own, stop - step, lane_n, lane_d, left, S),
        load_spread(p_dt + far * (S.M_IN * S.D) + at, own, stop - step, lane_n, lane_d, left, S),
        load_spread(p_gy + far * OF_Y + own * OF_Y, own, stop - step, lane_n, lane_d, left, S),
        weight,
    )


@triton.jit
def reverse_span(
    g_states,
    g_decay,
    of_skip,
    decay,
    skips,
    inputs,
    outputs,
    p_saved,
    bounds,
    lane_n,
    lane_d,
    left,
    S: tl.constexpr,
):
    """Run a span in reverse from the saved states: write gradients, return the carried ones."""
    COUNT: tl.constexpr = S.KN * S.K
    STRIDE: tl.constexpr = S.M * S.BLOCKS * (S.N + 1)
    begin, stop, turn, mix_stride, one = bounds
    own = lane_n % 4
    blocks = tl.cdiv(stop - begin, 4)
    step = begin + (blocks - 1) * 4
    p_saved += (blocks - 1) * (COUNT * 32)
    p_g_u, p_g_dt, p_parts = outputs
    now = load_inputs(inputs, step, stop, mix_stride, lane_n, lane_d, left, S)
    for _ in range(blocks):
        u, dt, gy, weight = now
        here = step
        far = step.to(tl.int64)
        p_bc = inputs[4] + far * (S.M * S.KN * S.LN)
        v = u
        if S.SCALED:
            v = multiply_spread(u, dt, S)
        h = load_saved(p_saved, lane_n, lane_d, S)
        for i in tl.static_range(4):
            pairs = load_pairs(p_bc + i * (S.M * S.KN * S.LN), lane_n, lane_d, S)
            of_step = hand_out(dt, i, S), hand_out(v, i, S)
            h = h + advance(h[i * COUNT : (i + 1) * COUNT], decay, of_step[0], of_step[1], pairs, S)
        step -= 4
        p_saved -= tl.where(step < begin, 0, COUNT * 32)
        # The compiler takes these for other values, and keeps no step sizes and pairs in registers.
        again_dt = ()
        for r in tl.static_range(S.SPREAD):
            again_dt = again_dt + (dt[r] * one.to(tl.float32),)
        p_bc += one - 1
        for i in tl.static_range(3, -1, -1):
            p_part = p_parts + (far + i) * STRIDE
            earlier = load_part(p_part, lane_n, lane_d, here + i < stop, turn, S)
            if i < 3:
                pairs = load_pairs(p_bc + i * (S.M * S.KN * S.LN), lane_n, lane_d, S)
            if i == 0:
                now = load_inputs(inputs, tl.maximum(step, begin), stop, mix_stride, lane_n, lane_d, left, S)
            of_step = hand_out(gy, i, S), hand_out(again_dt, i, S), hand_out(v, i, S)
            g_states, g_decay, g_v, g_dt, g_b, g_c = reverse_step(
                g_states,
                g_decay,
                h[i * COUNT : (i + 1) * COUNT],
                h[(i + 1) * COUNT : (i + 2) * COUNT],
                decay,
                of_step,
                pairs,
                S,
            )
            store_part(p_part, g_b, g_c, earlier, lane_n, lane_d, here + i < stop, S)
            if i % 2 == 1:
                of_odd = g_v, g_dt
            elif i == 2:
                of_last = fold_channels(g_v, of_odd[0], S.LD, S), fold_channels(g_dt, of_odd[1], S.LD, S)
            else:
                x, z = fold_channels(g_v, of_odd[0], S.LD, S), fold_channels(g_dt, of_odd[1], S.LD, S)
                g_v = spread(fold_channels(x, of_last[0], 2 * S.LD, S), S)
                g_dt = spread(fold_channels(z, of_last[1], 2 * S.LD, S), S)
        of_u = ()
        of_dt = ()
        of_mix = tl.zeros([32], tl.float32)
        of_skips = ()
        for r in tl.static_range(S.SPREAD):
            x, z = g_v[r], g_dt[r] * 0.6931471805599453  # log(2): decays are powers of two
            if S.SCALED:
                z += x * u[r]
                x = x * dt[r]
            if S.SKIP:
                g_skipped = gy[r] * weight
                x += skips[r] * g_skipped
                of_skips = of_skips + (of_skip[r] + u[r] * g_skipped,)
                of_mix += skips[r] * u[r] * gy[r]
            of_u = of_u + (x,)
            of_dt = of_dt + (z,)
        of_skip = of_skips
        if S.MIXED and S.SKIP:
            of_mix = unite(unite(of_mix, 1, S.LD), 4 * S.LD, 32)
            p_of_mix = p_parts + (far + own) * STRIDE + S.N
            inside = (lane_d == 0) & (lane_n < tl.minimum(4, stop - here))
            if S.TURNS > 1:
                of_mix += low(tl.load(p_of_mix, mask=inside & (turn > 0), other=0))
            tl.store(p_of_mix, of_mix.to(tl.uint32, bitcast=True).to(tl.int64), mask=inside)
        at = own * (S.M * S.D)
        store_spread(p_g_u + far * (S.M * S.D) + at, of_u, own, stop - here, lane_n, lane_d, left, S)
        store_spread(p_g_dt + far * (S.M * S.D) + at, of_dt, own, stop - here, lane_n, lane_d, left, S)
    return g_states, g_decay, of_skip


@triton.jit
def reverse_step(g_states, g_decay, before, after, decay, of_step, pairs, S: tl.constexpr):
    """Return carried gradients, and sums over the states or channels of a lane of those of v, dt, B and C."""
    gy, dt, v = of_step
    carried = ()
    sums = ()
    g_b = ()
    g_c = ()
    g_v = ()
    g_dt = ()
    for s in tl.static_range(S.KN):
        for k in tl.static_range(S.K):
            g = g_states[s * S.K + k] + high(pairs[s]) * gy[k]
            x, z = v[k] * g, gy[k] * after[s * S.K + k]
            if k > 0:
                x, z = x + g_b[s], z + g_c[s]
                g_b, g_c = g_b[:s] + (x,), g_c[:s] + (z,)
            else:
                g_b, g_c = g_b + (x,), g_c + (z,)
            x, g = low(pairs[s]) * g, tl.exp2(dt[k] * decay[s * S.K + k]) * g
            carried = carried + (g,)
            g = g * before[s * S.K + k]
            z = decay[s * S.K + k] * g
            sums = sums + (g_decay[s * S.K + k] + dt[k] * g,)
            if s > 0:
                g_v = g_v[:k] + (g_v[k] + x,) + g_v[k + 1 :]
                g_dt = g_dt[:k] + (g_dt[k] + z,) + g_dt[k + 1 :]
            else:
                g_v, g_dt = g_v + (x,), g_dt + (z,)
    return carried, sums, g_v, g_dt, g_b, g_c


@triton.jit
def add_swapped(x, BIT: tl.constexpr, S: tl.constexpr):
    """Return the sum over lanes of channels of the state that the lane has in its first tile."""
    if BIT < S.KN:
        y = ()
        for s in tl.static_range(S.KN // BIT // 2):
            y = y + (x[2 * s] + exchange(x[2 * s + 1], BIT),)
        z = add_swapped(y, BIT * 2, S)
    else:
        z = unite(x[0], BIT, S.LD)
    return z


@triton.jit
def own_part(pointer, lane_n, lane_d, inside, S: tl.constexpr):
    """Return where a lane writes gradients of B and C of a step, and if it does so."""
    n = find_state(0, lane_n, lane_d, S)
    return pointer + n, (lane_d < S.KN) & (n < S.N) & inside


@triton.jit
def load_part(pointer, lane_n, lane_d, inside, turn, S: tl.constexpr):
    """Load the gradients of B and C of a step of the blocks of channels before; zeros for the first."""
    at, mask = own_part(pointer, lane_n, lane_d, inside, S)
    word = tl.zeros([32], tl.int64)
    if S.TURNS > 1:
        word = tl.load(at, mask=mask & (turn > 0), other=0)
    return word


@triton.jit
def store_part(pointer, g_b, g_c, earlier, lane_n, lane_d, inside, S: tl.constexpr):
    """Write gradients of B and C of a step, summed over lanes of channels, as halves of 64-bit words."""
    at, mask = own_part(pointer, lane_n, lane_d, inside, S)
    b, c = add_swapped(g_b, 1, S), add_swapped(g_c, 1, S)
    if S.TURNS > 1:
        b, c = b + low(earlier), c + high(earlier)
    word = c.to(tl.uint32, bitcast=True).to(tl.int64) << 32 | b.to(tl.uint32, bitcast=True).to(tl.int64)
    tl.store(at, word, mask=mask)
