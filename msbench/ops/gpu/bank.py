"""A bank of filters on a GPU in Triton: its division into programs, kernel launches, sums of partial results.

Levels whose filters reach far together are computed in groups, one launch each, from the low-pass signal of
the group before: that signal is kept, and a kernel needs registers for the reach of its own levels only.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of

NAME = "triton"
KERNELS = "msbench.ops.gpu.bank_kernels"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST_TAPS = 24
"""The most taps of a filter: they, their sums and the past are in registers."""
REACH = 24
"""The most steps that the levels of a group reach back together, unless it is one level."""
WIDTH = 32
STEPS = (8, 4)
"""Steps of a chunk, forward and backward: as many as leave registers for ten warps on a multiprocessor."""
SPANS = (512, 256, 128, 64, 32)
"""Steps of a program. It reads what its filters reach outside of them as well, mostly from L2."""
PROGRAMS = (6000, 3000)
"""Programs that fill a GPU of 132 multiprocessors twice, forward and backward."""


def is_supported(x: Tensor, taps: Tensor) -> bool:
    """Return True if x (b, l, d) and taps (S, sides, k, d) have dtypes and sizes that the kernels take."""
    dtypes = x.dtype in DTYPES and taps.dtype in DTYPES
    return dtypes and x.numel() > 0 and taps.shape[2] <= MOST_TAPS


class BankShape(NamedTuple):
    """The compile-time constants of a kernel; see `msbench.ops.gpu.bank_kernels`.

    Parameters
    ----------
    D, M : channels, and streams of the whole bank
    LEVELS, SIDES, K, FILTERS : levels of this group, sides of a level, taps of a filter, all filters
    SIGNAL : True if the signal is a stream of this group
    LOW, LOW_AT : numbers between two steps of the last low-pass signal, and its place in a step
    LAG, ACROSS : numbers between two taps of a filter, and between two channels of a tap
    BIAS, SILU : True if filters have a bias, and if SiLU is applied to the (only) stream
    WIDTH, BLOCKS : channels of a program, and programs for all channels
    STEPS : steps of a chunk
    REACH, AROUND : steps that all levels reach together, and steps around a span, in whole chunks, that are
        computed as well
    LOWS, PAST, AHEAD : in the backward, low-pass signals to compute, tiles to hold for that, and steps that
        the input is ahead
    SUMS : numbers of a program's partial gradients of taps and biases, per channel
    """

    D: int
    M: int
    LEVELS: int
    SIDES: int
    K: int
    FILTERS: int
    SIGNAL: bool
    LOW: int
    LOW_AT: int
    LAG: int
    ACROSS: int
    BIAS: bool
    SILU: bool
    WIDTH: int
    BLOCKS: int
    STEPS: int
    REACH: int
    AROUND: int
    LOWS: int
    PAST: int
    AHEAD: int
    SUMS: int


def make_shape(taps: Tensor, first: int, stop: int, *, biased: bool, silu: bool, forward: bool) -> BankShape:
    """Return the shape of a kernel for the levels from `first` to `stop` - 1 of taps (S, sides, k, d)."""
    (levels, sides, k, d), own = taps.shape, stop - first
    m, lows = levels + 2 if sides == 2 else 1, own if silu else own - 1
    reach, ahead = (k - 1) * (2**own - 1), (k - 1) * (2**lows - 1)
    steps = STEPS[0 if forward else 1]
    # For the gradient through SiLU of steps after a span, their outputs are needed.
    around = reach + ahead if silu and not forward else reach
    return BankShape(
        D=d,
        M=m,
        LEVELS=own,
        SIDES=sides,
        K=k,
        FILTERS=own * sides,
        SIGNAL=sides == 2 and first == 0,
        LOW=m * d if stop == levels else d,
        LOW_AT=(m - 1 - first) * d if stop == levels else 0,
        LAG=taps.stride(2),
        ACROSS=taps.stride(3),
        BIAS=biased,
        SILU=silu,
        WIDTH=WIDTH,
        BLOCKS=-(-d // WIDTH),
        STEPS=steps,
        REACH=reach,
        AROUND=-(-around // steps) * steps,
        LOWS=lows,
        PAST=(k - 1) * (lows * 2**lows - 2**lows + 1),
        AHEAD=ahead,
        SUMS=own * sides * (k + biased),
    )


def group_levels(levels: int, k: int) -> list[tuple[int, int]]:
    """Return the groups of levels, fine to coarse: the first of each, and the first of the next."""
    size = max((n for n in range(1, levels + 1) if (k - 1) * (2**n - 1) <= REACH), default=1)
    return [(first, min(first + size, levels)) for first in range(0, levels, size)]


def choose_span(sequences: int, steps: int, programs: int) -> int:
    """Return the most steps of a program with which there are `programs`, or the fewest steps.

    `sequences` is the number of programs that together have one step of everything.
    """
    return next((span for span in SPANS if sequences * -(-steps // span) >= programs), SPANS[-1])


class BankLaunch(NamedTuple):
    """One launch of a kernel: numbers of programs and of partial sums, its integers and its constants."""

    grid: tuple[int]
    parts: int
    integers: tuple[int, ...]
    shape: BankShape


def plan_launch(x: Tensor, dilation: int, programs: int, shape: BankShape) -> BankLaunch:
    """Divide a signal (b, l, d) into programs; the dilation is that of the first level of a group."""
    b, length, _ = x.shape
    dilation = min(dilation, length)  # all other taps are before the first step anyway
    steps = -(-length // dilation)
    span = choose_span(b * dilation * shape.BLOCKS, steps, programs)
    parts = b * dilation * -(-steps // span)
    return BankLaunch((parts * shape.BLOCKS,), parts, (length, span, *x.stride()[:2], dilation), shape)


class TritonBankEngine:
    """A bank in Triton; of low-pass signals only those between groups of levels are kept.

    Results are bit-equal in every run: all sums have a fixed order, and programs depend on sizes alone.
    Arithmetic is float32, whatever the dtypes of signal and taps.

    Parameters
    ----------
    silu : True if SiLU is applied to the stream of a bank with one side
    programs : programs that fill a GPU, forward and backward
    """

    def __init__(self, *, silu: bool = False, programs: tuple[int, int] = PROGRAMS) -> None:
        self.silu, self.programs = silu, programs

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """Filter x (b, l, d) with taps (S, sides, k, d) and bias (S, sides, d).

        Returns the streams, (b, l, S + 2, d) or with one side (b, l, 1, d), and the low-pass signals between
        groups of levels.
        """
        (b, length, d), (levels, sides, k, _) = x.shape, taps.shape
        dtype = torch.promote_types(x.dtype, taps.dtype)
        half = x.dtype in (torch.bfloat16, torch.float16)
        outputs = levels + 2 if sides == 2 else 1
        streams = x.new_empty(b, length, outputs, d, dtype=x.dtype if half else dtype)
        kept = x.new_empty(self.kept_shape(x, taps), dtype=dtype)
        x, taps, bias = _make_dense(x), _arrange_taps(taps), None if bias is None else bias.contiguous()
        groups = group_levels(levels, k)
        with use_device_of(x):
            for (first, stop), inner in zip(groups, [*kept.unbind(0), None], strict=True):
                shape = make_shape(taps, first, stop, biased=bias is not None, silu=self.silu, forward=True)
                launch = plan_launch(x, dilation * 2**first, self.programs[0], shape)
                own = taps[first:stop], taps if bias is None else bias[first:stop]
                out = streams[:, :, first:]
                low = out if inner is None else inner
                load_kernels(KERNELS).bank_forward[launch.grid](
                    x, *own, out, low, *launch.integers, shape, num_warps=1
                )
                x = low
        return streams, kept

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, taps and bias (empty without a bias), from the coarsest level on."""
        g, taps, bias = g.contiguous(), _arrange_taps(taps), None if bias is None else bias.contiguous()
        levels, sides, k, d = taps.shape
        of_taps: list[Tensor] = []
        of_bias: list[Tensor] = []
        g_x, groups = g, group_levels(levels, k)
        with use_device_of(x):
            for (first, stop), signal in zip(
                groups[::-1], [_make_dense(x), *kept.unbind(0)][::-1], strict=True
            ):
                shape = make_shape(taps, first, stop, biased=bias is not None, silu=self.silu, forward=False)
                launch = plan_launch(signal, dilation * 2**first, self.programs[1], shape)
                own = taps[first:stop], taps if bias is None else bias[first:stop]
                of_streams = g[:, :, first:]
                of_low = of_streams if stop == levels else g_x
                g_x = torch.empty(x.shape, dtype=signal.dtype, device=x.device)
                parts = g.new_empty(launch.parts, shape.SUMS * d, dtype=torch.float32)
                load_kernels(KERNELS).bank_backward[launch.grid](
                    *(of_streams, of_low, signal, *own, g_x, parts),
                    *launch.integers,
                    shape,
                    num_warps=1,
                )
                total, count = parts.sum(0), shape.FILTERS * k * d
                of_taps.insert(0, total[:count].view(-1, sides, k, d))
                of_bias.insert(0, total[count:].view(-1 if len(total) > count else 0, sides, d))
        return g_x, _join(of_taps).to(taps.dtype), _join(of_bias).to(taps.dtype)

    def kept_shape(self, x: Tensor, taps: Tensor) -> tuple[int, ...]:
        """Return the shape of the low-pass signals between groups of levels."""
        return (len(group_levels(taps.shape[0], taps.shape[2])) - 1, *x.shape)


def _join(levels: list[Tensor]) -> Tensor:
    """Return the levels of all groups as one tensor."""
    return levels[0] if len(levels) == 1 else torch.cat(levels)


def _arrange_taps(taps: Tensor) -> Tensor:
    """Return contiguous taps; those of a single filter may be transposed and are not copied."""
    return taps if taps.shape[:2] == (1, 1) else taps.contiguous()


def _make_dense(x: Tensor) -> Tensor:
    """Return x (b, l, d) with contiguous channels; half of a projection has them and is not copied."""
    return x if x.stride(2) == 1 else x.contiguous()
