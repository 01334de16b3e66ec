"""The forward of the scan on a GPU; see `msbench.ops.scan_triton_tiles`."""

import triton
import triton.language as tl

from msbench.ops.scan_triton_tiles import (
    advance,
    high,
    lanes,
    load_skip,
    load_states,
    load_step,
    no_states,
    over_lanes_of_n,
    store_channels,
    store_states,
)

TENSORS = ("u", "dt", "A", "bc", "skip", "mix", "y", "kept")
"""Tensors accessed 4 or 8 bytes at a time, so that 16-byte alignment needs no specialised kernel."""


@triton.jit(do_not_specialize=("length", "one"), do_not_specialize_on_alignment=TENSORS)
def scan_forward(u, dt, A, bc, skip, mix, y, kept, length, one, S: tl.constexpr):
    """Compute y (b, l, d) of all streams, or (b, l, m, d) with one per program, and every EVERY-th state."""
    OUT: tl.constexpr = S.M // S.STREAMS * S.D  # per step
    block = tl.program_id(0) % S.BLOCKS
    stream = tl.program_id(0) // S.BLOCKS % (S.M // S.STREAMS) * S.STREAMS
    row = (tl.program_id(0) // (S.BLOCKS * (S.M // S.STREAMS))).to(tl.int64)
    lane_n, lane = lanes(one, S)
    first = block * (S.LD * S.K) + lane
    left, left_n = S.D - first, S.N - lane_n

    states_at = (stream * S.N + lane_n) * S.D + first
    decay = ()
    skips = ()
    h = ()
    for s in tl.static_range(S.STREAMS):
        decay = decay + load_states(A + s * S.N * S.D + states_at, left_n, left, S)
        h = h + no_states(S)
        if S.SKIP:
            skips = skips + (load_skip(skip + first, stream + s, left, S),)

    origin = row * length * S.M_IN + stream // S.GROUPS
    p_u, p_dt = u + origin * S.D + first, dt + origin * S.D + first
    p_bc = bc + (row * length * S.M + stream) * (S.KN * S.LN) + lane_n
    p_mix = mix + origin
    p_y = y + row * length * OUT + stream // S.STREAMS * S.D + first
    p_kept = kept + row * tl.cdiv(length, S.EVERY) * (S.M * S.N * S.D) + states_at

    now = load_streams(p_u, p_dt, p_bc, left, S)
    for start in range(0, length, S.EVERY):
        if S.KEEP:
            for s in tl.static_range(S.STREAMS):
                store_states(p_kept + s * S.N * S.D, slice_of(h, s, S), left_n, left, S)
            p_kept += S.M * S.N * S.D
        stop = tl.minimum(start + S.EVERY, length)
        pairs = (stop - start) // 2
        for i in range(pairs):
            more = start + 2 * i + 2 < length
            pointers = (p_u, p_dt, p_bc, p_mix, p_y)
            h, now = forward_steps(h, now, decay, skips, pointers, left, more, 2, S)
            p_u += 2 * S.M_IN * S.D
            p_dt += 2 * S.M_IN * S.D
            p_bc += 2 * S.M * S.KN * S.LN
            p_mix += 2 * S.M_IN
            p_y += 2 * OUT
        if (stop - start) % 2 == 1:  # the last step: spans are even
            h, now = forward_steps(h, now, decay, skips, (p_u, p_dt, p_bc, p_mix, p_y), left, False, 1, S)


@triton.jit
def load_streams(p_u, p_dt, p_bc, left, S: tl.constexpr):
    """Load one step of all streams."""
    x = ()
    for s in tl.static_range(S.STREAMS):
        at = s // S.GROUPS * S.D
        x = x + load_step(p_u + at, p_dt + at, p_bc + s * (S.KN * S.LN), left, S)
    return x


@triton.jit
def forward_steps(h, now, decay, skips, pointers, left, more, STEPS: tl.constexpr, S: tl.constexpr):
    """Run some steps, the first of which is loaded: write y, return the states and the next loaded step.

    Without `more` that is the last step again. Each step is loaded while the one before is computed.
    """
    X: tl.constexpr = 2 + S.COUNT
    p_u, p_dt, p_bc, p_mix, p_y = pointers
    for i in tl.static_range(STEPS):
        ahead = i + 1
        if i + 1 == STEPS:
            ahead = tl.where(more, STEPS, STEPS - 1)
        at_u, at_dt = p_u + ahead * (S.M_IN * S.D), p_dt + ahead * (S.M_IN * S.D)
        at_bc = p_bc + ahead * (S.M * S.KN * S.LN)
        states = ()
        following = ()
        y = no_states(S)
        passed = tl.zeros([1, S.K, S.LN, S.LD], tl.float32)
        for s in tl.static_range(S.STREAMS):
            at = s // S.GROUPS * S.D
            following = following + load_step(at_u + at, at_dt + at, at_bc + s * (S.KN * S.LN), left, S)
            x = now[s * X : s * X + X]
            pieces = advance(slice_of(h, s, S), slice_of(decay, s, S), x, S)[1]
            states = states + pieces
            y = add_read(y, pieces, x, S)
            if S.SKIP:
                skipped = skips[s] * x[0]
                if S.MIXED:
                    skipped = skipped * tl.load(p_mix + (i * S.M_IN + s // S.GROUPS))
                passed += skipped
        read = tl.sum(y[0], axis=0, keep_dims=True)
        for p in tl.static_range(1, S.COUNT):
            read += tl.sum(y[p], axis=0, keep_dims=True)
        store_channels(p_y + i * (S.M // S.STREAMS * S.D), over_lanes_of_n(read, S) + passed, left, S)
        h = states
        now = following
    return h, now


@triton.jit
def add_read(y, states, x, S: tl.constexpr):
    """Return pieces y plus the products of states with C."""
    total = ()
    for p in tl.static_range(S.COUNT):
        total = total + (y[p] + high(x[2 + p]) * states[p],)
    return total


@triton.jit
def slice_of(x, s: tl.constexpr, S: tl.constexpr):
    """Return the pieces of one of several streams."""
    return x[s * S.COUNT : s * S.COUNT + S.COUNT]
