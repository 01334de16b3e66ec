"""The partition of a scan into programs of one warp on a GPU, by a fixed rule for bit-equal results.

A stream of many states is scanned as groups of at most 32, as if these were streams, so that the registers
of a lane are bounded for any n. A program of the backward scans one or more blocks of channels in turn: as
many as take the shortest estimated time, on a GPU of 132 multiprocessors (an H100).
"""

from typing import NamedTuple

EVERY = 72
"""Steps between kept states, a multiple of 4.

Fewer take more memory, and more launches of the backward, which are cut between them. The states that the
backward saves within a span (18 kB per program) and its partial gradients are to stay in 50 MB of L2.
"""
LARGEST_GROUP = 32
SCHEDULERS = 4 * 132
CYCLES = (880, 980, 1110, 1250)
"""Cycles of a step of the backward with 1, 2, 3 and 4 warps on a scheduler, simulated for an H100."""
PLACES = len(CYCLES) * SCHEDULERS
"""Programs of the backward that run at a time, by the registers of a lane."""
PART_RATE = 1000
"""Bytes of partial gradients a cycle: they are written and read in L2, and each 32 MiB take a launch."""
TURNS = 8
"""Blocks of channels of a program of the backward, at most."""


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
    SPREAD : tiles of what a channel has one number of at each of 4 steps
    BLOCKS, TURNS : programs that together cover all channels, and blocks of channels of one
    MIXED, SKIP, SCALED : as in `ForwardShape`
    EVERY, SLOTS : steps between kept states, and states that a program saves
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
    SPREAD: int
    BLOCKS: int
    TURNS: int
    MIXED: bool
    SKIP: bool
    SCALED: bool
    EVERY: int
    SLOTS: int

    def count_pairs(self) -> int:
        """Return the pairs of B and C of a group: a multiple of its lanes."""
        return self.KN * self.LN

    def limit_registers(self, capability: tuple[int, int]) -> int:
        """Return the registers of a lane, on a GPU of this compute capability; see `ForwardShape`.

        With 128, an H100 has places for all programs of 50 examples, 5 streams and 128 channels at a time,
        but others would spill; those before 9.0 more: they compute more addresses in the registers of lanes.
        """
        if capability < (9, 0):
            return 168
        return 128 if capability < (10, 0) else 136


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
        return 8 * self.M * self.GROUPS * self.BLOCKS * (self.N + 1)


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
    """Return the shape of the backward kernel: 4 lanes of states, 8 where one has more than 4 of them."""
    parts, n = count_groups(problem.n), count_group_states(problem)
    lanes = 4 if n <= 16 else 8
    kn = 1 << (-(-n // lanes) - 1).bit_length()
    turns = min(range(1, TURNS + 1), key=lambda x: estimate_backward_time(problem, x))
    return BackwardShape(
        M=problem.m * parts,
        M_IN=problem.m,
        GROUPS=parts,
        D=problem.d,
        N=n,
        STATES=problem.n,
        LN=lanes,
        LD=32 // lanes,
        KN=kn,
        K=2,
        SPREAD=8 // lanes,
        BLOCKS=count_blocks(problem, turns),
        TURNS=turns,
        MIXED=problem.mixed,
        SKIP=problem.skip,
        SCALED=problem.scaled,
        EVERY=problem.every,
        SLOTS=-(-problem.every // 4),
    )


def count_blocks(problem: ScanSizes, turns: int) -> int:
    """Return the programs of the backward that together cover all channels."""
    lanes = 4 if count_group_states(problem) <= 16 else 8
    return -(-problem.d // (turns * 64 // lanes))


def estimate_backward_time(problem: ScanSizes, turns: int) -> float:
    """Estimate the cycles of all programs of the backward per step of time, and of their parts.

    Programs run in rounds of four on each scheduler; the last round may have fewer, which are faster.
    """
    parts = count_groups(problem.n) * problem.b * problem.m * count_blocks(problem, turns)
    rounds, rest = divmod(-(-parts // problem.schedulers), len(CYCLES))
    cycles = rounds * CYCLES[-1] + (CYCLES[rest - 1] if rest else 0)
    return turns * cycles + 8 * parts * (count_group_states(problem) + 1) / PART_RATE


def count_group_states(problem: ScanSizes) -> int:
    """Return the number of states of a group; the last group is padded with zeros."""
    return -(-problem.n // count_groups(problem.n))


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
