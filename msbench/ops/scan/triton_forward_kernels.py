"""The forward of the scan on a GPU, from the numbers of one step to the loops over all.

A warp scans a block of channels of one group of states, with the states in registers. It is a grid of 4 lanes
of states by 8 lanes of channels, lane 8 n + d; a lane holds KN states of K channels, each in a tile of 32
numbers, one per lane. So only n is padded, to a multiple of 4; sums over n are sums in a lane and a few
shuffles; and B and C, which all channels share, are read once for K channels.

Steps come in blocks of 4. What a channel has one number of at each step is spread over the lanes of states:
lane n loads u and dt of step n of the block, hands them out by shuffles, gets the sum over states of its own
step, and writes the output. A block that ends after the last step has zeros there, which change no state.

B and C come in pairs, see `msbench.ops.gpu.scan_packing_kernels`. All sizes except the length are constants
at compile time (`triton_shape.ForwardShape`), and so are addresses.
"""

import triton
import triton.language as tl

from msbench.ops.scan.triton_backward_kernels import high, low

TENSORS = ("u", "dt", "A", "bc", "skip", "mix", "y", "kept")
"""Tensors accessed 4 or 8 bytes at a time, so that 16-byte alignment needs no specialised kernel."""
INTEGERS = ("length", "mix_stride", "one")


@triton.jit
def find_lanes(one):
    """Return the number of each lane along n, and along the channels.

    `one` is 1, but not known at compile time: if the compiler can see that lanes are contiguous in memory, it
    gives loads another order of lanes, and exchanges them through shared memory.
    """
    lane = tl.arange(0, 32)
    return lane // 8 * one, lane % 8 * one


@triton.jit
def load_decays(pointer, lane_n, lane_d, left_n, left, S: tl.constexpr):
    """Load the rates of a lane's states as exponents of two, channel by channel; zeros outside."""
    x = ()
    for s in tl.static_range(S.KN):
        n = lane_n + s * 4
        for k in tl.static_range(S.K):
            d = lane_d + k * 8
            inside = (n < left_n) & (d < left)
            rate = tl.load(pointer + d * S.STATES + n, mask=inside, other=0.0)
            x = x + (rate * 1.4426950408889634,)  # log2(e)
    return x


@triton.jit
def keep_states(pointer, h, lane_n, lane_d, left_n, left, S: tl.constexpr):
    """Write the states of a lane, channels last."""
    for s in tl.static_range(S.KN):
        n = lane_n + s * 4
        for k in tl.static_range(S.K):
            d = lane_d + k * 8
            tl.store(pointer + n * S.D + d, h[s * S.K + k], mask=(n < left_n) & (d < left))


@triton.jit
def load_pairs(pointer, lane_n, S: tl.constexpr):
    """Load B and C of one step."""
    x = ()
    for s in tl.static_range(S.KN):
        x = x + (tl.load(pointer + lane_n + s * 4),)
    return x


@triton.jit
def load_spread(pointer, step, steps, lane_d, left, S: tl.constexpr):
    """Load the numbers of each lane's own step, channel by channel; zeros after the last."""
    x = ()
    for k in tl.static_range(S.K):
        d = lane_d + k * 8
        x = x + (tl.load(pointer + d, mask=(step < steps) & (d < left), other=0.0).to(tl.float32),)
    return x


@triton.jit
def load_weight(pointer, step, steps, S: tl.constexpr):
    """Load the mixer's weight of each lane's own step, or return ones."""
    weight = tl.full([32], 1.0, tl.float32)
    if S.MIXED and S.SKIP:
        weight = tl.load(pointer, mask=step < steps, other=0.0).to(tl.float32)
    return weight


@triton.jit
def hand_out(x, i: tl.constexpr, S: tl.constexpr):
    """Return in all lanes of states what the lanes of step i have, channel by channel."""
    y = ()
    for k in tl.static_range(S.K):
        y = y + (tl.gather(x[k], tl.arange(0, 32) % 8 + i * 8, 0),)
    return y


@triton.jit
def fold(x, y, BIT: tl.constexpr):
    """Return sums over pairs of lanes that differ in BIT: of x in the lane without it, of y in that with it.

    Of two values a lane keeps one and sends the other: sums of four values over four lanes take three
    shuffles instead of eight, with one result per lane.
    """
    lane = tl.arange(0, 32)
    odd = (lane & BIT) != 0
    return tl.where(odd, y, x) + tl.gather(tl.where(odd, x, y), lane ^ BIT, 0)


