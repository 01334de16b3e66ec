"""Sizes of tiles and numbers of programs of the kernels that go over rows of channels."""

from typing import NamedTuple

TILE = 2048
"""Numbers of a tile: 16 registers for each of the 128 threads of a program, in 4 loads of 16 bytes."""
PROGRAMS = 1056
"""Programs of a kernel that sums over rows, each with a part to merge: 8 on each of an H100's processors."""
WIDEST = 64
"""Channels of a tile at most: whole lines of 128 bytes even in bfloat16."""


class RowTiles(NamedTuple):
    """Tiles of `rows` by `columns`, of which a program of a sum has `each`, one below the other.

    There are `blocks` of channels, `tiles` of rows, and `chunks` of `each` tiles. All depends on sizes alone,
    not on the device, and so does the order of sums.
    """

    rows: int
    columns: int
    blocks: int
    tiles: int
    chunks: int
    each: int


def cut_into_tiles(rows: int, d: int, widest: int = WIDEST) -> RowTiles:
    """Return the tiles of an array (rows, d), with blocks of at most `widest` channels."""
    columns = min(widest, round_up_to_power(d))
    blocks, tiles = -(-d // columns), -(-rows // (TILE // columns))
    each = max(1, -(-tiles * blocks // PROGRAMS))
    return RowTiles(TILE // columns, columns, blocks, tiles, -(-tiles // each), each)


def round_up_to_power(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
