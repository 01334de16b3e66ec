"""The scan as an autograd function, whichever engine computes it."""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from msbench.ops.vmap import looped


class Engine(Protocol):
    """What computes a scan and its gradients. What the seven tensors are is between it and its caller."""

    def forward(self, tensors: Sequence[Tensor | None], *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """The output, and what `backward` needs besides the inputs (empty unless `keep`).

        `scaled`: the input is multiplied by its step size.
        """

    def backward(
        self, tensors: Sequence[Tensor | None], kept: Tensor, gy: Tensor, *, scaled: bool
    ) -> Sequence[Tensor | None]:
        """Gradients of all inputs from `gy`, that of the output; None for an input that is None."""


def apply(engine: Engine, tensors: Sequence[Tensor | None], *, scaled: bool) -> Tensor:
    """The output of the scan; gradients reach every tensor."""
    keep = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    y: Tensor = Scan.apply(*tensors, engine, scaled, keep)[0]
    return y


class Scan(torch.autograd.Function):
    """Output and kept states, from tensors, engine, `scaled` and `keep`; once differentiable."""

    vmap = staticmethod(looped(lambda: Scan))

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, Tensor]:
        *tensors, engine, scaled, keep = args
        output: tuple[Tensor, Tensor] = engine.forward(tensors, scaled=scaled, keep=keep)
        return output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.engine, ctx.scaled, _ = inputs
        ctx.save_for_backward(*tensors, output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # no zeros of the size of the kept states

    @staticmethod
    def backward(ctx: Any, gy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if gy is None:
            return (None,) * len(ctx.needs_input_grad)
        *tensors, kept = ctx.saved_tensors
        # An expanded gradient (that of a plain sum) would send matrix products to a slow path.
        gradients = ScanBackward.apply(*tensors, ctx.engine, ctx.scaled, kept, gy.contiguous())
        pairs = zip(tensors, gradients, strict=True)
        return (*(None if x is None else gradient for x, gradient in pairs), None, None, None)


class ScanBackward(torch.autograd.Function):
    """The gradients of `Scan`, as a function of its own so that they can be batched."""

    vmap = staticmethod(looped(lambda: ScanBackward))

    @staticmethod
    def forward(*args: Any) -> tuple[Tensor, ...]:
        *tensors, engine, scaled, kept, gy = args
        with torch.autocast(gy.device.type, enabled=False):
            gradients = engine.backward(tensors, kept, gy, scaled=scaled)
        # A missing input has an empty gradient: None cannot be batched.
        return tuple(gy.new_empty(0) if gradient is None else gradient for gradient in gradients)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError("second derivatives of the fast scan: use selective_scan_reference")
