"""Gates: one array times an activation of another.

They are computed in Triton (`msbench.ops.gpu.gate`) on a GPU, or in PyTorch operations.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops.gpu import gate as kernels
from msbench.ops.operators import mark_constant
from msbench.ops.scan.dispatch import find_difference, uses_triton

Activation = Literal["silu", "sigmoid", "gelu"]
"""``gelu`` is the approximation by tanh."""


def apply_gate(y: Tensor, z: Tensor, activation: Activation = "silu") -> Tensor:
    """Return y times the activation of z, of one shape; only y and z are kept for the gradient on a GPU."""
    if kernels.is_supported(y, z) and is_gate_on_gpu(y.device.type):
        gated: Tensor = kernels.run_gate(y, z, activation)
        return gated
    return gate_reference(y, z, activation)


def gate_reference(y: Tensor, z: Tensor, activation: Activation = "silu") -> Tensor:
    """Compute `apply_gate` in PyTorch operations."""
    if activation == "gelu":
        return y * functional.gelu(z, approximate="tanh")
    return y * (functional.silu(z) if activation == "silu" else torch.sigmoid(z))


@mark_constant
def is_gate_on_gpu(device: str) -> bool:
    """Return True if the Triton kernels are used on a device type: with the Triton scan."""
    return uses_triton(device, "gate", check_gate_on_gpu)


def check_gate_on_gpu(device: str) -> str:
    """Return the first fault of the Triton kernels on a small problem, or an empty string.

    It has an odd number of channels, and z is half of a projection.
    """
    source = torch.Generator().manual_seed(0)
    y, whole = torch.randn(2, 75, 19, generator=source), torch.randn(2, 75, 38, generator=source)

    def run(y: Tensor, whole: Tensor) -> Tensor:
        found: Tensor = kernels.run_gate(y, whole[..., 19:], "silu")
        return found

    def run_reference(y: Tensor, whole: Tensor) -> Tensor:
        return gate_reference(y, whole[..., 19:])

    arguments = [tensor.to(device) for tensor in (y, whole)]
    return find_difference(run, run_reference, arguments, ("output", "y", "z"))
