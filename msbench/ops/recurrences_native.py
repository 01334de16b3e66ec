"""`linear_scan` and `lti_scan` in C++ (``native/recurrences.cpp``).

They are in the library that `scan_native` loads. All tensors are on the CPU, of one dtype (float32, float64
or, for `Linear`, their complex types), and not empty.
"""

import ctypes
from functools import cache

import torch
from torch import Tensor

from msbench.ops.scan_native import KINDS, library

Tensors = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""u, log_decay, weight, skip, mix, as `msbench.ops.lti_scan.lti_scan` takes them; or their gradients."""


class LinearProblem(ctypes.Structure):
    """``LinearProblem`` of ``native/recurrences.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "d", "a_example", "a_step", "x_example", "x_step")),
        *((name, ctypes.c_int64) for name in ("ga_example", "ga_step")),
        *((name, ctypes.c_void_p) for name in ("a", "x")),
        *((name, ctypes.c_int32) for name in ("complex", "threads", "instructions")),
    )


class LtiProblem(ctypes.Structure):
    """``LtiProblem`` of ``native/recurrences.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "m", "d", "n")),
        *((name, ctypes.c_void_p) for name in ("u", "log_decay", "weight", "skip", "mix")),
        *((name, ctypes.c_int32) for name in ("threads", "instructions")),
    )


class LtiGradients(ctypes.Structure):
    """``LtiGradients`` of ``native/recurrences.h``."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("u", "log_decay", "weight", "skip", "mix"))


POINTERS = {"linear_forward": 2, "linear_backward": 4, "lti_forward": 3, "lti_backward": 4}
"""Number of arguments of each function, all of them addresses."""


class Linear:
    """See `msbench.ops.linear_scan.LinearEngine`. `instructions` as in ``native/scan.cpp``; 0: the best."""

    def __init__(self, instructions: int = 0) -> None:
        self.instructions = instructions

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """See `msbench.ops.linear_scan.LinearEngine`."""
        a, x = _dense(a), _dense(x)
        h = x.new_empty(x.shape)
        _call("linear_forward", x, self._problem(a, x), h.data_ptr())
        return h

    def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.linear_scan.LinearEngine`."""
        a, gh, h = _dense(a), _dense(gh), h.contiguous()
        ga, gx = a.new_empty(a.shape), gh.new_empty(gh.shape)
        addresses = (tensor.data_ptr() for tensor in (h, gx, ga))
        _call("linear_backward", gh, self._problem(a, gh), *addresses)
        return ga, gx

    def _problem(self, a: Tensor, x: Tensor) -> LinearProblem:
        (b, length, d), parts = x.shape, 2 if x.is_complex() else 1
        examples, steps = (size > 1 for size in a.shape[:2])
        own = a.stride(0) * examples, a.stride(1) * steps, x.stride(0), x.stride(1)
        gradient = a.shape[1] * d * examples, d * steps
        sizes = (b, length, d * parts, *(stride * parts for stride in (*own, *gradient)))
        pointers = a.data_ptr(), x.data_ptr()
        return LinearProblem(*sizes, *pointers, parts == 2, torch.get_num_threads(), self.instructions)


class Lti:
    """See `msbench.ops.lti_scan.LtiEngine`. `instructions` as in ``native/scan.cpp``; 0: the best."""

    def __init__(self, instructions: int = 0) -> None:
        self.instructions = instructions

    def forward(self, tensors: Tensors, *, keep: bool) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.lti_scan.LtiEngine`."""
        u, *_, mix = tensors = _prepared(tensors)
        b, length, m, d = u.shape
        out = u.new_empty((b, length, m, d) if mix is None else (b, length, d))
        kept = u.new_empty(u.shape if keep else (0,))
        _call("lti_forward", u, self._problem(tensors), out.data_ptr(), kept.data_ptr() if keep else None)
        return out, kept

    def backward(self, gout: Tensor, tensors: Tensors, kept: Tensor) -> Tensors:
        """See `msbench.ops.lti_scan.LtiEngine`."""
        tensors, gout, kept = _prepared(tensors), gout.contiguous(), kept.contiguous()
        u, log_decay, weight, skip, mix = (None if x is None else torch.empty_like(x) for x in tensors)
        if not kept.numel():
            mix = None
        pointers = LtiGradients(*map(_pointer, (u, log_decay, weight, skip, mix)))
        addresses = gout.data_ptr(), kept.data_ptr(), ctypes.addressof(pointers)
        _call("lti_backward", gout, self._problem(tensors), *addresses)
        assert u is not None
        assert log_decay is not None
        assert weight is not None
        return u, log_decay.mT.contiguous(), weight.mT.contiguous(), skip, mix

    def _problem(self, tensors: Tensors) -> LtiProblem:
        u, log_decay, *_ = tensors
        pointers = map(_pointer, tensors)
        return LtiProblem(*u.shape, log_decay.shape[1], *pointers, torch.get_num_threads(), self.instructions)


LINEAR = Linear()
LTI = Lti()


def _dense(x: Tensor) -> Tensor:
    """Return x (b, l, d) with contiguous channels, and with lazy conjugates and negatives resolved.

    PyTorch may represent conjugates and negatives as views with a flag.
    """
    x = x.resolve_conj().resolve_neg()
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


def _prepared(tensors: Tensors) -> Tensors:
    """Return contiguous tensors, with channels last in the parameters of the states."""
    u, log_decay, weight, skip, mix = tensors
    return (
        *(u.contiguous(), log_decay.mT.contiguous(), weight.mT.contiguous()),
        None if skip is None else skip.contiguous(),
        None if mix is None else mix.contiguous(),
    )


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@cache
def _functions() -> ctypes.CDLL:
    lib = library()
    assert lib is not None, "the choice of engines has seen that the library is there"
    for what, count in POINTERS.items():
        for kind in KINDS.values():
            getattr(lib, f"msbench_{what}_{kind}").argtypes = (ctypes.c_void_p,) * count
    return lib


def _call(what: str, x: Tensor, problem: ctypes.Structure, *addresses: int | None) -> None:
    kind = KINDS[x.real.dtype if x.is_complex() else x.dtype]
    function = getattr(_functions(), f"msbench_{what}_{kind}")
    if function(ctypes.byref(problem), *addresses) != 0:
        raise MemoryError(f"not enough memory for the {what.replace('_', ' ')} of {tuple(x.shape)}")
