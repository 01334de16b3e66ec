"""A vmap rule for custom autograd functions whose kernels know nothing of vmap."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def looped(function: Callable[[], Any]) -> Callable[..., tuple[Any, Any]]:
    """A ``vmap`` static method that applies an autograd function to one slice after another.

    `function` returns the class (it is not yet bound where its body is executed). Exact for any argument, so
    that ``torch.func.vmap``, ``jacrev`` and ``vmap`` of ``vjp`` work, without a gain in speed. Not for
    ``is_grads_batched``, which knows no rules of custom functions.
    """

    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        slices = []
        for index in range(info.batch_size):
            one = [
                arg if dim is None else arg.select(dim, index) for arg, dim in zip(args, in_dims, strict=True)
            ]
            slices.append(function().apply(*one))
        if isinstance(slices[0], Tensor):
            return torch.stack(slices), 0
        stacked = tuple(torch.stack(parts) for parts in zip(*slices, strict=True))
        return stacked, (0,) * len(stacked)

    return vmap
