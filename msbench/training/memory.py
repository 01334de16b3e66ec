"""Out of memory: how it shows, and what to do."""

import torch

CPU_OUT_OF_MEMORY = "can't allocate memory"
"""What torch says in a plain RuntimeError where the CPU's memory ran out."""


def is_out_of_memory(error: BaseException) -> bool:
    """True for what says that memory ran out, on a CPU or a GPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or CPU_OUT_OF_MEMORY in str(error)


def advice(error: BaseException) -> str:
    """What was asked for, in the first line of what torch said: without its frames and its further advice."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0].partition(" If reserved but unallocated")[0]
    return first.rpartition("DefaultCPUAllocator: ")[2].rstrip(".")
