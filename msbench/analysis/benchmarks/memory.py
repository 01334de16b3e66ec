"""The peak memory of one call.

On Linux the kernel tracks the peak resident memory of a process: the mark is reset, the call is made, the
mark is read. Reuse of pages that earlier calls left behind would go unseen, so recycled buffers are released,
and from the first measurement on, blocks of 64 KiB and more are mapped one by one. That slows allocations
down: measure times first.
"""

import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from msbench.ops import native_library

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
M_MMAP_THRESHOLD = -3
MAPPED_FROM = 1 << 16
"""Bytes; smaller blocks come from malloc's arenas, which may keep a few MB of them."""


@dataclass(frozen=True)
class Peak:
    """Bytes above those held before the call; None, with the reason, if unknown."""

    bytes: int | None
    reason: str = ""


UNKNOWN = Peak(None, "not measured")


def peak(call: Callable[[], Any], device: str) -> tuple[Peak, Any]:
    """Return the peak of one call, and its result, whose memory is included."""
    gc.collect()
    if device == "cuda":
        return _cuda(call)
    fault = unavailable()
    if fault:
        return Peak(None, fault), None
    _trim()
    CLEAR.write_text("5", encoding="ascii")
    before = _high_water()
    returned = call()
    return Peak(max(0, _high_water() - before)), returned


def size_of(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of tensors."""
    return sum(x.numel() * x.element_size() for x in tensors)


@cache
def unavailable() -> str:
    """Return why the peak is unavailable on this system; an empty string if it is available."""
    if not sys.platform.startswith("linux"):
        return "the peak of a call is read from /proc, which only Linux has"
    try:
        CLEAR.write_text("5", encoding="ascii")
        _high_water()
    except (OSError, ValueError) as error:
        return f"the high-water mark of memory cannot be set back here: {error}"
    return "" if _glibc() is not None else "allocations can be told apart with glibc only"


def _cuda(call: Callable[[], Any]) -> tuple[Peak, Any]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = call()
    torch.cuda.synchronize()
    return Peak(torch.cuda.max_memory_allocated() - before), returned


def _high_water() -> int:
    lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _trim() -> None:
    libc = _glibc()
    assert libc is not None
    native_library.release_unused_blocks()
    libc.mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
    libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library with the two functions that only glibc has, or None."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        libc.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (OSError, AttributeError):
        return None
    return libc
