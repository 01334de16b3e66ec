"""Memory that goes from one call of a kernel to the next.

malloc gives a block of more than 32 MiB back to the system as soon as it is free, and the system clears
every page of the next one. For the states that a scan keeps for its backward, 34 MB, that made forward and
backward take 1.08 times as long. So large blocks wait here for the next call that wants as much, which in
training is the next step.
"""

import ctypes
import weakref

import torch
from torch import Tensor

LINE = 64
"""Bytes; vectors start on such a border, which torch promises for no allocation."""
LARGE = 1 << 20
"""Bytes; smaller blocks are left to malloc, which keeps them itself."""

_idle: dict[int, list[Tensor]] = {}
"""Blocks that nothing refers to, by their bytes."""


def empty(like: Tensor, size: int) -> Tensor:
    """An uninitialised vector of `size` numbers of the type of `like`, on the CPU and on a border of `LINE`.

    Its block goes to a later call when the last tensor that shares its storage is gone. Blocks that wait in
    vain, because another size is wanted, go back to the system.
    """
    count = size * like.element_size()
    if count < LARGE:
        return _on_border(torch.empty(count + LINE, dtype=torch.uint8, device="cpu"), count).view(like.dtype)
    waiting = _idle.setdefault(count, [])
    try:
        block = waiting.pop()
    except IndexError:
        release()
        block = torch.empty(count + LINE, dtype=torch.uint8, device="cpu")
    # The storage holds the array, and the array's end hands the block back. The end of a tensor would be too
    # early: autograd holds others with the same storage.
    array = (ctypes.c_char * count).from_address(_on_border(block, count).data_ptr())
    weakref.finalize(array, waiting.append, block).atexit = False
    return torch.frombuffer(array, dtype=like.dtype)


def release() -> None:
    """Give the blocks that wait back to the system."""
    for waiting in list(_idle.values()):
        waiting.clear()


def _on_border(block: Tensor, count: int) -> Tensor:
    offset = -block.data_ptr() % LINE
    return block[offset : offset + count]
