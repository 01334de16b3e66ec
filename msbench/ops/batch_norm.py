"""Batch norm whose statistics are those of real positions only.

It is computed in C++ (``native/layers.cpp``) on the CPU, in Triton (`msbench.ops.gpu.norm`) on a GPU, or in
PyTorch operations.
"""

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from msbench.ops import native_library
from msbench.ops.gpu import norm
from msbench.ops.native_library import get_address
from msbench.ops.operators import mark_constant, register_differentiable, register_operator
from msbench.ops.scan.dispatch import find_difference, uses_native, uses_triton

EPSILON = 1e-5


class Moments(NamedTuple):
    """Mean (d,) and biased variance (d,) of real positions, and how many there are, at least 1: for tracking.

    An output's gradient includes their dependence on x, but they have no gradient themselves.
    """

    mean: Tensor
    var: Tensor
    positions: Tensor


def masked_batch_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Moments]:
    """Normalise x (b, l, d) by the statistics of the positions where mask (b, l, 1) is 1; it is 0 elsewhere.

    With `zero` the other positions become 0. Returns y (b, l, d), which has the dtype of the weight, and the
    moments.
    """
    if norm.is_supported(x, weight) and is_norm_on_gpu(x.device.type):
        y, *moments = norm.apply_norm(x, mask, weight, bias, EPSILON, zero, weight.dtype)
        return y, Moments(*moments)
    x, mask = x.to(weight.dtype), mask.to(weight.dtype)
    if not (native_library.is_supported(x) and is_norm_native()):
        y, mean, var = masked_batch_norm_reference(x, mask, weight, bias, zero=zero)
    else:
        y, mean, var = _norm(x, mask, weight, bias, zero)
    return y, Moments(mean, var, mask.sum().clamp(min=1))


def masked_batch_norm_reference(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, *, zero: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return y, mean and variance of `masked_batch_norm`, in PyTorch operations."""
    count = mask.sum().clamp(min=1)
    mean = (x * mask).sum((0, 1)) / count
    centred = x - mean
    var = ((centred * mask) * centred).sum((0, 1)) / count
    y = apply_affine(centred, var, weight, bias)
    return y * mask if zero else y, mean.detach(), var.detach()


def spread_batch_norm(
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    total: Callable[[Tensor], Tensor],
    *,
    zero: bool = False,
) -> tuple[Tensor, Moments]:
    """Compute `masked_batch_norm` of a batch that several processes share, each with its own x.

    `total` is the differentiable sum over processes; the moments are those of all of them.
    """
    if norm.is_supported(x, weight) and is_norm_on_gpu(x.device.type):
        y, *moments = norm.SpreadNorm.apply(x, mask, weight, bias, total, EPSILON, zero)
        return y, Moments(*moments)
    x, mask = x.to(weight.dtype), mask.to(weight.dtype)
    sums = total(torch.cat([(x * mask).sum((0, 1)), mask.sum().view(1)]))
    count = sums[-1].detach().clamp(min=1)
    mean = sums[:-1] / count
    centred = x - mean
    # From centred numbers: mean of squares minus square of the mean would cancel.
    var = total(((centred * mask) * centred).sum((0, 1))) / count
    y = apply_affine(centred, var, weight, bias)
    return y * mask if zero else y, Moments(mean.detach(), var.detach(), count)


def frozen_batch_norm(
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    zero: bool = False,
) -> Tensor:
    """Normalise x (b, l, d) by the given mean (d,) and variance (d,)."""
    if not torch.is_grad_enabled() and norm.is_supported(x, weight) and is_norm_on_gpu(x.device.type):
        y: Tensor = norm.apply_frozen_norm(x, mask, weight, bias, mean, var, EPSILON, zero, weight.dtype)
        return y
    x, mask = x.to(weight.dtype), mask.to(weight.dtype)
    if torch.is_grad_enabled() or not (native_library.is_supported(x) and is_norm_native()):
        y = apply_affine(x - mean, var, weight, bias)
        return y * mask if zero else y
    normalised: Tensor = _frozen_norm(x, mask, weight, bias, mean, var, zero)
    return normalised


@torch.no_grad()
def track_moments(running_mean: Tensor, running_var: Tensor, moments: Moments, momentum: float) -> None:
    """Move running moments (d,) towards the mean and the unbiased variance of a batch, in place."""
    mean, var, count = moments
    if norm.is_supported(mean, running_mean) and is_norm_on_gpu(mean.device.type):
        norm.track(running_mean, running_var, mean, var, count, momentum)
        return
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(var * count / (count - 1).clamp(min=1), momentum)


def apply_affine(centred: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply variance, weight and bias to centred numbers: the rest of a norm."""
    return torch.addcmul(bias, centred, weight * torch.rsqrt(var + EPSILON))


@mark_constant
def is_norm_native() -> bool:
    """Return True if the C++ kernel is used: with the C++ scan, if it passes its check."""
    return uses_native("batch norm", check_native_norm)


@mark_constant
def is_norm_on_gpu(device: str) -> bool:
    """Return True if the Triton kernels are used on a device type: with the Triton scan."""
    return uses_triton(device, "batch norm", check_norm_on_gpu)


def check_native_norm() -> str:
    """Return the first fault of the C++ kernel on a small problem, or an empty string."""
    return check_norm("cpu", lambda x, mask, weight, bias: _norm(x, mask, weight, bias, True)[0])


def check_norm_on_gpu(device: str) -> str:
    """Return the first fault of the Triton kernels on a small problem, or an empty string."""
    options = EPSILON, True, torch.float32
    return check_norm(device, lambda *tensors: norm.apply_norm(*tensors, *options)[0])


def check_norm(device: str, run: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]) -> str:
    """Return the first fault of a norm of x, mask, weight and bias, or an empty string.

    The problem has three chunks of steps, an odd number of channels, padding, and means far from 0.
    """
    source = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(size, generator=source) for size in ((2, 150, 19), 19, 19))
    x += 3
    mask = (torch.randn(2, 150, 1, generator=source) > 0).float()

    def run_kernel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return run(x, mask.to(device), weight, bias)

    def run_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return masked_batch_norm_reference(x, mask.to(x.dtype), weight, bias, zero=True)[0]

    arguments = [tensor.to(device) for tensor in (x, weight, bias)]
    return find_difference(run_kernel, run_reference, arguments, ("output", "x", "weight", "bias"))


