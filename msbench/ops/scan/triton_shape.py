"""The partition of a scan into programs of one warp on a GPU, by a fixed rule for bit-equal results.

A stream of many states is scanned as groups of at most 32, as if these were streams, so that the registers
of a lane are bounded for any n. Among the layouts of the backward, of a group over 32 lanes, the one with the
shortest estimated time is taken, for a GPU of 132 multiprocessors (an H100).
"""

from collections.abc import Iterator
from typing import NamedTuple

EVERY = 64
"""Steps between kept states.

At 32 they take twice the memory; at 128 the states that the backward saves within a span (57 kB per program,
1056 programs at a time) do not fit into 50 MB of L2.
"""
STEPS = 4
"""Steps that the backward holds in registers: with 8 lanes of channels their sums of B and C fill a warp."""
LARGEST_GROUP = 32
SCHEDULERS = 4 * 132
PLACES = 2 * SCHEDULERS
"""Programs of the backward that run at a time."""
REGISTERS = 200
"""Registers for states and related values, of the 255 that a lane can have."""


TILE = 1024
"""Pairs of B and C in a program that packs or sums them."""


class ForwardShape(NamedTuple):
    """The compile-time constants of `msbench.ops.scan.triton_forward_kernels`.

    Parameters
    ----------
    M, M_IN, GROUPS : groups of states of all streams, streams, and groups of one stream
    D, N, STATES : channels, states of a group, and states of a stream
    KN, K : states of a group, and channels, in one lane
    BLOCKS : programs that together cover all channels
    MIXED, SKIP, SCALED, KEEP : True if streams are mixed, have skips, inputs are multiplied by their step
        size, and states are kept
    EVERY : steps between kept states
    """

    M: int
    M_IN: int
    GROUPS: int
    D: int
    N: int
    STATES: int
    KN: int
    K: int
    BLOCKS: int
    MIXED: bool
    SKIP: bool
    SCALED: bool
    KEEP: bool
    EVERY: int

    def count_pairs(self) -> int:
        """Return the pairs of B and C of a group: a multiple of its lanes."""
        return 4 * self.KN

    def limit_registers(self) -> int:
        """Return the registers of a lane: with 128, four warps of a scheduler hide what each one waits for.

        Without a limit the compiler saves registers at the expense of loads ahead. More are needed on some
        GPUs for 16 states in a lane; and where programs are few, no other warp needs them.
        """
        return 128 if self.K == 2 and self.KN < 8 else 168


class BackwardShape(NamedTuple):
    """The compile-time constants of the backward; see `msbench.ops.scan.triton_backward_kernels`.

    Parameters
    ----------
    M, M_IN, GROUPS : groups of states of all streams, streams, and groups of one stream
    D, N, STATES : channels, states of a group, and states of a stream
    LN, LD : lanes along the states and along the channels
    KN, K : states of a group, and channels, in one lane
    PIECES, STARTS, COUNT : KN as a sum of powers of two, its partial sums, its number of terms
    BLOCKS : programs that together cover all channels
    WHOLE : True if they end with the last channel
    MIXED, SKIP, SCALED : as in `ForwardShape`
    EVERY, STEPS, SLOTS : steps between kept states, steps in registers, and states that a program saves
    """

    M: int
    M_IN: int
    GROUPS: int
    D: int
    N: int
    STATES: int
    LN: int
    LD: int
    KN: int
    K: int
    PIECES: tuple[int, ...]
    STARTS: tuple[int, ...]
    COUNT: int
    BLOCKS: int
    WHOLE: bool
    MIXED: bool
    SKIP: bool
    SCALED: bool
    EVERY: int
    STEPS: int
    SLOTS: int

    def count_pairs(self) -> int:
        """Return the pairs of B and C of a group: a multiple of its lanes."""
        return self.KN * self.LN


class PackingShape(NamedTuple):
    """The compile-time constants of `msbench.ops.gpu.scan_packing_kernels`.

    Parameters
    ----------
    M, GROUPS : streams, and groups of states of one
    STATES, N : states of a stream, and of a group
    WIDTH, PADDED : pairs of a group, and the power of two that covers them
    BLOCKS, ROWS : parts to sum, and rows of a program
    MIXED, SKIP : as in `ForwardShape`
    """

    M: int
    GROUPS: int
    STATES: int
    N: int
    WIDTH: int
    PADDED: int
    BLOCKS: int
    ROWS: int
    MIXED: bool
    SKIP: bool

    def count_part_bytes(self) -> int:
        """Return the bytes of all parts of one step of one example."""
        return 4 * self.M * self.GROUPS * self.BLOCKS * (2 * self.WIDTH + 2)


class ScanSizes(NamedTuple):
    """Sizes of a scan, its optional parts, and the size of the GPU that the rule assumes."""

    b: int
    m: int
    d: int
    n: int
    mixed: bool
    skip: bool
    scaled: bool
    every: int = EVERY
    schedulers: int = SCHEDULERS


