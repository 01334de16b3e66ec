"""Errors of lack of memory: their detection, and their message."""

import torch

SAID = (
    *("can't allocate memory", "Storage size calculation overflowed"),
    *("CUDA error: out of memory", "[CUDA]: out of memory", "_ALLOC_FAILED"),
)
"""Messages of a plain RuntimeError if memory ran out: torch's, of a CPU, also if the byte count overflows;
the CUDA driver's, to torch and to Triton; that of cuBLAS and cuDNN, which allocate outside of torch."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error reports that memory ran out, on a CPU or a GPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(x in str(error) for x in SAID)


def advice(error: BaseException) -> str:
    """Return the first line of torch's message, which has the size requested, without frames and advice."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0].partition(" If reserved but unallocated")[0]
    return first.rpartition("DefaultCPUAllocator: ")[2].rstrip(".")
