"""A residual whose second term is scaled for each example and channel, as dropout of whole channels does.

It is computed in Triton (`msbench.ops.gpu.residual`) on a GPU, or in PyTorch operations.
"""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from msbench.ops.gpu import residual as kernels
from msbench.ops.operators import mark_constant
from msbench.ops.scan.dispatch import find_difference, uses_triton


def add_scaled(x: Tensor, y: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Return x plus y times all factors, for x and y (b, l, d).

    Factors are (b, 1, d) or (b, 1, 1) and have no gradients.
    """
    if factors and kernels.is_supported(x, y) and is_residual_on_gpu(x.device.type):
        together = reduce(torch.mul, factors).expand(len(x), 1, x.shape[2])
        added: Tensor = kernels.run_add_scaled(x, y, together, y.dtype)
        return added
    return add_scaled_reference(x, y, factors)


def add_scaled_reference(x: Tensor, y: Tensor, factors: Sequence[Tensor]) -> Tensor:
    """Compute `add_scaled` in PyTorch operations."""
    return x + reduce(torch.mul, factors, y)


@mark_constant
def is_residual_on_gpu(device: str) -> bool:
    """Return True if the Triton kernels are used on a device type: with the Triton scan."""
    return uses_triton(device, "residual", check_residual_on_gpu)


def check_residual_on_gpu(device: str) -> str:
    """Return the first fault of the Triton kernels on a small problem, or an empty string."""
    source = torch.Generator().manual_seed(0)
    sizes = (3, 75, 19), (3, 75, 19), (3, 1, 19)
    x, y, factors = (torch.randn(size, generator=source) for size in sizes)

    def run(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = kernels.run_add_scaled(x, y, factors.to(device), y.dtype)
        return found

    def run_reference(x: Tensor, y: Tensor) -> Tensor:
        return add_scaled_reference(x, y, [factors.to(x.dtype)])

    return find_difference(run, run_reference, [x.to(device), y.to(device)], ("output", "x", "y"))
