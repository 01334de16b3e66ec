"""Tiles of the scan on a GPU, and one of its steps.

A warp scans a block of channels, step after step, with states in registers. It is a grid of LN lanes of
states by LD lanes of channels, and a lane holds KN by K states of a stream. The tiles (J, K, LN, LD) of these
kernels are J times K registers per lane, every J a power of two: KN = 7 has tiles of 4, 2 and 1, `PIECES`. So
only n is padded, to a multiple of LN; inner products over n are sums in a lane and a few shuffles; and B and
C, which all channels share, are read once for K channels.

B and C come in pairs, as the halves of one 64-bit word (b, l, m, KN LN), so that one load reads both. All
sizes except the length are compile-time constants (`triton_shape.KernelShape`), and so are addresses.
"""

import triton
import triton.language as tl


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
    return x


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
def no_states(S: tl.constexpr):
    """Return pieces of zeros."""
    x = ()
    for p in tl.static_range(S.COUNT):
        x = x + (tl.zeros([S.PIECES[p], S.K, S.LN, S.LD], tl.float32),)
    return x


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
