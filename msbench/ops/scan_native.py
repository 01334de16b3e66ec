"""The selective scan in C++ (``native/scan.cpp``), compiled at install and called through ctypes.

The library needs neither torch's headers nor Python's: it reads plain arrays. It is missing if no compiler
was available at install; then `msbench.ops.scan_kernels` chooses PyTorch operations.
"""

import ctypes
import importlib.util
import warnings
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from msbench.ops import native_threads, recycled
from msbench.ops.scan_arguments import Arguments, contiguous, empty_like

MODULE = "msbench.ops._native"
INSTRUCTIONS = {1: "baseline", 2: "avx2", 3: "avx512"}
TENSORS = ("u", "dt", "A", "B", "C", "skip", "mix", "low", "weight", "bias", "taps", "taps_bias")
NEWEST = "msbench_share_threads"
"""A symbol that libraries built from older sources lack."""
KINDS = {torch.float32: "f32", torch.float64: "f64"}
STEPS = 16
"""Steps between two kept states."""


instructions = 0
"""The instruction set, a key of `INSTRUCTIONS`, for tests; 0 takes the best of the processor."""


class ScanProblem(ctypes.Structure):
    """``ScanProblem`` of ``native/problem.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "m", "d", "n")),
        *((name, ctypes.c_void_p) for name in TENSORS[:10]),
        *((name, ctypes.c_int64) for name in ("r", "low_step")),
        *((name, ctypes.c_void_p) for name in TENSORS[10:]),
        *((name, ctypes.c_int64) for name in ("levels", "k", "u_example", "u_step")),
        *((name, ctypes.c_int32) for name in ("raw", "threads", "instructions")),
    )


class ScanGradients(ctypes.Structure):
    """``ScanGradients`` of ``native/problem.h``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in TENSORS)


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled library, or None if it was not built or cannot be loaded."""
    lib, fault = _loaded()
    if fault:
        # Built, but not loadable: unlike a missing compiler this deserves a warning.
        warnings.warn(f"the C++ kernels are left out: {fault}", RuntimeWarning, stacklevel=2)
    if lib is None:
        return None
    native_threads.share(lib)
    for kind in KINDS.values():
        getattr(lib, f"msbench_scan_forward_{kind}").argtypes = (ctypes.c_void_p,) * 3
        getattr(lib, f"msbench_scan_backward_{kind}").argtypes = (ctypes.c_void_p,) * 4
    return lib


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
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


def fault() -> str:
    """Return the reason that a built library cannot be loaded; an empty string if it can or was not built."""
    return _loaded()[1]


def name() -> str:
    """Return the kernel's name with this processor's instruction set, such as ``cpp-avx512``."""
    return f"cpp-{INSTRUCTIONS[_library().msbench_scan_instructions(ctypes.byref(ScanProblem()))]}"


Tensors = Sequence[Tensor | None]
"""Tensors in the order of `TENSORS`, contiguous.

Step sizes are `dt`, or computed from `low` (with any stride between rows), `weight` (m, r, d) and `bias`.
Streams are `u`, or computed by `taps` from the signal `u` (b, l, d), with any strides of examples and steps.
"""

NOTHING = (None,) * 5
"""The last five tensors without a bank and without low-rank step sizes."""


class NativeScanEngine:
    """See `msbench.ops.scan_operator.ScanEngine`; one state in 16 is kept."""

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `scan_operator.ScanEngine`."""
        return forward((*contiguous(arguments), *NOTHING), scaled=scaled, keep=keep)

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """See `scan_operator.ScanEngine`."""
        arguments = contiguous(arguments)
        gradients = empty_like(arguments)
        backward((*arguments, *NOTHING), (*gradients, *NOTHING), kept, gy, scaled=scaled)
        return gradients

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int]:
        """Return the shape of the kept states: one in 16, in whole cache lines of channels."""
        b, length, d = u.shape[0], u.shape[1], u.shape[-1]
        line = recycled.LINE // u.element_size()
        return (b * -(-length // STEPS) * A.shape[0] * A.shape[2] * -(-d // line) * line,)


def forward(tensors: Tensors, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Return the output and the kept states."""
    u, A, mixed = _given(tensors[0]), _given(tensors[2]), tensors[6] is not None
    b, length, d = u.shape[0], u.shape[1], u.shape[-1]
    out = u.new_empty((b, length, d) if mixed else (b, length, A.shape[0], d))
    kept = recycled.empty(u, ENGINE.kept_shape(u, A)[0] if keep else 0)
    _call("forward", u, _problem(tensors, scaled), out.data_ptr(), kept.data_ptr() if keep else None)
    return out, kept


def backward(tensors: Tensors, gradients: Tensors, kept: Tensor, gy: Tensor, *, scaled: bool) -> None:
    """Write the gradients of `tensors`."""
    u, pointers = _given(tensors[0]), ScanGradients(*map(_pointer, gradients))
    if kept.data_ptr() % recycled.LINE:  # a slice of vmap
        kept = recycled.empty(u, kept.numel()).copy_(kept)
    gy = gy.contiguous()  # held until the kernel has read it
    addresses = gy.data_ptr(), kept.data_ptr(), ctypes.addressof(pointers)
    _call("backward", u, _problem(tensors, scaled), *addresses)


ENGINE = NativeScanEngine()


def _problem(tensors: Tensors, scaled: bool) -> ScanProblem:
    u, A, low, taps = _given(tensors[0]), _given(tensors[2]), tensors[7], tensors[10]
    m, d, n = A.shape
    pointers = [_pointer(tensor) for tensor in tensors]
    rank = (0, 0) if low is None else (low.shape[3], low.stride(2))
    bank = (0, 0, 0, 0) if taps is None else (taps.shape[0], taps.shape[2], u.stride(0), u.stride(1))
    how = not scaled, torch.get_num_threads(), instructions
    return ScanProblem(u.shape[0], u.shape[1], m, d, n, *pointers[:10], *rank, *pointers[10:], *bank, *how)


def _given(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _library() -> ctypes.CDLL:
    lib = library()
    assert lib is not None, "the choice of engines has seen that the library is there"
    return lib


def _call(what: str, u: Tensor, problem: ScanProblem, *arguments: int | None) -> None:
    function = getattr(_library(), f"msbench_scan_{what}_{KINDS[u.dtype]}")
    if function(ctypes.byref(problem), *arguments) != 0:
        raise MemoryError(f"not enough memory for the {what} of a scan of {tuple(u.shape)}")
