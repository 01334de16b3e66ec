"""Banks of filters and batch norm in C++ (``native/layers.cpp``).

They are in the library that `scan_native` loads. All tensors are on the CPU, of one dtype (float32 or
float64), and not empty.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from msbench.ops.scan_native import KINDS, library


class BankProblem(ctypes.Structure):
    """``BankProblem`` of ``native/bank.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "d", "levels", "sides", "k", "dilation")),
        *((name, ctypes.c_int64) for name in ("x_example", "x_step")),
        *((name, ctypes.c_void_p) for name in ("x", "taps", "bias")),
        *((name, ctypes.c_int32) for name in ("threads", "instructions")),
    )


class NormProblem(ctypes.Structure):
    """``NormProblem`` of ``native/layers.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "d")),
        ("epsilon", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("x", "mask", "weight", "bias")),
        *((name, ctypes.c_int32) for name in ("zero", "threads", "instructions")),
    )


POINTERS = {
    "bank_forward": 2,
    "bank_backward": 5,
    "norm_statistics": 3,
    "norm_forward": 4,
    "norm_backward": 7,
}
"""Number of arguments of each function, all of them addresses."""


class NativeLayerEngine:
    """A `decompose.BankEngine`, and batch norm; `instructions` as in `scan_native`, 0 for the best."""

    def __init__(self, instructions: int = 0) -> None:
        self.instructions = instructions

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.decompose.BankEngine`; nothing is kept."""
        (b, length, d), (levels, sides) = x.shape, taps.shape[:2]
        out = x.new_empty(b, length, levels + 2 if sides == 2 else 1, d)
        x, taps, bias = _dense(x), taps.contiguous(), None if bias is None else bias.contiguous()
        _call("bank_forward", x, self._bank(x, taps, bias, dilation), out)
        return out, x.new_empty(0)

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See `msbench.ops.decompose.BankEngine`."""
        del kept
        g, x, taps = g.contiguous(), _dense(x), taps.contiguous()
        bias = None if bias is None else bias.contiguous()
        gradients = x.new_empty(x.shape), torch.empty_like(taps), taps.new_empty(*taps.shape[:2], x.shape[2])
        _call("bank_backward", x, self._bank(x, taps, bias, dilation), g, *gradients)
        return gradients

    def kept_shape(self, x: Tensor, taps: Tensor) -> tuple[int, ...]:
        """Return the shape of an empty tensor: nothing is kept."""
        del x, taps
        return (0,)

    def norm_statistics(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and biased variance (d,) of the real positions of x (b, l, d), by mask (b, l, 1)."""
        x, mask = x.contiguous(), mask.contiguous()
        mean, var = x.new_empty(x.shape[2]), x.new_empty(x.shape[2])
        _call("norm_statistics", x, self._norm(x, mask, None, None, 0.0, False), mean, var)
        return mean, var

    def norm_forward(
        self,
        x: Tensor,
        mask: Tensor,
        affine: tuple[Tensor, Tensor],
        moments: tuple[Tensor, Tensor],
        epsilon: float,
        zero: bool,
    ) -> Tensor:
        """Normalise x by mean and variance, apply weight and bias; with `zero`, 0 where the mask is 0."""
        x, mask = x.contiguous(), mask.contiguous()
        y = torch.empty_like(x)
        _call("norm_forward", x, self._norm(x, mask, *affine, epsilon, zero), *moments, y)
        return y

    def norm_backward(
        self,
        gy: Tensor,
        x: Tensor,
        mask: Tensor,
        affine: tuple[Tensor, Tensor],
        moments: tuple[Tensor, Tensor],
        epsilon: float,
        zero: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, weight and bias; `moments` are those of x."""
        gy, x, mask = gy.contiguous(), x.contiguous(), mask.contiguous()
        gradients = torch.empty_like(x), torch.empty_like(affine[0]), torch.empty_like(affine[1])
        _call("norm_backward", x, self._norm(x, mask, *affine, epsilon, zero), *moments, gy, *gradients)
        return gradients

    def _norm(
        self, x: Tensor, mask: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, zero: bool
    ) -> NormProblem:
        rows, d = x.shape[0] * x.shape[1], x.shape[2]
        pointers = (None if y is None else y.data_ptr() for y in (x, mask, weight, bias))
        return NormProblem(rows, d, epsilon, *pointers, zero, torch.get_num_threads(), self.instructions)

    def _bank(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> BankProblem:
        sizes = (*x.shape, *taps.shape[:3], dilation, x.stride(0), x.stride(1))
        pointers = x.data_ptr(), taps.data_ptr(), None if bias is None else bias.data_ptr()
        return BankProblem(*sizes, *pointers, torch.get_num_threads(), self.instructions)


ENGINE = NativeLayerEngine()


def _dense(x: Tensor) -> Tensor:
    """Return x (b, l, d) with contiguous channels; half of a projection has them and is not copied."""
    return x if x.stride(2) == 1 else x.contiguous()


@cache
def _functions() -> ctypes.CDLL:
    lib = library()
    assert lib is not None, "the choice of engines has seen that the library is there"
    for what, count in POINTERS.items():
        for kind in KINDS.values():
            getattr(lib, f"msbench_{what}_{kind}").argtypes = (ctypes.c_void_p,) * count
    return lib


def _call(what: str, x: Tensor, problem: ctypes.Structure, *tensors: Tensor) -> None:
    function = getattr(_functions(), f"msbench_{what}_{KINDS[x.dtype]}")
    if function(ctypes.byref(problem), *(tensor.data_ptr() for tensor in tensors)) != 0:
        raise MemoryError(f"not enough memory for the {what.replace('_', ' ')} of {tuple(x.shape)}")