@triton.jit
def advance(h, decay, dt, v, pairs, S: tl.constexpr):
    """Return the states after a step."""
    states = ()
    for s in tl.static_range(S.KN):
        for k in tl.static_range(S.K):
            a = tl.exp2(dt[k] * decay[s * S.K + k])
            states = states + (a * h[s * S.K + k] + low(pairs[s]) * v[k],)
    return states


@triton.jit
def read_states(h, pairs, S: tl.constexpr):
    """Return the products of C and the states, summed over the states of a lane, channel by channel."""
    out = ()
    for k in tl.static_range(S.K):
        x = high(pairs[0]) * h[k]
        for s in tl.static_range(1, S.KN):
            x += high(pairs[s]) * h[s * S.K + k]
        out = out + (x,)
    return out


@triton.jit(do_not_specialize=INTEGERS, do_not_specialize_on_alignment=TENSORS)
def scan_forward(u, dt, A, bc, skip, mix, y, kept, length, mix_stride, one, S: tl.constexpr):
    """Compute y of each group of states (b, l, M, d), and every EVERY-th state."""
    block = tl.program_id(0) % S.BLOCKS * (8 * S.K)
    group = tl.program_id(0) // S.BLOCKS % S.M
    stream = group // S.GROUPS
    row = (tl.program_id(0) // (S.BLOCKS * S.M)).to(tl.int64)
    lane_n, lane_d = find_lanes(one)
    left, start_n = S.D - block, group % S.GROUPS * S.N
    left_n = tl.minimum(S.N, S.STATES - start_n)

    decay = load_decays(A + (stream * S.D + block) * S.STATES + start_n, lane_n, lane_d, left_n, left, S)
    h = ()
    for _ in tl.static_range(S.KN * S.K):
        h = h + (tl.zeros([32], tl.float32),)
    if S.SKIP:
        once = tl.where(group % S.GROUPS == 0, 1, 0)  # for the first group of a stream
        skips = load_spread(skip + stream * S.D + block, 0, once, lane_d, left, S)

    p_u = u + (row * length * S.M_IN + stream) * S.D + block
    p_dt = dt + (row * length * S.M_IN + stream) * S.D + block
    p_mix = mix + (row * length * S.M_IN + stream) * mix_stride
    p_y = y + (row * length * S.M + group) * S.D + block
    p_bc = bc + (row * (tl.cdiv(length, 4) * 4) * S.M + group) * (4 * S.KN)
    p_kept = kept + (row * tl.cdiv(length, S.EVERY) * S.M + group) * (S.N * S.D) + block
    at, at_mix = lane_n * (S.M_IN * S.D), lane_n * (S.M_IN * mix_stride)

    now_u = load_spread(p_u + at, lane_n, length, lane_d, left, S)
    now_dt = load_spread(p_dt + at, lane_n, length, lane_d, left, S)
    weight = load_weight(p_mix + at_mix, lane_n, length, S)
    pairs = load_pairs(p_bc, lane_n, S)
    for start in range(0, length, S.EVERY):
        if S.KEEP:
            keep_states(p_kept, h, lane_n, lane_d, left_n, left, S)
            p_kept += S.M * S.N * S.D
        for step in range(start, tl.minimum(start + S.EVERY, length), 4):
            p_u += 4 * S.M_IN * S.D
            p_dt += 4 * S.M_IN * S.D
            p_mix += 4 * S.M_IN * mix_stride
            later = length - step - 4
            next_u = load_spread(p_u + at, lane_n, later, lane_d, left, S)
            next_dt = load_spread(p_dt + at, lane_n, later, lane_d, left, S)
            next_weight = load_weight(p_mix + at_mix, lane_n, later, S)
            v = ()
            for k in tl.static_range(S.K):
                v = v + ((now_dt[k] * now_u[k] if S.SCALED else now_u[k]),)
            outputs = ()
            for i in tl.static_range(4):
                following = load_pairs(p_bc + (i + 1) * (S.M * 4 * S.KN), lane_n, S)
                h = advance(h, decay, hand_out(now_dt, i, S), hand_out(v, i, S), pairs, S)
                outputs = outputs + (read_states(h, pairs, S),)
                pairs = following
            for k in tl.static_range(S.K):
                out = fold(fold(outputs[0][k], outputs[1][k], 8), fold(outputs[2][k], outputs[3][k], 8), 16)
                if S.SKIP:
                    out += skips[k] * now_u[k] * weight
                d = lane_d + k * 8
                tl.store(p_y + lane_n * (S.M * S.D) + d, out, mask=(lane_n < length - step) & (d < left))
            p_bc += 4 * S.M * 4 * S.KN
            p_y += 4 * S.M * S.D
            now_u, now_dt, weight = next_u, next_dt, next_weight
