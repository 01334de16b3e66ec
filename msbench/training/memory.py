"""Detection of errors that report a lack of memory, and their message in one line."""

import torch

MESSAGES = (
    *("can't allocate memory", "Cannot allocate memory", "DefaultCPUAllocator: not enough memory"),
    *("Storage size calculation overflowed", "bad_alloc"),
    *("CUDA out of memory", "error: out of memory", "[CUDA]: out of memory"),
    *("_ALLOC_FAILED", "_ALLOCATION_FAILED"),
)
"""Texts of errors without a type of their own.

On a CPU: torch's and the system's on Linux, torch's on Windows, a byte count that overflows, C++. On a GPU:
torch, the CUDA driver, Triton; cuBLAS, cuFFT and cuDNN, which allocate outside of torch.
"""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error reports that memory ran out, on a CPU or a GPU."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(text in str(error) for text in MESSAGES)


def describe_memory_error(error: BaseException) -> str:
    """Return the first line of torch's message, which has the size requested, without frames and advice."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0].partition(" If reserved but unallocated")[0]
    return first.rpartition("DefaultCPUAllocator: ")[2].rstrip(".")
