"""Linear recurrences on a GPU: constant systems of many states, and single states with a decay per step.

**Constant systems.** A warp runs a block of channels, step after step, with states, decays and weights in
registers. It is a grid of LN lanes of states by LD lanes of channels, and a lane holds KN states of a stream,
as KN tiles (LN, LD). The adjoint of a system is the system in reverse, so one kernel is the
forward and the gradient of the input. The gradients of decays a and weights w need no states that are kept::

    h_t = a h_{t-1} + u_t        s_t = a s_{t-1} + h_{t-1}        s: the derivative of h by a

**Single states.** The recurrence moves three numbers for one multiplication and addition: all that counts is
to have enough loads on their way. A warp has LT lanes of time by LD lanes of channels. Each lane runs STEPS
steps in registers; then lanes exchange what they do to a state, and run again from the state before theirs.

All sizes except the length are compile-time constants (`msbench.ops.gpu.recurrence_shape`).
"""

import triton
import triton.language as tl

SYSTEM_TENSORS = ("x", "tables", "skip", "mix", "out")
GRADIENT_TENSORS = ("u", "g", "tables", "skip", "mix", "g_decay", "g_weight", "g_skip", "g_mix")
"""Tensors accessed 2 to 8 bytes at a time, so that 16-byte alignment needs no specialised kernel."""


@triton.jit
def expm1_small(x):
    """Return e^x - 1 for |x| < 0.35, with a relative error of 1e-8 before rounding."""
    y = x * (1 / 5040) + 1 / 720
    y = y * x + 1 / 120
    y = y * x + 1 / 24
    y = y * x + 1 / 6
    y = y * x + 0.5
    return y * (x * x) + x


@triton.jit
def expm1(x):
    """Return e^x - 1."""
    small = (x < 0.35) & (x > -0.35)
    return tl.where(small, expm1_small(tl.where(small, x, 0.0)), tl.exp(x) - 1.0)


@triton.jit(do_not_specialize=("n", "d", "count"), do_not_specialize_on_alignment=("tables",))
def tabulate_poles(log_decay, weight, tables, n, d, count, EVERY: tl.constexpr, SIZE: tl.constexpr):
    """Write decays, corrections and weights, (3, m, n, d), of log decays and weights (m, d, n).

    A decay near 1 is rounded by up to 2^-25, and a state that lives for 1,000 steps multiplies that by as
    many. A correction is what EVERY exact decays are, over that many rounded ones.
    """
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < count
    source = at // (n * d) * (n * d) + at % d * n + at // d % n
    log = tl.load(log_decay + source, mask=inside, other=0.0)
    small = (log < 0.35) & (log > -0.35)
    decay = tl.where(small, expm1_small(tl.where(small, log, 0.0)) + 1.0, tl.exp(log))
    far = EVERY * log
    near = (far < 4.0) & (far > -4.0)  # below, a state is gone before its rounding shows
    power = tl.where(near, decay - 1.0, 0.0)  # exact where it matters; then (1 + e)^2 = 1 + e (e + 2)
    steps: tl.constexpr = EVERY.bit_length() - 1
    for _ in tl.static_range(steps):
        power = power * (power + 2.0)
    wanted = expm1(tl.where(near, far, 0.0))
    tl.store(tables + at, decay, mask=inside)
    tl.store(tables + count + at, 1.0 + (wanted - power) / (1.0 + power), mask=inside)
    tl.store(tables + 2 * count + at, tl.load(weight + source, mask=inside), mask=inside)


@triton.jit
def lanes(one, S: tl.constexpr):
    """Return the number of each lane along n and along the channels, as tiles (LN, LD).

    `one` is 1, but not known at compile time: if the compiler can see that lanes are contiguous in memory, it
    gives loads another order of lanes, and exchanges them through shared memory.
    """
    n = tl.broadcast_to(tl.arange(0, S.LN)[:, None], [S.LN, S.LD])
    return n * one, tl.broadcast_to(tl.arange(0, S.LD)[None, :], [S.LN, S.LD]) * one


