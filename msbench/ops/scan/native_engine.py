"""The selective scan in C++ (``native/scan.cpp``)."""

import ctypes
from collections.abc import Sequence

from torch import Tensor

from msbench.ops import native_library
from msbench.ops.native_library import INSTRUCTIONS, LINE, allocate, get_address
from msbench.ops.scan.reference import Arguments, apply_each, make_contiguous

TENSORS = ("u", "dt", "A", "B", "C", "skip", "mix", "low", "weight", "bias", "taps", "taps_bias")
STEPS = 16
"""Steps between two kept states."""

Tensors = Sequence[Tensor | None]
"""Tensors in the order of `TENSORS`, contiguous.

Step sizes are `dt`, or computed from `low` (with any stride between rows), `weight` (m, r, d) and `bias`.
Streams are `u`, or computed by `taps` from the signal `u` (b, l, d), with any strides of examples and steps.
"""

NOT_FUSED = (None,) * 5
"""The last five tensors without a bank and without low-rank step sizes."""


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


def describe_kernel() -> str:
    """Return the kernel's name with this processor's instruction set, such as ``cpp-avx512``."""
    library = native_library.load_library()
    assert library is not None, "the choice of kernels has checked that the library is available"
    return f"cpp-{INSTRUCTIONS[library.msbench_scan_instructions(ctypes.byref(ScanProblem()))]}"


class NativeScanEngine:
    """See `msbench.ops.scan.torch_engine.TorchScanEngine`; one state in 16 is kept."""

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        return run_forward((*make_contiguous(arguments), *NOT_FUSED), scaled=scaled, keep=keep)

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        arguments = make_contiguous(arguments)
        gradients: Arguments = apply_each(lambda x: x.new_empty(x.shape), arguments)
        run_backward((*arguments, *NOT_FUSED), (*gradients, *NOT_FUSED), kept, gy, scaled=scaled)
        return gradients

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int]:
        """Return the shape of the kept states: one in 16, in whole cache lines of channels."""
        b, length, d = u.shape[0], u.shape[1], u.shape[-1]
        line = LINE // u.element_size()
        return (b * -(-length // STEPS) * A.shape[0] * A.shape[2] * -(-d // line) * line,)


ENGINE = NativeScanEngine()


def run_forward(tensors: Tensors, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
    """Return the output and the kept states."""
    u, A, mix = tensors[0], tensors[2], tensors[6]
    assert u is not None
    assert A is not None
    b, length, d = u.shape[0], u.shape[1], u.shape[-1]
    out = u.new_empty((b, length, A.shape[0], d) if mix is None else (b, length, d))
    kept = allocate(u, ENGINE.kept_shape(u, A)[0] if keep else 0)
    problem = make_problem(u, A, tensors, scaled=scaled)
    native_library.call("scan_forward", u, problem, out, kept if keep else None)
    return out, kept


def run_backward(tensors: Tensors, gradients: Tensors, kept: Tensor, gy: Tensor, *, scaled: bool) -> None:
    """Write the gradients of `tensors`."""
    u, A = tensors[0], tensors[2]
    assert u is not None
    assert A is not None
    if kept.data_ptr() % LINE:  # a slice of vmap
        kept = allocate(u, kept.numel()).copy_(kept)
    pointers = ScanGradients(*map(get_address, gradients))
    problem = make_problem(u, A, tensors, scaled=scaled)
    native_library.call("scan_backward", u, problem, gy.contiguous(), kept, pointers)


def make_problem(u: Tensor, A: Tensor, tensors: Tensors, *, scaled: bool) -> ScanProblem:
    """Return the problem of some tensors, which must outlive it."""
    low, taps = tensors[7], tensors[10]
    (m, d, n), pointers = A.shape, [get_address(tensor) for tensor in tensors]
    rank = (0, 0) if low is None else (low.shape[3], low.stride(2))
    bank = (0, 0, 0, 0) if taps is None else (taps.shape[0], taps.shape[2], u.stride(0), u.stride(1))
    sizes = u.shape[0], u.shape[1], m, d, n
    options = not scaled, *native_library.execution_options()
    return ScanProblem(*sizes, *pointers[:10], *rank, *pointers[10:], *bank, *options)
