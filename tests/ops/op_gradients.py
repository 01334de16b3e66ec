"""Output and gradients of an operator on arguments of any kind, which the tests of several share."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients(
    function: Callable[..., Tensor], values: Sequence[Tensor], weight: Tensor | None = None
) -> list[Tensor]:
    """Output and gradients of all values."""
    leaves = [value.detach().clone().requires_grad_() for value in values]
    out = function(*leaves)
    if weight is None:
        weight = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).view(out.shape)
    loss = (out * weight.to(out.dtype)).sum()
    return [out.detach(), *torch.autograd.grad((loss * (1 - 2j)).real if loss.is_complex() else loss, leaves)]
