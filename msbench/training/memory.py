"""Out of memory: how it shows, and what to do."""

import torch

SAID = (
    *("can't allocate memory", "Storage size calculation overflowed"),
    *("CUDA error: out of memory", "[CUDA]: out of memory", "_ALLOC_FAILED"),
)
"""What a plain RuntimeError says where memory ran out: torch's, of a CPU, also where the bytes cannot even be
counted; the CUDA driver's, to torch and to Triton; that of cuBLAS and cuDNN, which allocate next to torch."""


def is_out_of_memory(error: BaseException) -> bool:
    """True for what says that memory ran out, on a CPU or a GPU."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(x in str(error) for x in SAID)


def advice(error: BaseException) -> str:
    """What was asked for, in the first line of what torch said: without its frames and its further advice."""
    text = str(error).strip() or type(error).__name__
    first = text.splitlines()[0].partition(" If reserved but unallocated")[0]
    return first.rpartition("DefaultCPUAllocator: ")[2].rstrip(".")
