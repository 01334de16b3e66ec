"""The threads of the C++ kernels: those in which PyTorch computes too, where it has an OpenMP runtime.

Between two operations that runtime's threads wait on a core each, for milliseconds. Threads of the kernels'
own would have to share these cores with them.
"""

import ctypes
import os
from functools import cache, partial
from pathlib import Path

import torch

FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_max_threads")
"""Every OpenMP runtime on Linux has them, whichever compiler it came with."""
NONE = (None,) * len(FUNCTIONS)


def share(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` run in PyTorch's threads; where there are none, they start their own."""
    lib.msbench_share_threads.argtypes = (ctypes.c_void_p,) * len(FUNCTIONS)
    lib.msbench_share_threads.restype = None
    lib.msbench_share_threads(*runtime())
    if runtime() != NONE:
        # The runtime's threads are not there in a forked process, and it would wait for them for ever.
        os.register_at_fork(after_in_child=partial(keep_apart, lib))


def keep_apart(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` start threads of their own."""
    lib.msbench_share_threads(*NONE)


def described() -> str:
    """Whose threads the kernels run in, for people."""
    return "PyTorch's" if runtime() != NONE else "their own: PyTorch has no OpenMP runtime that is known here"


@cache
def runtime() -> tuple[int | None, ...]:
    """The addresses of `FUNCTIONS` in the runtime that PyTorch is linked with; None where it has none."""
    try:
        # Looks in the library and in those that it needs: in no other runtime that may be loaded.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        found = [getattr(library, name) for name in FUNCTIONS]
    except (OSError, AttributeError):
        return NONE
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in found)
