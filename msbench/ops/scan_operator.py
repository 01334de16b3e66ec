"""The scan as a PyTorch operator, for all engines."""

from typing import Any, Protocol

import torch
from torch import Tensor

from msbench.ops import scan_native, scan_torch, scan_triton
from msbench.ops.operation import differentiable, kept, once_differentiable, operation
from msbench.ops.scan_arguments import Arguments

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""Gradients of u, dt, A, B, C, skip, mix; None for an argument that is None."""


class ScanEngine(Protocol):
    """An implementation of the scan and its gradients, for arguments of one dtype (float32 or float64)."""

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """Return the output, contiguous, and the tensor that `backward` needs (empty unless `keep`).

        `scaled`: the input is multiplied by its step size.
        """

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Gradients:
        """Return contiguous gradients of all arguments from `gy`, that of the output."""

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int, ...]:
        """Return the shape of the tensor that `forward` keeps."""


ENGINES: dict[str, ScanEngine] = {
    "triton": scan_triton.ENGINE,
    "cpp": scan_native.ENGINE,
    "torch": scan_torch.ENGINE,
}


def apply(engine: str, arguments: Arguments, *, scaled: bool) -> Tensor:
    """Return the output of the scan by one of `ENGINES`, differentiable in every tensor."""
    y: Tensor = scan(*arguments, engine, scaled, kept(arguments))[0]
    return y


def selective_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    engine: str,
    scaled: bool,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return output and kept states."""
    return ENGINES[engine].forward((u, dt, A, B, C, skip, mix), scaled=scaled, keep=keep)


def fake_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `selective_scan`."""
    mix, engine, _, keep = rest[-4:]
    out = u.new_empty(u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[3]))
    return out, u.new_empty(ENGINES[engine].kept_shape(u, rest[1]) if keep else 0)


def selective_scan_backward(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    gy: Tensor,
    engine: str,
    scaled: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the seven arguments; a missing one is empty: an operator cannot return None."""
    arguments = (u, dt, A, B, C, skip, mix)
    with torch.autocast(gy.device.type, enabled=False):
        # An expanded gradient (that of a plain sum) would send matrix products to a slow path.
        gradients = ENGINES[engine].backward(arguments, kept, gy.contiguous(), scaled=scaled)
    *always, g_skip, g_mix = gradients
    return *always, *(gy.new_empty(0) if x is None else x for x in (g_skip, g_mix))  # type: ignore[return-value]


def fake_backward(*args: Any) -> tuple[Tensor, ...]:
    """Return empty tensors with the shapes of `selective_scan_backward`."""
    u: Tensor = args[0]
    return tuple(u.new_empty(0 if x is None else x.shape) for x in args[:7])


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the arguments and the kept states."""
    *tensors, ctx.engine, ctx.scaled, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # no zeros of the size of the kept states


def backward(ctx: Any, gy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
    if gy is None:
        return (None,) * 10
    *tensors, kept = ctx.saved_tensors
    gradients = scan_backward(*tensors, kept, gy, ctx.engine, ctx.scaled)
    pairs = zip(tensors, gradients, strict=True)
    return (*(None if x is None else gradient for x, gradient in pairs), None, None, None)


scan_backward = once_differentiable(
    operation(selective_scan_backward, fake_backward), "selective_scan_reference"
)
scan = differentiable(operation(selective_scan, fake_scan), setup_context, backward)
