"""Rows of a layer's Jacobian, exact: one vector-Jacobian product per channel, for all examples at once.

The forward's graph is kept and each backward starts at one channel of one position of every example: d
backwards of one layer, whatever the kernel. Batched gradients (``is_grads_batched``) would still run the
custom kernels slice by slice, and d copies of an example in one batch would take d times the memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from msbench.analysis.mixing.units import Apply
from msbench.errors import RunError
from msbench.models.layers import Padding

PROBE_SEED = 0


@contextmanager
def exact(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode, without parameter gradients and without reduced precision.

    This overrides the caller's no_grad, inference_mode, autocast and TF32. On exit each module's mode and
    each parameter's flag is restored.
    """
    modes = [(module, module.training) for module in model.modules()]
    flags = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    device = next(model.parameters()).device.type
    try:
        model.eval().requires_grad_(False)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(torch.autocast(device, enabled=False))
            stack.enter_context(_no_tf32())
            yield
    finally:
        for module, training in modes:
            module.training = training
        for parameter, required in flags:
            parameter.requires_grad_(required)


@contextmanager
def _no_tf32() -> Iterator[None]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = False
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def rows(
    apply: Apply, x: Tensor, padding: Padding, positions: Tensor, channels: Sequence[int]
) -> Iterator[Tensor]:
    """Yield for each of `channels` the gradients (b, l, d) of that output channel at `positions` (b,).

    Memory is that of one forward and backward of `apply`, linear in the length if the layer's is. Raises
    RunError if a gradient is not finite.
    """
    x = x.clone().requires_grad_()
    out = apply(x, padding)[torch.arange(len(x), device=x.device), positions]
    for index, channel in enumerate(channels):
        start = torch.zeros_like(out)
        start[:, channel] = 1
        (gradient,) = torch.autograd.grad(out, x, start, retain_graph=index < len(channels) - 1)
        _check_finite(gradient, f"channel {channel}")
        yield gradient


def _check_finite(gradient: Tensor, what: str) -> None:
    if not gradient.isfinite().all():
        raise RunError(f"the gradient of {what} is not finite: no distance can be told")


class Future(NamedTuple):
    """Dependence on later positions: their share of all |J|, and their peak relative to the largest."""

    share: float
    peak: float


def future(apply: Apply, x: Tensor, padding: Padding, lengths: Tensor) -> Future | None:
    """Return the largest over all examples at the middle position; None if no example has two positions.

    All output channels at once, with random weights: if no channel depends on the future, no sum of them
    does, and a sum of those that do vanishes with probability 0.
    """
    long = (lengths >= 2).nonzero().flatten()
    if not len(long):
        return None
    x = x.clone().requires_grad_()
    middle = (lengths[long] - 1) // 2
    out = apply(x, padding)[long, middle]
    weights = torch.randn(out.shape[1], generator=torch.Generator().manual_seed(PROBE_SEED)).to(out)
    (gradient,) = torch.autograd.grad(out, x, weights.expand_as(out))
    _check_finite(gradient, "a middle position")
    size = gradient[long].abs().sum(2, dtype=torch.float64)
    place = torch.arange(x.shape[1], device=x.device)
    real, ahead = place < lengths[long].unsqueeze(1), place > middle.unsqueeze(1)
    size = size * real
    total, behind = size.sum(1), (size * ahead).sum(1)
    peak = (size * ahead).amax(1) / size.amax(1).clamp(min=torch.finfo(torch.float64).tiny)
    share = behind / total.clamp(min=torch.finfo(torch.float64).tiny)
    return Future(float(share.max()), float(peak.max()))
