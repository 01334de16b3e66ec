"""A pool of large blocks of memory, reused between calls of a kernel.

malloc returns a freed block of more than 32 MiB to the system at once, and the system clears every page of
the next one. For the states that a scan keeps for its backward, 34 MB, that made forward and backward take
1.08 times as long. So large blocks stay in this pool for the next call of the same size, which in training is
the next step.
"""

import ctypes
import weakref

import torch
from torch import Tensor

LINE = 64
"""Alignment of vectors in bytes, which torch does not guarantee."""
LARGE = 1 << 20
"""Size in bytes from which blocks are pooled; malloc keeps smaller ones itself."""

_idle: dict[int, list[Tensor]] = {}
"""Unused blocks, by their size in bytes."""


def empty(like: Tensor, size: int) -> Tensor:
    """Return an uninitialised CPU vector of `size` numbers with the dtype of `like`, aligned to `LINE`.

    Its block becomes reusable when the last tensor that shares its storage is gone. When another size is
    requested, unused blocks are returned to the system.
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
    # The storage owns the array, whose finaliser returns the block to the pool. A finaliser of the tensor
    # would be too early: autograd holds other tensors with the same storage.
    array = (ctypes.c_char * count).from_address(_on_border(block, count).data_ptr())
    weakref.finalize(array, waiting.append, block).atexit = False
    return torch.frombuffer(array, dtype=like.dtype)


def release() -> None:
    """Return all unused blocks to the system."""
    for waiting in list(_idle.values()):
        waiting.clear()


def _on_border(block: Tensor, count: int) -> Tensor:
    offset = -block.data_ptr() % LINE
    return block[offset : offset + count]
