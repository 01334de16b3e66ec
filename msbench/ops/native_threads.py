"""The threads of the C++ kernels: PyTorch's own threads, if it has an OpenMP runtime.

Between operations the threads of that runtime spin on their cores for milliseconds; separate threads of the
kernels would have to share these cores with them.
"""

import ctypes
import os
from functools import cache, partial
from pathlib import Path

import torch

FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_max_threads")
"""Functions of every OpenMP runtime on Linux, regardless of its compiler."""
NONE = (None,) * len(FUNCTIONS)


def share(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` run in PyTorch's threads; without a runtime they start their own."""
    lib.msbench_share_threads.argtypes = (ctypes.c_void_p,) * len(FUNCTIONS)
    lib.msbench_share_threads.restype = None
    lib.msbench_share_threads(*runtime())
    if runtime() != NONE:
        # The runtime's threads do not exist in a forked process, and it would wait for them forever.
        os.register_at_fork(after_in_child=partial(keep_apart, lib))


def keep_apart(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` start their own threads."""
    lib.msbench_share_threads(*NONE)


def described() -> str:
    """Return a readable description of the kernels' threads."""
    return "PyTorch's" if runtime() != NONE else "their own: PyTorch has no OpenMP runtime that is known here"


@cache
def runtime() -> tuple[int | None, ...]:
    """Return the addresses of `FUNCTIONS` in the runtime that PyTorch links; all None if there is none."""
    try:
        # Searches the library and its dependencies, not other runtimes that may be loaded.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        found = [getattr(library, name) for name in FUNCTIONS]
    except (OSError, AttributeError):
        return NONE
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in found)
