"""The selective scan in C++ (``native/scan.cpp``), compiled at install and called through ctypes.

The library needs neither torch's headers nor Python's: it reads plain arrays. Where no compiler was there at
install it is missing, `name` is None, and the choice in `msbench.ops.scan` falls on PyTorch operations.
"""

import ctypes
import importlib.util
import warnings
from functools import cache

import torch
from torch import Tensor

from msbench.ops.scan_arguments import Arguments, contiguous, empty_like

MODULE = "msbench.ops._native"
INSTRUCTIONS = {1: "baseline", 2: "avx2", 3: "avx512"}
TENSORS = ("u", "dt", "A", "B", "C", "skip", "mix")
KINDS = {torch.float32: "f32", torch.float64: "f64"}
LINE = 64
"""Bytes; the kept states start on such a border."""
STEPS = 16
"""Steps between two kept states."""


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
    for kind in KINDS.values():
        getattr(lib, f"msbench_scan_forward_{kind}").argtypes = (ctypes.c_void_p,) * 3
        getattr(lib, f"msbench_scan_backward_{kind}").argtypes = (ctypes.c_void_p,) * 4
    return lib


def name() -> str:
    """The kernel's name with the instruction set that this processor gets, such as ``cpp-avx512``."""
    return f"cpp-{INSTRUCTIONS[_library().msbench_scan_instructions(ctypes.byref(Problem()))]}"


class Engine:
    """See `msbench.ops.scan_operator.Engine`; one state in 16 is kept."""

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `scan_operator.Engine`."""
        tensors = contiguous(arguments)
        u, mix = tensors[0], tensors[6]
        b, length, m, d = u.shape
        out = u.new_empty((b, length, m, d) if mix is None else (b, length, d))
        kept = _aligned(u, self.kept_shape(u, tensors[2])[0] if keep else 0)
        _call("forward", u, _problem(tensors, scaled), out.data_ptr(), kept.data_ptr() if keep else None)
        return out, kept

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """See `scan_operator.Engine`."""
        tensors = contiguous(arguments)
        u, gradients = tensors[0], empty_like(tensors)
        pointers = Gradients(*map(_pointer, gradients))
        if kept.data_ptr() % LINE:  # a slice that vmap took
            kept = _aligned(u, kept.numel()).copy_(kept)
        addresses = gy.contiguous().data_ptr(), kept.data_ptr(), ctypes.addressof(pointers)
        _call("backward", u, _problem(tensors, scaled), *addresses)
        return gradients

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int]:
        """One state in 16, in whole lines of channels; as `msbench_scan_kept` of the library has it."""
        b, length, _, d = u.shape
        line = LINE // u.element_size()
        return (b * -(-length // STEPS) * A.shape[0] * A.shape[2] * -(-d // line) * line,)


ENGINE = Engine()


def _problem(tensors: Arguments, scaled: bool) -> Problem:
    u, pointers = tensors[0], map(_pointer, tensors)
    return Problem(*u.shape, tensors[2].shape[2], None, *pointers, not scaled, torch.get_num_threads(), 0)


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
