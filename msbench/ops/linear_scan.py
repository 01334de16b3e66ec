"""The elementwise linear recurrence of the LRU and the RG-LRU, in C++, in Triton and in PyTorch operations.

In PyTorch, for float64 on a GPU, other devices and without a compiler, two steps combine to one:
``h_{t+1} = (a_{t+1} a_t) h_{t-1} + (a_{t+1} x_t + x_{t+1})``. So every other state comes from the same
recurrence at half the length, and the states between from those. The number of operations grows with log2 of
the length, and they process twice the number of elements in total. Decays are only multiplied: quotients of
their cumulative products underflow to 0/0 after a few fast steps.
"""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from msbench.ops import native_library
from msbench.ops.gpu.recurrences import run_gpu_recurrence
from msbench.ops.operators import mark_constant, register_differentiable
from msbench.ops.scan.dispatch import find_difference, uses_native, uses_triton


def linear_scan(a: Tensor, x: Tensor) -> Tensor:
    """Compute ``h_t = a_t h_{t-1} + x_t``, elementwise, from h = 0 before the first step.

    Parameters
    ----------
    a : decays, real or complex; (b, l, d), or with sizes of 1 or without leading sizes if examples, steps or
        channels share one, such as (d,) for the LRU. Their gradient is then summed while it is computed. (For
        an expanded tensor, or a size of 1 for the channels, the full gradient is computed first.)
    x : (b, l, d), real or complex

    Returns h (b, l, d), in the dtype of `x`, or complex if only `a` is. Any length, any strides. Arithmetic
    is float32 or complex64, or wider if an argument is, regardless of autocast. Both arguments get gradients;
    second derivatives need `linear_scan_reference`.
    """
    check_linear_shapes(a, x)
    dtype = torch.promote_types(torch.promote_types(a.dtype, x.dtype), torch.float32)
    decays = a.to(dtype)[(None,) * (3 - a.ndim)]
    if decays.shape[2] != x.shape[2]:
        decays = decays.expand(-1, -1, x.shape[2])
    native = x.device.type == "cpu" and x.numel() > 0 and is_linear_native()
    h: Tensor = _recurrence(decays, x.to(dtype), "cpp" if native else "torch")
    return h if dtype.is_complex and not x.is_complex() else h.to(x.dtype)


def linear_scan_reference(a: Tensor, x: Tensor) -> Tensor:
    """Compute `linear_scan` as a loop over time: slow, simple, differentiable any number of times."""
    check_linear_shapes(a, x)
    states, h = [], x.new_zeros(x.shape[0], x.shape[2])
    for a_t, x_t in zip(a.expand(x.shape).unbind(1), x.unbind(1), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states, dim=1)


def check_linear_shapes(a: Tensor, x: Tensor) -> None:
    """Raise ValueError if `a` does not broadcast to `x`."""
    fits = all(one in (1, size) for one, size in zip(reversed(a.shape), reversed(x.shape), strict=False))
    if x.ndim != 3 or a.ndim > 3 or not fits:
        raise ValueError(
            "x must be (b, l, d) and a of the same sizes, 1, or left out in front; got"
            f" x {tuple(x.shape)} and a {tuple(a.shape)}"
        )


def run_recurrence(a: Tensor, x: Tensor, *, log: bool = False) -> Tensor:
    """Return h (b, l, d) of a (b or 1, l or 1, d or 1) and x (b, l, d); with `log`, a holds log decays.

    With logarithms slow decays stay exact over any distance: rounded decays are not multiplied.
    """
    if x.shape[1] < 2:
        return x.clone()
    even, odd = x[:, 0::2], x[:, 1::2]
    pairs, singles = odd.shape[1], even.shape[1] - 1
    shared = a.shape[1] == 1
    a_first, a_odd = (a, a) if shared else (a[:, 0::2][:, :pairs], a[:, 1::2])
    inputs = torch.addcmul(odd, a_odd.exp() if log else a_odd, even[:, :pairs])
    states = run_recurrence(a_first + a_odd if log else a_first * a_odd, inputs, log=log)
    a_even = a if shared else a[:, 2::2]
    h = x.new_empty(x.shape)
    h[:, 0], h[:, 1::2] = x[:, 0], states
    h[:, 2::2] = torch.addcmul(even[:, 1:], a_even.exp() if log else a_even, states[:, :singles])
    return h


def run_reversed(a: Tensor, g: Tensor, *, log: bool = False) -> Tensor:
    """Return the adjoint states ``q_t = a_{t+1} q_{t+1} + g_t``, from the last step to the first."""
    later = a if a.shape[1] == 1 else a.flip(1).roll(1, 1)
    return run_recurrence(later, g.flip(1), log=log).flip(1)