@triton.jit
def load_channels(pointer, left, inside, S: tl.constexpr):
    """Load channels (LN, LD) of a step, zeros after the last channel or where it is not inside."""
    if S.WHOLE:
        x = tl.load(pointer, mask=inside, other=0.0)
    else:
        x = tl.load(pointer, mask=inside & (left > 0), other=0.0)
    return x.to(tl.float32)


@triton.jit
def store_channels(pointer, x, left, inside, S: tl.constexpr):
    """Write channels in the layout of `load_channels`."""
    if S.WHOLE:
        tl.store(pointer, x, mask=inside)
    else:
        tl.store(pointer, x, mask=inside & (left > 0))


@triton.jit
def load_table(pointer, left_n, left, S: tl.constexpr):
    """Load the tiles of (n, d), zeros outside."""
    x = ()
    for j in tl.static_range(S.KN):
        inside = (left_n > j * S.LN) & (left > 0)
        x = x + (tl.load(pointer + j * S.LN * S.D, mask=inside, other=0.0),)
    return x


@triton.jit
def store_table(pointer, x, left_n, left, S: tl.constexpr):
    """Write the tiles of (n, d) in the layout of `load_table`."""
    for j in tl.static_range(S.KN):
        inside = (left_n > j * S.LN) & (left > 0)
        tl.store(pointer + j * S.LN * S.D, x[j], mask=inside)


@triton.jit
def make_zeros(COUNT: tl.constexpr, S: tl.constexpr):
    """Return COUNT tiles of zeros."""
    x = ()
    for _ in tl.static_range(COUNT):
        x = x + (tl.zeros([S.LN, S.LD], tl.float32),)
    return x


@triton.jit
def slice_of(x, s: tl.constexpr, COUNT: tl.constexpr):
    """Return the s-th COUNT of a tuple."""
    return x[s * COUNT : s * COUNT + COUNT]


@triton.jit
def multiply(x, y):
    """Return the products of two tuples of tiles."""
    z = ()
    for j in tl.static_range(len(x)):
        z = z + (x[j] * y[j],)
    return z


@triton.jit
def multiply_add(x, y, z):
    """Return x y + z, all tuples of tiles."""
    out = ()
    for j in tl.static_range(len(x)):
        out = out + (x[j] * y[j] + z[j],)
    return out


@triton.jit
def add_input(decay, h, v):
    """Return the states after a step with the input v."""
    out = ()
    for j in tl.static_range(len(h)):
        out = out + (decay[j] * h[j] + v,)
    return out


@triton.jit
def add_scaled(total, v, x):
    """Return a tuple of tiles plus v times another tuple."""
    out = ()
    for j in tl.static_range(len(x)):
        out = out + (v * x[j] + total[j],)
    return out


@triton.jit
def read_states(y, weight, h):
    """Return y plus the sum of weight times h over the states of a lane, (LN, LD)."""
    for j in tl.static_range(len(h)):
        y = weight[j] * h[j] + y
    return y


@triton.jit
def over_lanes_of_n(x, S: tl.constexpr):
    """Return the sum of a tile (LN, LD) over the lanes of n, in all of them."""
    if S.LN > 1:
        x = tl.broadcast_to(tl.sum(x, axis=0, keep_dims=True), [S.LN, S.LD])
    return x


@triton.jit
def load_skip(pointer, left, lane_n):
    """Load skips into the first lane of n, zeros elsewhere: what lanes hold is summed."""
    inside = (left > 0) & (lane_n == 0)
    return tl.load(pointer, mask=inside, other=0.0)


@triton.jit
def load_inputs(p_x, p_mix, left, inside, S: tl.constexpr):
    """Load one step, zeros where it is not inside: the inputs, then the weights of the streams."""
    x = ()
    for s in tl.static_range(1 if S.SPREAD else S.STREAMS):
        x = x + (load_channels(p_x + s * S.D, left, inside, S),)
    if S.SPREAD or S.MIXED:
        for s in tl.static_range(S.STREAMS):
            x = x + (tl.load(p_mix + s, mask=inside, other=0.0),)
    return x


