"""Low-rank step sizes on a GPU in Triton, `msbench.ops.scan.reference.step_sizes`, and their gradients.

One kernel each way reads and writes every step size once; in PyTorch operations they pass through memory six
times. Blocks depend on sizes alone and sums have a fixed order, so that results are bit-equal in every run.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of

KERNELS = "msbench.ops.gpu.scan_step_kernels"
LARGEST_SUM = 16
"""The largest rank whose sums fit into a lane's registers; beyond, they are matrix products in PyTorch."""
PROGRAMS = 4 * 528
"""Programs at least, where there are so many rows: four on each scheduler of an H100."""


class LowRankShape(NamedTuple):
    """The compile-time constants of `msbench.ops.gpu.scan_step_kernels`.

    Parameters
    ----------
    M, GROUPS : streams, and the gradients of a step size that are to be summed
    D, R : channels and rank
    COLUMNS, CHANNELS, ROWS : columns of programs over the channels, and the tile of one
    SUMS : True if the gradients of low and W are summed in the kernel
    """

    M: int
    GROUPS: int
    D: int
    R: int
    COLUMNS: int
    CHANNELS: int
    ROWS: int
    SUMS: bool


def choose_step_shape(bias: Tensor, rank: int, groups: int = 1) -> LowRankShape:
    """Return the shape of the kernels for bias (m, d): one that needs at most 255 registers.

    A lane has W of its channels, and of the gradients' sums as many, in registers.
    """
    m, d = bias.shape
    widest = 128 if rank <= 12 else 64 if rank <= 32 else 32
    channels = min(widest, max(32, 1 << (d - 1).bit_length()))
    rows = 8 if rank <= 4 else 4 if rank <= 16 else 2
    return LowRankShape(m, groups, d, rank, -(-d // channels), channels, rows, rank <= LARGEST_SUM)


def count_tiles(shape: LowRankShape, steps: int, programs: int) -> tuple[int, int]:
    """Return the tiles of rows of a program, and the programs of a column."""
    most = -(-steps // shape.ROWS)
    tiles = -(-most // -(-programs // (shape.M * shape.COLUMNS)))
    return tiles, -(-most // tiles)


def compute_steps(low: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return dt (b, l, m, d) in float32 from low (b, l, m, r), with one stride between rows."""
    b, length, m, rank = low.shape
    shape = choose_step_shape(bias, rank)
    tiles, parts = count_tiles(shape, b * length, 4 * PROGRAMS)
    dt = torch.empty(b, length, m, shape.D, device=low.device)
    with use_device_of(low):
        load_kernels(KERNELS).compute_steps[(m * shape.COLUMNS * parts,)](
            *(low, weight, bias, dt, b * length, low.stride(2), tiles, shape), num_warps=1
        )
    return dt


def compute_step_gradients(
    low: Tensor, weight: Tensor, bias: Tensor, g_dt: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of low, W and bias from that of dt (b, l, m groups, d), to sum over groups."""
    b, length, m, rank = low.shape
    steps, d = b * length, bias.shape[1]
    shape = choose_step_shape(bias, rank, g_dt.shape[2] // m)
    tiles, parts = count_tiles(shape, steps, PROGRAMS)
    g_low = bias.new_empty((shape.COLUMNS, *low.shape) if shape.SUMS else (steps, m, d))
    g_weight = bias.new_empty(parts if shape.SUMS else 0, m, d, rank)
    g_bias = bias.new_empty(parts, m, d)
    with use_device_of(low):
        load_kernels(KERNELS).compute_step_gradients[(m * shape.COLUMNS * parts,)](
            *(low, weight, bias, g_dt, g_low, g_weight, g_bias, steps, low.stride(2), tiles, shape),
            num_warps=1,
        )
    if shape.SUMS:
        summed = g_low[0] if shape.COLUMNS == 1 else g_low.sum(0)
        return summed.to(low.dtype), g_weight.sum(0), g_bias.sum(0)
    g = g_low.transpose(0, 1)
    of_low = torch.bmm(g, weight).transpose(0, 1).reshape(low.shape)
    of_weight = torch.bmm(g.mT, low.flatten(0, 1).transpose(0, 1).to(g.dtype))
    return of_low.to(low.dtype), of_weight, g_bias.sum(0)