class Layout(NamedTuple):
    """Lanes along the states, and channels in one lane, of the backward."""

    lanes: int
    channels: int


def count_groups(n: int) -> int:
    """Return the number of groups of the states of a stream."""
    return -(-n // LARGEST_GROUP)


def choose_forward_shape(problem: ScanSizes, *, keep: bool) -> ForwardShape:
    """Return the shape of the forward kernel: two channels in a lane, one where programs would be too few."""
    parts, n = count_groups(problem.n), count_group_states(problem)
    wide = -(-problem.d // 16)
    channels = 2 if problem.b * problem.m * parts * wide >= problem.schedulers and problem.d > 8 else 1
    kn = -(-n // 4)
    return ForwardShape(
        M=problem.m * parts,
        M_IN=problem.m,
        GROUPS=parts,
        D=problem.d,
        N=n,
        STATES=problem.n,
        KN=kn,
        K=channels,
        BLOCKS=-(-problem.d // (8 * channels)),
        MIXED=problem.mixed,
        SKIP=problem.skip,
        SCALED=problem.scaled,
        KEEP=keep,
        EVERY=problem.every,
    )


def choose_backward_shape(problem: ScanSizes) -> BackwardShape:
    """Return the shape of the backward kernel: one group per program, since no sum is over streams."""
    return make_shape(problem, min(list_layouts(), key=lambda x: estimate_backward_time(problem, x)))


def list_layouts() -> Iterator[Layout]:
    """Yield all layouts; the first one of equal times is taken."""
    for lanes in (4, 8, 16, 2):
        for channels in (1, 2, 4, 8):
            yield Layout(lanes, channels)


def count_programs(problem: ScanSizes, layout: Layout) -> int:
    """Return the number of programs of one warp."""
    width = 32 // layout.lanes * layout.channels
    return problem.b * problem.m * count_groups(problem.n) * -(-problem.d // width)


def estimate_backward_time(problem: ScanSizes, layout: Layout) -> float:
    """Estimate the cycles of all programs per step of time.

    A state takes 17 instructions, plus sums over lanes of channels (7 for a state's B and C) and of states.
    Each program writes its part of the gradients of B and C, which is read again.
    """
    lanes, channels = layout
    kn = count_lane_states(problem, layout)
    if kn * channels * (2 * STEPS + 4) > REGISTERS:
        return float("inf")
    issued = kn * (17 * channels + 10) + channels * (4 * lanes.bit_length() + 12) + 20
    count = count_programs(problem, layout)
    return max(estimate_busiest_time(problem, count, issued), count * kn * lanes * 16 / 1700)


def count_lane_states(problem: ScanSizes, layout: Layout) -> int:
    """Return the number of states of one group in a lane."""
    return -(-count_group_states(problem) // layout.lanes)


def count_group_states(problem: ScanSizes) -> int:
    """Return the number of states of a group; the last group is padded with zeros."""
    return -(-problem.n // count_groups(problem.n))


def estimate_busiest_time(problem: ScanSizes, count: int, cycles: float) -> float:
    """Return the time of the busiest scheduler; a program alone on a scheduler stalls half of the time."""
    return max(-(-count // problem.schedulers), 2) * cycles


def make_shape(problem: ScanSizes, layout: Layout) -> BackwardShape:
    """Return the shape of a layout."""
    kn = count_lane_states(problem, layout)
    pieces = tuple(1 << bit for bit in reversed(range(kn.bit_length())) if kn >> bit & 1)
    width = 32 // layout.lanes * layout.channels
    parts = count_groups(problem.n)
    return BackwardShape(
        M=problem.m * parts,
        M_IN=problem.m,
        GROUPS=parts,
        D=problem.d,
        N=count_group_states(problem),
        STATES=problem.n,
        LN=layout.lanes,
        LD=32 // layout.lanes,
        KN=kn,
        K=layout.channels,
        PIECES=pieces,
        STARTS=tuple(sum(pieces[:i]) for i in range(len(pieces))),
        COUNT=len(pieces),
        BLOCKS=-(-problem.d // width),
        WHOLE=problem.d % width == 0,
        MIXED=problem.mixed,
        SKIP=problem.skip,
        SCALED=problem.scaled,
        EVERY=problem.every,
        STEPS=STEPS,
        SLOTS=problem.every // STEPS + STEPS - 1,
    )


def make_packing_shape(shape: ForwardShape | BackwardShape) -> PackingShape:
    """Return the constants of the kernels around one of this shape."""
    width = shape.count_pairs()
    padded = 1 << (width - 1).bit_length()
    return PackingShape(
        M=shape.M_IN,
        GROUPS=shape.GROUPS,
        STATES=shape.STATES,
        N=shape.N,
        WIDTH=width,
        PADDED=padded,
        BLOCKS=shape.BLOCKS,
        ROWS=max(1, TILE // padded),
        MIXED=shape.MIXED,
        SKIP=shape.SKIP,
    )
