"""The selective scan in C++ (``native/scan.cpp``), compiled at install and called through ctypes.

The library needs neither torch's headers nor Python's: it reads plain arrays. Where no compiler was there at
install it is missing, `name` is None, and the choice in `msbench.ops.scan` falls on PyTorch operations.
"""

import ctypes
import importlib.util
import warnings
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from msbench.ops import scan_function
from msbench.ops.scan_arguments import Arguments

MODULE = "msbench.ops._native"
INSTRUCTIONS = {1: "baseline", 2: "avx2", 3: "avx512"}
TENSORS = ("u", "dt", "A", "B", "C", "skip", "mix")
KINDS = {torch.float32: "f32", torch.float64: "f64"}
LINE = 64
"""Bytes; the kept states start on such a border."""


class Problem(ctypes.Structure):
    """``ScanProblem`` of ``native/problem.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "m", "d", "n")),
        ("counts", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in TENSORS),
        *((name, ctypes.c_int32) for name in ("raw", "threads", "instructions")),
    )


class Gradients(ctypes.Structure):
    """``ScanGradients`` of ``native/problem.h``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in TENSORS)


@cache
def library() -> ctypes.CDLL | None:
    """The compiled kernel, or None where it was not built or cannot be loaded."""
    spec = importlib.util.find_spec(MODULE)
    if spec is None or spec.origin is None:
        return None
    try:
        lib = ctypes.CDLL(spec.origin)
    except OSError as error:
        # Built, but not to be loaded: not the same as no compiler, and not to be passed over in silence.
        warnings.warn(f"the C++ kernels are left out: {error}", RuntimeWarning, stacklevel=2)
        return None
    lib.msbench_scan_kept.restype = ctypes.c_int64
    lib.msbench_scan_kept.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    for kind in KINDS.values():
        getattr(lib, f"msbench_scan_forward_{kind}").argtypes = (ctypes.c_void_p,) * 3
        getattr(lib, f"msbench_scan_backward_{kind}").argtypes = (ctypes.c_void_p,) * 4
    return lib


def name() -> str | None:
    """The kernel's name with the instruction set that this processor gets, such as ``cpp-avx512``."""
    lib = library()
    if lib is None:
        return None
    return f"cpp-{INSTRUCTIONS[lib.msbench_scan_instructions(ctypes.byref(Problem()))]}"


def scan(arguments: Arguments, *, scaled: bool) -> Tensor:
    """`msbench.ops.scan.selective_scan` on CPU tensors of one dtype, float32 or float64."""
    # Here and not in the engine, so that the backward finds the copies made.
    contiguous = [None if x is None else x.contiguous() for x in arguments]
    return scan_function.apply(ENGINE, contiguous, scaled=scaled)


class Engine:
    """`forward` and `backward` for `scan_function`, on contiguous tensors as `selective_scan` takes them."""

    def forward(self, tensors: Sequence[Tensor | None], *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `scan_function.Engine`; one state in 16 is kept."""
        tensors = [None if x is None else x.contiguous() for x in tensors]  # a slice that vmap took is not
        u, mix = tensors[0], tensors[6]
        assert u is not None
        problem = _problem(tensors, scaled)
        b, length, m, d = u.shape
        out = u.new_empty((b, length, m, d) if mix is None else (b, length, d))
        kept = _aligned(
            u, _library().msbench_scan_kept(ctypes.byref(problem), u.element_size()) if keep else 0
        )
        _call("forward", u, problem, out.data_ptr(), kept.data_ptr() if keep else None)
        return out, kept

    def backward(
        self, tensors: Sequence[Tensor | None], kept: Tensor, gy: Tensor, *, scaled: bool
    ) -> Sequence[Tensor | None]:
        """See `scan_function.Engine`."""
        tensors = [None if x is None else x.contiguous() for x in tensors]
        u, gy = tensors[0], gy.contiguous()
        assert u is not None
        gradients = [None if x is None else torch.empty_like(x) for x in tensors]
        pointers = Gradients(*map(_pointer, gradients))
        problem = _problem(tensors, scaled)
        if kept.data_ptr() % LINE:  # a slice that vmap took
            kept = _aligned(u, kept.numel()).copy_(kept)
        _call("backward", u, problem, gy.data_ptr(), kept.data_ptr(), ctypes.addressof(pointers))
        return gradients


ENGINE = Engine()


def _problem(tensors: Sequence[Tensor | None], scaled: bool) -> Problem:
    u, A = tensors[0], tensors[2]
    assert u is not None
    assert A is not None
    pointers = map(_pointer, tensors)
    return Problem(*u.shape, A.shape[2], None, *pointers, not scaled, torch.get_num_threads(), 0)


def _aligned(like: Tensor, size: int) -> Tensor:
    """An uninitialised vector on a border of `LINE` bytes, which torch promises for no allocation."""
    spare = LINE // like.element_size()
    raw = like.new_empty(size + spare)
    offset = -raw.data_ptr() % LINE // like.element_size()
    return raw[offset : offset + size]


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _library() -> ctypes.CDLL:
    lib = library()
    assert lib is not None, "the choice of engines has seen that the library is there"
    return lib


def _call(what: str, u: Tensor, problem: Problem, *arguments: int | None) -> None:
    function = getattr(_library(), f"msbench_scan_{what}_{KINDS[u.dtype]}")
    if function(ctypes.byref(problem), *arguments) != 0:
        raise MemoryError(f"not enough memory for the {what} of a scan of {tuple(u.shape)}")