class TorchLinearEngine:
    """The recurrence in PyTorch operations: a (b or 1, l or 1, d) and x (b, l, d) of one dtype."""

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """Return h, contiguous."""
        return run_recurrence(a, x)

    def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of a and x, contiguous, from that of h."""
        gx = run_reversed(a.conj(), gh)
        products = gx[:, 1:] * h[:, :-1].conj()
        if a.shape[1] > 1:
            products = torch.cat([torch.zeros_like(products[:, :1]), products], dim=1)
        alike = [dim for dim in (0, 1) if a.shape[dim] == 1]
        return products.sum(alike, keepdim=True) if alike else products, gx.contiguous()


class NativeLinearEngine:
    """The recurrence in C++ (``native/recurrences.cpp``): on the CPU, real or complex, and not empty."""

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """See `TorchLinearEngine`."""
        a, x = _make_dense(a), _make_dense(x)
        h = x.new_empty(x.shape)
        native_library.call("linear_forward", x, make_linear_problem(a, x), h)
        return h

    def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `TorchLinearEngine`."""
        a, gh = _make_dense(a), _make_dense(gh)
        ga, gx = a.new_empty(a.shape), gh.new_empty(gh.shape)
        native_library.call("linear_backward", gh, make_linear_problem(a, gh), h.contiguous(), gx, ga)
        return ga, gx


class LinearProblem(ctypes.Structure):
    """``LinearProblem`` of ``native/recurrences.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "d", "a_example", "a_step", "x_example", "x_step")),
        *((name, ctypes.c_int64) for name in ("ga_example", "ga_step")),
        *((name, ctypes.c_void_p) for name in ("a", "x")),
        *((name, ctypes.c_int32) for name in ("complex", "threads", "instructions")),
    )


def make_linear_problem(a: Tensor, x: Tensor) -> LinearProblem:
    """Return the problem of some tensors, which must outlive it."""
    (b, length, d), parts = x.shape, 2 if x.is_complex() else 1
    examples, steps = (size > 1 for size in a.shape[:2])
    own = a.stride(0) * examples, a.stride(1) * steps, x.stride(0), x.stride(1)
    gradient = a.shape[1] * d * examples, d * steps
    sizes = (b, length, d * parts, *(stride * parts for stride in (*own, *gradient)))
    options = parts == 2, *native_library.execution_options()
    return LinearProblem(*sizes, a.data_ptr(), x.data_ptr(), *options)


def _make_dense(x: Tensor) -> Tensor:
    """Return x (b, l, d) with contiguous channels, and with lazy conjugates and negatives resolved.

    PyTorch may represent conjugates and negatives as views with a flag.
    """
    x = x.resolve_conj().resolve_neg()
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


ENGINES: dict[str, TorchLinearEngine | NativeLinearEngine] = {
    "torch": TorchLinearEngine(),
    "cpp": NativeLinearEngine(),
}


@mark_constant
def is_linear_native() -> bool:
    """Return True if the C++ engine is used: with the C++ scan, if it passes its check."""
    return uses_native("linear scan", check_native_linear_scan)


@mark_constant
def is_linear_on_gpu(device: str) -> bool:
    """Return True if the Triton engine is used on a device type: with the Triton scan."""
    return device in ("cuda", "cpu") and uses_triton(device, "linear scan", check_triton_linear_scan)


def check_native_linear_scan() -> str:
    """Return the first fault of the C++ engine on small problems, or an empty string."""
    return _find_fault("cpu", lambda a, x: _apply_engine(a, x, "cpp"))


def check_triton_linear_scan(device: str) -> str:
    """Return the first fault of the Triton engine on small problems on a device type, or an empty string."""
    return _find_fault(device, run_gpu_recurrence)


def _find_fault(device: str, run: Callable[[Tensor, Tensor], Tensor]) -> str:
    """Return the first fault of an engine.

    The problems have several spans of steps and blocks of channels, an odd number of channels, and slow
    decays, because a fast decay hides a fault in the carried state.
    """
    source = torch.Generator().manual_seed(0)
    size, shared = (2, 50, 83), [(1, 50, 83), (1, 1, 83)]
    rates = [torch.randn(shape, generator=source) for shape in (size, *shared, size, shared[1])]
    decays = [torch.exp(-0.1 * x.abs()) for x in rates[:3]]
    decays += [torch.polar(torch.exp(-0.1 * x.abs()), x) for x in rates[3:]]
    for a in decays:
        values = [y.to(device) for y in (a, torch.randn(size, generator=source, dtype=a.dtype))]
        if fault := find_difference(run, linear_scan_reference, values, ("output", "a", "x")):
            return fault
    return ""


def linear_recurrence(a: Tensor, x: Tensor, engine: str) -> Tensor:
    """Return the states, computed by one of `ENGINES`."""
    return ENGINES[engine].forward(a, x)


def fake_linear_recurrence(a: Tensor, x: Tensor, engine: str) -> Tensor:
    """Return an empty tensor with the shape of `linear_recurrence`."""
    del a, engine
    return x.new_empty(x.shape)


def linear_recurrence_backward(gh: Tensor, a: Tensor, h: Tensor, engine: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of a and x; x itself is not kept."""
    return ENGINES[engine].backward(gh, a, h)


_apply_engine = register_differentiable(
    linear_recurrence,
    fake_linear_recurrence,
    linear_recurrence_backward,
    outputs=("h",),
    instead="linear_scan_reference",
)


def _recurrence(a: Tensor, x: Tensor, engine: str) -> Tensor:
    """Return the states by an engine; in place of PyTorch operations by Triton, where that is used."""
    single = x.dtype in (torch.float32, torch.complex64) and x.numel() > 0
    if engine == "torch" and single and is_linear_on_gpu(x.device.type):
        h: Tensor = run_gpu_recurrence(a, x)
    else:
        h = _apply_engine(a, x, engine)
    return h
