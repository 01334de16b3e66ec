"""Layer norm and RMS norm of sequences whose padding may have to be 0.

They are computed in Triton (`msbench.ops.gpu.row_norm`) on a GPU, or by PyTorch.
"""

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops.batch_norm import EPSILON
from msbench.ops.gpu import row_norm as kernels
from msbench.ops.operators import mark_constant
from msbench.ops.scan.dispatch import find_difference, uses_triton


def layer_norm(x: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Normalise the channels of x (b, l, d) at each position; without a bias (d,) it is an RMS norm.

    If a mask (b, l, 1) is given, it is 1 at the positions that stay, and 0 at those that become 0.
    """
    if kernels.is_supported(x, weight) and is_layer_norm_on_gpu(x.device.type):
        y: Tensor = kernels.run_row_norm(x, mask, weight, bias, EPSILON, weight.dtype)
        return y
    return layer_norm_reference(x, mask, weight, bias)


def layer_norm_reference(x: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute `layer_norm` by PyTorch."""
    if bias is None:
        y = functional.rms_norm(x, weight.shape, weight, EPSILON)
    else:
        y = functional.layer_norm(x, weight.shape, weight, bias, EPSILON)
    return y if mask is None else y * mask


@mark_constant
def is_layer_norm_on_gpu(device: str) -> bool:
    """Return True if the Triton kernels are used on a device type: with the Triton scan."""
    return uses_triton(device, "layer norm", check_layer_norm_on_gpu)


def check_layer_norm_on_gpu(device: str) -> str:
    """Return the first fault of the Triton kernels on a small problem, or an empty string.

    The problem has an odd number of channels, padding, and means far from 0.
    """
    source = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(size, generator=source) for size in ((2, 150, 19), 19, 19))
    x += 3
    mask = (torch.randn(2, 150, 1, generator=source) > 0).float()

    def run(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y: Tensor = kernels.run_row_norm(x, mask.to(device), weight, bias, EPSILON, torch.float32)
        return y

    def run_reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return layer_norm_reference(x, mask.to(x.dtype), weight, bias)

    arguments = [tensor.to(device) for tensor in (x, weight, bias)]
    return find_difference(run, run_reference, arguments, ("output", "x", "weight", "bias"))
