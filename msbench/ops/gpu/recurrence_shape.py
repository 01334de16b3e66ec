"""The partition of linear recurrences into programs of one warp on a GPU, by a rule of sizes alone.

Among the layouts of a constant system over 32 lanes the one with the shortest estimated time is taken, for a
GPU of 132 multiprocessors (an H100).
"""

from collections.abc import Iterator
from typing import NamedTuple

EVERY = 64
"""Steps between two corrections of rounded decays: within a span they are off by 64 half units at most."""
SCHEDULERS = 4 * 132
REGISTERS, OTHER_REGISTERS = 236, 36
"""Registers of a lane, of the 255 that it can have, and those for addresses, masks and other values."""
MOST_REGISTERS = 512
"""Registers of the lanes of a scheduler, divided by the number of lanes of a warp."""
LATENCY = 700
"""Cycles from a load from memory to its use."""
STEPS, STEPS_TOGETHER = 8, 4
"""Steps on their way while others are computed: of one stream, and of several or with sums over lanes."""


class SystemShape(NamedTuple):
    """The compile-time constants of a kernel; see `msbench.ops.gpu.recurrence_kernels`.

    Parameters
    ----------
    M, D, N : streams, channels, states
    STREAMS : streams in one program
    LN, LD : lanes along the states and along the channels
    KN : states of a stream in one lane
    BLOCKS : programs that together cover all channels
    WHOLE : True if they end with the last channel
    SPREAD : True if all streams get one input, by their weights
    MIXED : True if their outputs are summed by their weights; of gradients, if the weights get one
    SKIP, REVERSE : True if streams have skips, and if time runs backwards
    INPUT, OUTPUT : numbers of a step of the inputs and of the outputs
    EVERY, STEPS : steps between corrections, and those that are loaded together
    """

    M: int
    D: int
    N: int
    STREAMS: int
    LN: int
    LD: int
    KN: int
    BLOCKS: int
    WHOLE: bool
    SPREAD: bool
    MIXED: bool
    SKIP: bool
    REVERSE: bool
    INPUT: int
    OUTPUT: int
    EVERY: int
    STEPS: int


class SystemSizes(NamedTuple):
    """Sizes of a constant system, its optional parts, and the size of the GPU that the rule assumes."""

    b: int
    m: int
    d: int
    n: int
    mixed: bool
    skip: bool
    every: int = EVERY
    schedulers: int = SCHEDULERS


class SystemLayout(NamedTuple):
    """Streams in one program, and lanes along the states."""

    streams: int
    lanes: int


def choose_output_shape(sizes: SystemSizes) -> SystemShape | None:
    """Return the shape of the kernel of the outputs: all streams of a mixture in one program.

    None if the states of so many streams are too many for the registers of a warp.
    """
    streams = sizes.m if sizes.mixed else 1
    return _choose(sizes, streams, registers=3, instructions=2, spread=False, mixed=sizes.mixed)


def choose_input_shape(sizes: SystemSizes) -> SystemShape | None:
    """Return the shape of the kernel of the gradient of the inputs, or None if no layout has the room."""
    shape = _choose(sizes, 1, registers=3, instructions=2, spread=sizes.mixed, mixed=False)
    return shape and shape._replace(REVERSE=True)


def choose_gradient_shape(sizes: SystemSizes, *, of_mix: bool) -> SystemShape | None:
    """Return the shape of the kernel of the other gradients, or None if no layout has the room."""
    registers, instructions = (7, 5) if of_mix else (6, 4)
    return _choose(sizes, 1, registers, instructions, spread=sizes.mixed, mixed=of_mix, crowded=3)


def _choose(
    sizes: SystemSizes,
    streams: int,
    registers: int,
    instructions: int,
    *,
    spread: bool,
    mixed: bool,
    crowded: int = 0,
) -> SystemShape | None:
    """Return the fastest shape; with several lanes of states each state takes `crowded` more registers."""

    def estimate(layout: SystemLayout) -> float:
        needed = registers + crowded * (layout.lanes > 1)
        steps = count_steps(layout, mixed=mixed)
        return estimate_system_time(sizes, layout, needed, instructions, steps)

    best = min(list_system_layouts(streams), key=estimate)
    if estimate(best) == float("inf"):
        return None
    return make_system_shape(sizes, best, spread=spread, mixed=mixed)