class NormProblem(ctypes.Structure):
    """``NormProblem`` of ``native/layers.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "d")),
        ("epsilon", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("x", "mask", "weight", "bias")),
        *((name, ctypes.c_int32) for name in ("zero", "threads", "instructions")),
    )


def call_native(name: str, tensors: tuple[Tensor, Tensor, Tensor, Tensor], zero: bool, *more: Tensor) -> None:
    """Call a C++ function for x (b, l, d), mask (b, l, 1), weight (d,), bias (d,), and more tensors."""
    x, *rest = (tensor.contiguous() for tensor in tensors)
    rows, d = x.shape[0] * x.shape[1], x.shape[2]
    options = zero, *native_library.execution_options()
    problem = NormProblem(rows, d, EPSILON, *map(get_address, (x, *rest)), *options)
    native_library.call(name, x, problem, *(tensor.contiguous() for tensor in more))


def frozen_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, zero: bool
) -> Tensor:
    """Compute `frozen_batch_norm` in C++."""
    y = x.new_empty(x.shape)
    call_native("norm_forward", (x, mask, weight, bias), zero, mean, var, y)
    return y


def fake_frozen_norm(x: Tensor, *_: Any) -> Tensor:
    """Return an empty tensor with the shape of `frozen_norm`."""
    return x.new_empty(x.shape)


def masked_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `masked_batch_norm` in C++; for the backward, only x itself is kept at the size of x."""
    mean, var = x.new_empty(x.shape[2]), x.new_empty(x.shape[2])
    call_native("norm_statistics", (x, mask, weight, bias), zero, mean, var)
    return frozen_norm(x, mask, weight, bias, mean, var, zero), mean, var


def fake_masked_norm(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `masked_norm`."""
    return x.new_empty(x.shape), x.new_empty(x.shape[2]), x.new_empty(x.shape[2])


def masked_norm_backward(
    g: Tensor, x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, zero: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias; `mean` and `var` are those of x."""
    gradients = x.new_empty(x.shape), weight.new_empty(weight.shape), bias.new_empty(bias.shape)
    call_native("norm_backward", (x, mask, weight, bias), zero, mean, var, g, *gradients)
    return gradients


_frozen_norm = register_operator(frozen_norm, fake_frozen_norm)
_norm = register_differentiable(
    masked_norm,
    fake_masked_norm,
    masked_norm_backward,
    outputs=("y", "mean", "var"),
    gradients_of=("x", "weight", "bias"),
    instead="masked_batch_norm_reference",
)
