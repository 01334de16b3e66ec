"""The elementwise linear recurrence of the LRU and the RG-LRU."""

from typing import Any, Protocol

import torch
from torch import Tensor

from msbench.ops import linear_torch, recurrence_kernels, recurrences_native
from msbench.ops.operation import differentiable, once_differentiable, operation


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
    check_shapes(a, x)
    dtype = torch.promote_types(torch.promote_types(a.dtype, x.dtype), torch.float32)
    decays = a.to(dtype)[(None,) * (3 - a.ndim)]
    if decays.shape[2] != x.shape[2]:
        decays = decays.expand(-1, -1, x.shape[2])
    engine = "cpp" if recurrence_kernels.native_for(x) else "torch"
    h: Tensor = recurrence(decays, x.to(dtype), engine)
    return h if dtype.is_complex and not x.is_complex() else h.to(x.dtype)


def linear_scan_reference(a: Tensor, x: Tensor) -> Tensor:
    """Compute `linear_scan` as a loop over time: slow, simple, differentiable any number of times."""
    check_shapes(a, x)
    states, h = [], x.new_zeros(x.shape[0], x.shape[2])
    for a_t, x_t in zip(a.expand(x.shape).unbind(1), x.unbind(1), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states, dim=1)


def check_shapes(a: Tensor, x: Tensor) -> None:
    """Raise ValueError if `a` does not broadcast to `x`."""
    fits = all(one in (1, size) for one, size in zip(reversed(a.shape), reversed(x.shape), strict=False))
    if x.ndim != 3 or a.ndim > 3 or not fits:
        raise ValueError(
            "x must be (b, l, d) and a of the same sizes, 1, or left out in front; got"
            f" x {tuple(x.shape)} and a {tuple(a.shape)}"
        )


class LinearEngine(Protocol):
    """An implementation of the recurrence: a (b or 1, l or 1, d) and x (b, l, d) of one dtype."""

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """Return h, contiguous."""

    def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of a and x, contiguous, from that of h."""


ENGINES: dict[str, LinearEngine] = {"torch": linear_torch.ENGINE, "cpp": recurrences_native.LINEAR}


def linear_recurrence(a: Tensor, x: Tensor, engine: str) -> Tensor:
    """Return the states, computed by one of `ENGINES`."""
    return ENGINES[engine].forward(a, x)


def fake_recurrence(a: Tensor, x: Tensor, engine: str) -> Tensor:
    """Return an empty tensor with the shape of `linear_recurrence`."""
    del a, engine
    return x.new_empty(x.shape)


def linear_recurrence_backward(gh: Tensor, a: Tensor, h: Tensor, engine: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of a and x."""
    return ENGINES[engine].backward(gh, a, h)


def fake_backward(gh: Tensor, a: Tensor, h: Tensor, engine: str) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `linear_recurrence_backward`."""
    del h, engine
    return a.new_empty(a.shape), gh.new_empty(gh.shape)


def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, str], output: Tensor) -> None:
    """Keep the decays and the states."""
    a, _, ctx.engine = inputs
    ctx.save_for_backward(a, output)


def backward(ctx: Any, gh: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
    return (*recurrence_backward(gh, *ctx.saved_tensors, ctx.engine), None)


recurrence_backward = once_differentiable(
    operation(linear_recurrence_backward, fake_backward), "linear_scan_reference"
)
recurrence = differentiable(operation(linear_recurrence, fake_recurrence), setup_context, backward)