@triton.jit(do_not_specialize=("length", "one"), do_not_specialize_on_alignment=SYSTEM_TENSORS)
def run_system(x, tables, skip, mix, out, length, one, S: tl.constexpr):
    """Compute the outputs of all streams: y (b, l, m, d), or with MIXED their weighted sum (b, l, d).

    x is (b, l, m, d), or with SPREAD (b, l, d), which every stream gets with its weight. With REVERSE time
    runs from the last step to the first: the adjoint of a mixed system is a spread one in reverse.
    """
    SIGN: tl.constexpr = -1 if S.REVERSE else 1
    INPUTS: tl.constexpr = 1 if S.SPREAD else S.STREAMS
    X: tl.constexpr = INPUTS + (S.STREAMS if S.SPREAD or S.MIXED else 0)
    block = tl.program_id(0) % S.BLOCKS
    stream = tl.program_id(0) // S.BLOCKS % (S.M // S.STREAMS) * S.STREAMS
    row = (tl.program_id(0) // (S.BLOCKS * (S.M // S.STREAMS))).to(tl.int64)
    lane_n, lane = lanes(one, S)
    first = block * S.LD + lane
    left, left_n = S.D - first, S.N - lane_n

    states_at = tables + ((stream * S.N + lane_n) * S.D + first)
    decay = ()
    weight = ()
    skips = ()
    for s in tl.static_range(S.STREAMS):
        decay = decay + load_table(states_at + s * S.N * S.D, left_n, left, S)
        weight = weight + load_table(states_at + (2 * S.M + s) * S.N * S.D, left_n, left, S)
        if S.SKIP:
            skips = skips + (load_skip(skip + (stream + s) * S.D + first, left, lane_n),)
    h = make_zeros(S.STREAMS * S.KN, S)

    begin = row * length
    if S.REVERSE:
        begin += length - 1
    p_x = x + begin * S.INPUT + (0 if S.SPREAD else stream * S.D) + first
    p_mix = mix + begin * S.M + stream
    p_out = out + begin * S.OUTPUT + (0 if S.MIXED else stream * S.D) + first
    now = ()
    for k in tl.static_range(S.STEPS):
        now = now + load_inputs(p_x + SIGN * k * S.INPUT, p_mix + SIGN * k * S.M, left, k < length, S)
    for start in range(0, length, S.EVERY):
        corrected = ()
        for s in tl.static_range(S.STREAMS):
            correction = load_table(states_at + (S.M + s) * S.N * S.D, left_n, left, S)
            corrected = corrected + multiply(correction, slice_of(h, s, S.KN))
        h = corrected
        for i in range(start, tl.minimum(start + S.EVERY, length), S.STEPS):
            p_x += SIGN * S.STEPS * S.INPUT
            p_mix += SIGN * S.STEPS * S.M
            ahead = ()
            for k in tl.static_range(S.STEPS):
                total = tl.zeros([S.LN, S.LD], tl.float32)
                states = ()
                loaded = slice_of(now, k, X)
                for s in tl.static_range(S.STREAMS):
                    v = loaded[0 if S.SPREAD else s]
                    if S.SPREAD:
                        v = v * loaded[INPUTS + s]
                    pieces = add_input(slice_of(decay, s, S.KN), slice_of(h, s, S.KN), v)
                    y = tl.zeros([S.LN, S.LD], tl.float32)
                    if S.SKIP:
                        y = skips[s] * v
                    y = read_states(y, slice_of(weight, s, S.KN), pieces)
                    if S.MIXED:
                        total += loaded[INPUTS + s] * y
                    else:
                        at = p_out + (SIGN * k * S.OUTPUT + s * S.D)
                        store_channels(at, over_lanes_of_n(y, S), left, i + k < length, S)
                    states = states + pieces
                at_x, at_mix = p_x + SIGN * k * S.INPUT, p_mix + SIGN * k * S.M
                # Into the registers of the step that was just computed.
                ahead = ahead + load_inputs(at_x, at_mix, left, i + k + S.STEPS < length, S)
                if S.MIXED:
                    at = p_out + SIGN * k * S.OUTPUT
                    store_channels(at, over_lanes_of_n(total, S), left, i + k < length, S)
                h = states
            p_out += SIGN * S.STEPS * S.OUTPUT
            now = ahead


@triton.jit
def load_pair(p_u, p_g, p_mix, left, inside, S: tl.constexpr):
    """Load one step of one stream, zeros where it is not inside: u, the gradient, the stream's weight."""
    weight = 1.0
    if S.SPREAD:
        weight = tl.load(p_mix, mask=inside, other=0.0)
    return (load_channels(p_u, left, inside, S), load_channels(p_g, left, inside, S), weight)


# fmt: off
@triton.jit(do_not_specialize=("length", "one"), do_not_specialize_on_alignment=GRADIENT_TENSORS)
def differentiate_system(
    u, g, tables, skip, mix, g_decay, g_weight, g_skip, g_mix, length, one, S: tl.constexpr
):
    # fmt: on
    """Compute one stream's part of the gradients of log decays and weights (b, m, n, d) and skip (b, m, d).

    u is (b, l, m, d); g is the gradient of the outputs (b, l, m, d), or with SPREAD of their weighted sum
    (b, l, d). With MIXED also a program's part of the gradient of the weights of the sum, (b, l, m, BLOCKS).
    """
    block = tl.program_id(0) % S.BLOCKS
    stream = tl.program_id(0) // S.BLOCKS % S.M
    row = (tl.program_id(0) // (S.BLOCKS * S.M)).to(tl.int64)
    lane_n, lane = lanes(one, S)
    first = block * S.LD + lane
    left, left_n = S.D - first, S.N - lane_n

    states_at = (stream * S.N + lane_n) * S.D + first
    decay = load_table(tables + states_at, left_n, left, S)
    h = make_zeros(S.KN, S)
    s = make_zeros(S.KN, S)
    sum_h = make_zeros(S.KN, S)
    sum_s = make_zeros(S.KN, S)
    skipped = tl.zeros([S.LN, S.LD], tl.float32)
    own = skipped
    if S.MIXED:
        weight = load_table(tables + 2 * S.M * S.N * S.D + states_at, left_n, left, S)
        if S.SKIP:
            own = load_skip(skip + stream * S.D + first, left, lane_n)

    p_u = u + row * length * (S.M * S.D) + stream * S.D + first
    p_g = g + row * length * S.INPUT + (0 if S.SPREAD else stream * S.D) + first
    p_mix = mix + row * length * S.M + stream
    p_g_mix = g_mix + (row * length * S.M + stream) * S.BLOCKS + block
    now = ()
    for k in tl.static_range(S.STEPS):
        at_u, at_g, at_mix = p_u + k * (S.M * S.D), p_g + k * S.INPUT, p_mix + k * S.M
        now = now + load_pair(at_u, at_g, at_mix, left, k < length, S)
    for start in range(0, length, S.EVERY):
        correction = load_table(tables + S.M * S.N * S.D + states_at, left_n, left, S)
        h = multiply(correction, h)
        s = multiply(correction, s)
        for i in range(start, tl.minimum(start + S.EVERY, length), S.STEPS):
            p_u += S.STEPS * (S.M * S.D)
            p_g += S.STEPS * S.INPUT
            p_mix += S.STEPS * S.M
            ahead = ()
            parts = ()
            for k in tl.static_range(S.STEPS):
                v = now[3 * k]
                g_z = now[3 * k + 1]
                g_y = g_z * now[3 * k + 2]
                s = multiply_add(decay, s, h)
                h = add_input(decay, h, v)
                sum_s = add_scaled(sum_s, g_y, s)
                sum_h = add_scaled(sum_h, g_y, h)
                if S.SKIP:
                    skipped += g_y * v
                if S.MIXED:
                    parts = parts + (g_z * read_states(own * v, weight, h),)
                at_u, at_g, at_mix = p_u + k * (S.M * S.D), p_g + k * S.INPUT, p_mix + k * S.M
                ahead = ahead + load_pair(at_u, at_g, at_mix, left, i + k + S.STEPS < length, S)
            if S.MIXED:
                # Together, because the sum over a warp is a chain of five exchanges.
                for k in tl.static_range(S.STEPS):
                    of_mix = tl.sum(tl.sum(parts[k], axis=0), axis=0)
                    tl.store(p_g_mix + k * (S.M * S.BLOCKS), of_mix, mask=i + k < length)
            p_g_mix += S.STEPS * (S.M * S.BLOCKS)
            now = ahead

    to = row * (S.M * S.N * S.D) + states_at
    scale = multiply(decay, load_table(tables + 2 * S.M * S.N * S.D + states_at, left_n, left, S))
    store_table(g_decay + to, multiply(scale, sum_s), left_n, left, S)
    store_table(g_weight + to, sum_h, left_n, left, S)
    if S.SKIP:
        at = g_skip + (row * S.M + stream) * S.D + first
        store_channels(at, skipped, left, length > 0, S)


LINEAR_TENSORS = ("a", "x", "h", "g", "g_a", "g_x")


@triton.jit
def load_number(pointer, inside, S: tl.constexpr):
    """Load numbers, zeros where they are not inside: (x,), or (re, im), the halves of 64-bit words."""
    if S.COMPLEX:
        word = tl.load(pointer, mask=inside, other=0)
        re = (word & 0xFFFFFFFF).to(tl.uint32).to(tl.float32, bitcast=True)
        x = (re, (word >> 32).to(tl.uint32).to(tl.float32, bitcast=True))
    else:
        x = (tl.load(pointer, mask=inside, other=0.0),)
    return x


@triton.jit
def store_number(pointer, x, inside, S: tl.constexpr):
    """Write what `load_number` loads."""
    if S.COMPLEX:
        re = x[0].to(tl.uint32, bitcast=True).to(tl.int64)
        word = re | (x[1].to(tl.uint32, bitcast=True).to(tl.int64) << 32)
        tl.store(pointer, word, mask=inside)
    else:
        tl.store(pointer, x[0], mask=inside)


@triton.jit
def advance(a, h, x, S: tl.constexpr):
    """Return a h + x."""
    if S.COMPLEX:
        y = (a[0] * h[0] + (x[0] - a[1] * h[1]), a[0] * h[1] + (a[1] * h[0] + x[1]))
    else:
        y = (a[0] * h[0] + x[0],)
    return y


@triton.jit
def conjugate(x, S: tl.constexpr):
    """Return the conjugate."""
    if S.COMPLEX:
        x = (x[0], -x[1])
    return x


@triton.jit
def fill(value: tl.constexpr, S: tl.constexpr):
    """Return a real number in every lane."""
    x = (tl.full([S.LT, S.LD], value, tl.float32),)
    if S.COMPLEX:
        x = x + (tl.zeros([S.LT, S.LD], tl.float32),)
    return x


@triton.jit
def gather_lanes(x, lane):
    """Return what other lanes of time have."""
    y = ()
    for part in tl.static_range(len(x)):
        y = y + (tl.gather(x[part], lane, 0),)
    return y


@triton.jit
def choose(condition, x, y):
    """Return x where the condition holds, else y."""
    z = ()
    for part in tl.static_range(len(x)):
        z = z + (tl.where(condition, x[part], y[part]),)
    return z


@triton.jit
def run_lanes(a, x, h, lane_t, S: tl.constexpr):
    """Run STEPS steps in each lane of time, from state h before the first lane; return states, and the last.

    `a` and `x` are STEPS numbers each. First each lane finds what its steps do to a state, as a product and a
    sum; the lanes before it are combined in log2(LT) exchanges; then it runs from its own first state.
    """
    PARTS: tl.constexpr = 2 if S.COMPLEX else 1
    if S.LT > 1:
        product = slice_of(a, 0, PARTS)
        total = slice_of(x, 0, PARTS)
        none = fill(0.0, S)
        for r in tl.static_range(1, S.STEPS):
            factor = slice_of(a, r, PARTS)
            total = advance(factor, total, slice_of(x, r, PARTS), S)
            product = advance(factor, product, none, S)
        # The first lane starts from h.
        total = choose(lane_t == 0, advance(product, h, total, S), total)
        for bit in tl.static_range(S.ROUNDS):
            other = tl.maximum(lane_t - (1 << bit), 0)
            has = lane_t >= (1 << bit)
            before = gather_lanes(total, other)
            total = choose(has, advance(product, before, total, S), total)
            product = choose(has, advance(product, gather_lanes(product, other), none, S), product)
        h = choose(lane_t == 0, h, gather_lanes(total, tl.maximum(lane_t - 1, 0)))
    states = ()
    for r in tl.static_range(S.STEPS):
        h = advance(slice_of(a, r, PARTS), h, slice_of(x, r, PARTS), S)
        states = states + h
    last = h
    if S.LT > 1:
        last = gather_lanes(h, lane_t * 0 + (S.LT - 1))
    return states, last


@triton.jit
def lanes_of_time(one, S: tl.constexpr):
    """Return the number of each lane along time and along the channels, as tiles (LT, LD); see `lanes`."""
    t = tl.broadcast_to(tl.arange(0, S.LT)[:, None], [S.LT, S.LD])
    return t * one, tl.broadcast_to(tl.arange(0, S.LD)[None, :], [S.LT, S.LD]) * one


@triton.jit
def load_span(pointer, t, bound, inside, STRIDE: tl.constexpr, S: tl.constexpr):
    """Load STEPS steps of each lane, from its step t on; zeros where steps are not in 0 .. bound - 1."""
    x = ()
    for r in tl.static_range(S.STEPS):
        x = x + load_number(pointer + r * STRIDE, inside & (t + r < bound) & (t + r >= 0), S)
    return x


@triton.jit
def repeat(x, S: tl.constexpr):
    """Return STEPS times the same number."""
    y = ()
    for _ in tl.static_range(S.STEPS):
        y = y + x
    return y


@triton.jit(do_not_specialize=("example", "length", "one"), do_not_specialize_on_alignment=LINEAR_TENSORS)
def run_recurrence(a, x, h, example, length, one, S: tl.constexpr):
    """Write the states h (b, l, d) of x (b, l, d) and a: (b or 1, l or 1, d), `example` numbers apart."""
    block = tl.program_id(0) % S.BLOCKS
    row = (tl.program_id(0) // S.BLOCKS).to(tl.int64)
    lane_t, lane = lanes_of_time(one, S)
    channel = block * S.LD + lane
    inside = channel < S.D
    first = lane_t * S.STEPS
    p_x = x + (row * length + first) * S.D + channel
    p_h = h + (row * length + first) * S.D + channel
    p_a = a + row * example + channel
    state = fill(0.0, S)
    if S.CONSTANT:
        factors = repeat(load_number(p_a, inside, S), S)
    else:
        p_a += first * S.D
        factors = load_span(p_a, first, length, inside, S.D, S)
    inputs = load_span(p_x, first, length, inside, S.D, S)
    for start in range(0, length, S.LT * S.STEPS):
        t = start + first
        p_x += S.LT * S.STEPS * S.D
        ahead = load_span(p_x, t + S.LT * S.STEPS, length, inside, S.D, S)
        if S.CONSTANT:
            factors_ahead = factors
        else:
            p_a += S.LT * S.STEPS * S.D
            factors_ahead = load_span(p_a, t + S.LT * S.STEPS, length, inside, S.D, S)
        states, state = run_lanes(factors, inputs, state, lane_t, S)
        for r in tl.static_range(S.STEPS):
            number = slice_of(states, r, 2 if S.COMPLEX else 1)
            store_number(p_h + r * S.D, number, inside & (t + r < length), S)
        p_h += S.LT * S.STEPS * S.D
        factors = factors_ahead
        inputs = ahead


# fmt: off
@triton.jit(do_not_specialize=("example", "length", "one"), do_not_specialize_on_alignment=LINEAR_TENSORS)
def differentiate_recurrence(a, h, g, g_a, g_x, example, length, one, S: tl.constexpr):
    # fmt: on
    """Write the gradients of x (b, l, d) and a: (b, l, d), or with CONSTANT (b, d), from that of h.

    Lanes count steps from the last one: q_t = conj(a_{t+1}) q_{t+1} + g_t is the gradient of x_t, and
    q_t conj(h_{t-1}) that of a_t.
    """
    PARTS: tl.constexpr = 2 if S.COMPLEX else 1
    SPAN: tl.constexpr = S.LT * S.STEPS
    block = tl.program_id(0) % S.BLOCKS
    row = (tl.program_id(0) // S.BLOCKS).to(tl.int64)
    lane_t, lane = lanes_of_time(one, S)
    channel = block * S.LD + lane
    inside = channel < S.D
    first = lane_t * S.STEPS
    last = row * length + (length - 1 - first)
    p_g = g + last * S.D + channel
    p_x = g_x + last * S.D + channel
    p_h = h + (last - 1) * S.D + channel
    p_a = a + row * example + channel
    p_g_a = g_a + row * S.D + channel
    state = fill(0.0, S)
    total = fill(0.0, S)
    if S.CONSTANT:
        factors = repeat(conjugate(load_number(p_a, inside, S), S), S)
    else:
        p_a += (length - first).to(tl.int64) * S.D
        p_g_a = g_a + last * S.D + channel
        # Of the step after: the last one has none, so its index counts from -1 there.
        factors = load_span(p_a, first - 1, length - 1, inside, -S.D, S)
    inputs = load_span(p_g, first, length, inside, -S.D, S)
    before = load_span(p_h, first, length - 1, inside, -S.D, S)
    for start in range(0, length, SPAN):
        i = start + first
        p_g -= SPAN * S.D
        p_h -= SPAN * S.D
        ahead = load_span(p_g, i + SPAN, length, inside, -S.D, S)
        before_ahead = load_span(p_h, i + SPAN, length - 1, inside, -S.D, S)
        if S.CONSTANT:
            factors_ahead = factors
            conjugates = factors
        else:
            p_a -= SPAN * S.D
            factors_ahead = load_span(p_a, i + SPAN - 1, length - 1, inside, -S.D, S)
            conjugates = ()
            for r in tl.static_range(S.STEPS):
                conjugates = conjugates + conjugate(slice_of(factors, r, PARTS), S)
        states, state = run_lanes(conjugates, inputs, state, lane_t, S)
        for r in tl.static_range(S.STEPS):
            number = slice_of(states, r, PARTS)
            store_number(p_x - r * S.D, number, inside & (i + r < length), S)
            other = conjugate(slice_of(before, r, PARTS), S)
            if S.CONSTANT:
                total = advance(number, other, total, S)
            else:
                product = advance(number, other, fill(0.0, S), S)
                store_number(p_g_a - r * S.D, product, inside & (i + r < length), S)
        p_x -= SPAN * S.D
        if not S.CONSTANT:
            p_g_a -= SPAN * S.D
        factors = factors_ahead
        inputs = ahead
        before = before_ahead
    if S.CONSTANT:
        summed = ()
        for part in tl.static_range(PARTS):
            whole = tl.broadcast_to(tl.sum(total[part], axis=0, keep_dims=True), [S.LT, S.LD])
            summed = summed + (whole,)
        store_number(p_g_a, summed, inside, S)