def list_system_layouts(streams: int) -> Iterator[SystemLayout]:
    """Yield all layouts; the first one of equal times is taken."""
    for lanes in (1, 2, 4, 8, 16, 32):
        yield SystemLayout(streams, lanes)


def estimate_system_time(
    sizes: SystemSizes, layout: SystemLayout, registers: int, instructions: int, steps: int
) -> float:
    """Estimate the cycles of a scheduler per step of time.

    A state takes so many instructions and registers, a channel of a stream 4 more for loads and skips, and
    its sum over lanes 2 for each halving. Fewer than 8 channels side by side waste bandwidth: a sector has 8.
    A step takes what all resident programs issue, or the time of one that waits for its loads.
    """
    streams, lanes = layout
    held = streams * count_lane_states(sizes.n, lanes)
    ahead = steps * streams * 2
    needed = registers * held + ahead + OTHER_REGISTERS
    if needed > REGISTERS:
        return float("inf")
    width = 32 // lanes
    programs = sizes.b * sizes.m // streams * -(-sizes.d // width) / sizes.schedulers
    resident = min(MOST_REGISTERS // needed, max(1, round(programs)))
    sectors = 0.5 * streams * max(1, 8 // width)
    issued = instructions * held + 4 * streams + 2 * lanes.bit_length() + 6 + sectors
    cycles = max(1.06 * resident * issued, issued + LATENCY / steps)
    return max(programs / resident, 1) * cycles


def count_lane_states(n: int, lanes: int) -> int:
    """Return the number of states of a stream in a lane."""
    return -(-n // lanes)


def count_steps(layout: SystemLayout, *, mixed: bool) -> int:
    """Return the number of steps that are loaded ahead: fewer where they take more registers."""
    return STEPS if layout.streams == 1 and (layout.lanes == 1 or not mixed) else STEPS_TOGETHER


def make_system_shape(sizes: SystemSizes, layout: SystemLayout, *, spread: bool, mixed: bool) -> SystemShape:
    """Return the shape of a layout."""
    width = 32 // layout.lanes
    return SystemShape(
        M=sizes.m,
        D=sizes.d,
        N=sizes.n,
        STREAMS=layout.streams,
        LN=layout.lanes,
        LD=width,
        KN=count_lane_states(sizes.n, layout.lanes),
        BLOCKS=-(-sizes.d // width),
        WHOLE=sizes.d % width == 0,
        SPREAD=spread,
        MIXED=mixed,
        SKIP=sizes.skip,
        REVERSE=False,
        INPUT=sizes.d if spread else sizes.m * sizes.d,
        OUTPUT=sizes.d if mixed else sizes.m * sizes.d,
        EVERY=sizes.every,
        STEPS=count_steps(layout, mixed=mixed),
    )


class LinearShape(NamedTuple):
    """The compile-time constants of the kernels of single states.

    Parameters
    ----------
    D, BLOCKS : channels, and programs that together cover them
    LT, LD, ROUNDS : lanes along time and along the channels; log2 of the former
    STEPS : steps of a lane in registers
    COMPLEX, CONSTANT : True if numbers are complex, and if decays are the same in all steps
    """

    D: int
    BLOCKS: int
    LT: int
    LD: int
    ROUNDS: int
    STEPS: int
    COMPLEX: bool
    CONSTANT: bool


BUSY_PROGRAMS = 2 * SCHEDULERS
"""Programs whose loads fill the memory's queues: 4 kB each, and 4 MB in all, of 3.3 TB/s times 0.7 us."""


def choose_linear_shape(
    b: int, d: int, *, is_complex: bool, constant: bool, busy: int = BUSY_PROGRAMS
) -> LinearShape:
    """Return the shape of the kernels of single states: as many lanes along time as a GPU needs to be busy.

    A sector has 32 bytes: fewer channels side by side are for batches that are too small for anything else.
    """
    sector = 4 if is_complex else 8
    for rounds in range(6):
        width = 32 >> rounds
        programs = b * -(-d // width)
        if programs >= (busy if width > sector else busy // 8):
            break
    return LinearShape(
        D=d,
        BLOCKS=-(-d // width),
        LT=1 << rounds,
        LD=width,
        ROUNDS=rounds,
        STEPS=8 if is_complex else 16,
        COMPLEX=is_complex,
        CONSTANT=constant,
    )
