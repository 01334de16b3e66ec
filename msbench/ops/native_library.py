"""The library of C++ kernels (``native/``), compiled at install and called through ctypes.

It needs neither torch's headers nor Python's: it reads plain arrays. It is missing if no compiler was
available at install; then PyTorch operations are used.

Its kernels run in PyTorch's own threads, if that has an OpenMP runtime. Between operations the threads of the
runtime spin on their cores for milliseconds; separate threads of the kernels would have to share these cores
with them.

Large blocks of memory are reused between calls. malloc returns a freed block of more than 32 MiB to the
system at once, and the system clears every page of the next one. For the states that a scan keeps for its
backward, 34 MB, that made forward and backward take 1.08 times as long. So large blocks stay in a pool for
the next call of the same size, which in training is the next step.
"""

import ctypes
import importlib.util
import os
import warnings
import weakref
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

MODULE = "msbench.ops._native"
NEWEST = "msbench_share_threads"
"""A symbol that libraries built from older sources lack."""
KINDS = {torch.float32: "f32", torch.float64: "f64"}
"""Suffixes of the functions of a dtype; complex numbers are pairs of real ones."""

INSTRUCTIONS = {1: "baseline", 2: "avx2", 3: "avx512"}
instructions = 0
"""The instruction set, a key of `INSTRUCTIONS`, for tests; 0 takes the best of the processor."""

OPENMP_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_max_threads")
"""Functions of every OpenMP runtime on Linux, regardless of its compiler."""
NO_RUNTIME = (None,) * len(OPENMP_FUNCTIONS)

LINE = 64
"""Alignment of vectors in bytes, which torch does not guarantee."""
LARGE = 1 << 20
"""Size in bytes from which blocks are pooled; malloc keeps smaller ones itself."""

_idle: dict[int, list[Tensor]] = {}
"""Unused blocks, by their size in bytes."""


@cache
def load_library() -> ctypes.CDLL | None:
    """Return the compiled library, or None if it was not built or cannot be loaded."""
    lib, fault = _open_library()
    if fault:
        # Built, but not loadable: unlike a missing compiler this deserves a warning.
        warnings.warn(f"the C++ kernels are not used: {fault}", RuntimeWarning, stacklevel=2)
    if lib is not None:
        share_threads(lib)
    return lib


@cache
def _open_library() -> tuple[ctypes.CDLL | None, str]:
    """Return the library, or None, and the reason if an existing library cannot be loaded."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None, ""
    try:
        lib = ctypes.CDLL(spec.origin)
    except OSError as error:
        return None, str(error)
    if not hasattr(lib, NEWEST):
        return None, f"{spec.origin} was built from an older msbench: install it again"
    return lib, ""


def find_missing(device: str) -> str:
    """Return the reason that the C++ kernels cannot be used on a device type, or an empty string."""
    if device != "cpu":
        return f"the C++ kernels do not run on {device}"
    if fault := _open_library()[1]:
        return f"the C++ kernels cannot be loaded: {fault}"
    if load_library() is None:
        return (
            "msbench was installed without a C++ compiler; with g++ or clang, and msbench installed again,"
            " a training step of the suite quick takes about a quarter of the time"
        )
    return ""


def is_supported(x: Tensor) -> bool:
    """Return True for tensors that the C++ kernels take as they are: real, on the CPU, not empty."""
    return x.device.type == "cpu" and x.dtype in KINDS and x.numel() > 0


def call(name: str, like: Tensor, problem: ctypes.Structure, *arguments: object) -> None:
    """Call the function `name` of the dtype of `like` with a problem, and tensors, structures or None.

    Raises MemoryError, naming the shape of `like`, if it cannot allocate its work space.
    """
    lib = load_library()
    assert lib is not None, "the choice of kernels has checked that the library is available"
    dtype = like.real.dtype if like.is_complex() else like.dtype
    function = getattr(lib, f"msbench_{name}_{KINDS[dtype]}")
    addresses = [ctypes.c_void_p(get_address(x)) for x in arguments]
    if function(ctypes.byref(problem), *addresses) != 0:
        raise MemoryError(f"not enough memory for the {name.replace('_', ' ')} of {tuple(like.shape)}")


def get_address(x: object) -> int | None:
    """Return the address of a tensor's data or of a structure; None for None."""
    if isinstance(x, Tensor):
        return x.data_ptr()
    return None if x is None else ctypes.addressof(x)  # type: ignore[arg-type]


def execution_options() -> tuple[int, int]:
    """Return the number of threads and the instruction set: the last fields of every problem."""
    return torch.get_num_threads(), instructions


def share_threads(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` run in PyTorch's threads; without a runtime they start their own."""
    lib.msbench_share_threads.argtypes = (ctypes.c_void_p,) * len(OPENMP_FUNCTIONS)
    lib.msbench_share_threads.restype = None
    lib.msbench_share_threads(*find_runtime())
    if find_runtime() != NO_RUNTIME:
        # The runtime's threads do not exist in a forked process, and it would wait for them forever.
        os.register_at_fork(after_in_child=partial(separate_threads, lib))


def separate_threads(lib: ctypes.CDLL) -> None:
    """Let the kernels of `lib` start their own threads."""
    lib.msbench_share_threads(*NO_RUNTIME)


def describe_threads() -> str:
    """Return a readable description of the kernels' threads."""
    if find_runtime() == NO_RUNTIME:
        return "their own: no known OpenMP runtime was found in PyTorch"
    return "PyTorch's"


@cache
def find_runtime() -> tuple[int | None, ...]:
    """Return the addresses of `OPENMP_FUNCTIONS` in the runtime that PyTorch links, all None without one."""
    try:
        # Searches the library and its dependencies, not other runtimes that may be loaded.
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        found = [getattr(library, name) for name in OPENMP_FUNCTIONS]
    except (OSError, AttributeError):
        return NO_RUNTIME
    return tuple(ctypes.cast(function, ctypes.c_void_p).value for function in found)


def allocate(like: Tensor, size: int) -> Tensor:
    """Return an uninitialised CPU vector of `size` numbers with the dtype of `like`, aligned to `LINE`.

    Its block becomes reusable when the last tensor that shares its storage is gone. When another size is
    requested, unused blocks are returned to the system.
    """
    count = size * like.element_size()
    if count < LARGE:
        return _align(torch.empty(count + LINE, dtype=torch.uint8, device="cpu"), count).view(like.dtype)
    unused = _idle.setdefault(count, [])
    try:
        block = unused.pop()
    except IndexError:
        release_unused_blocks()
        block = torch.empty(count + LINE, dtype=torch.uint8, device="cpu")
    # The storage owns the array, whose finaliser returns the block to the pool. A finaliser of the tensor
    # would be too early: autograd holds other tensors with the same storage.
    array = (ctypes.c_char * count).from_address(_align(block, count).data_ptr())
    weakref.finalize(array, unused.append, block).atexit = False
    return torch.frombuffer(array, dtype=like.dtype)


def release_unused_blocks() -> None:
    """Return all unused blocks to the system."""
    for unused in list(_idle.values()):
        unused.clear()


def _align(block: Tensor, count: int) -> Tensor:
    offset = -block.data_ptr() % LINE
    return block[offset : offset + count]
