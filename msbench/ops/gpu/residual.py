"""Residuals with dropout of whole channels on a GPU, in Triton: operator and launches."""

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.gpu.tiles import cut_into_tiles
from msbench.ops.operators import register_differentiable

KERNELS = "msbench.ops.gpu.residual_kernels"
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_supported(x: Tensor, y: Tensor) -> bool:
    """Return True if the kernels can add x and y (b, l, d), scaled."""
    return x.ndim == 3 and x.shape == y.shape and {x.dtype, y.dtype} <= set(TYPES) and x.numel() > 0


def add_scaled_on_gpu(x: Tensor, y: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return x + y factors for x and y (b, l, d), of which y is of `dtype`, and factors (b, 1, d)."""
    out = fake_add_scaled(x, y, factors, dtype)
    start_kernel("add_scaled", out, x.contiguous(), y.contiguous(), factors.contiguous())
    return out


def fake_add_scaled(x: Tensor, y: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty tensor with the shape of `add_scaled_on_gpu`."""
    del y, factors
    return x.new_empty(x.shape, dtype=torch.promote_types(x.dtype, dtype))


def add_scaled_on_gpu_backward(g: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the gradient of y; that of x is g."""
    out = fake_add_scaled_backward(g, factors, dtype)
    start_kernel("scale", out, g.contiguous(), factors.contiguous())
    return out


def fake_add_scaled_backward(g: Tensor, factors: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty tensor with the shape of `add_scaled_on_gpu_backward`."""
    del factors
    return g.new_empty(g.shape, dtype=dtype)


def start_kernel(name: str, out: Tensor, *inputs: Tensor) -> None:
    """Write `out` (b, l, d); each program has a tile of one example."""
    b, length, d = out.shape
    cut = cut_into_tiles(length, d)
    with use_device_of(out):
        getattr(load_kernels(KERNELS), name)[(b * cut.tiles * cut.blocks,)](
            *inputs, out, length, d, cut.rows, cut.columns
        )


run_add_scaled = register_differentiable(
    add_scaled_on_gpu,
    fake_add_scaled,
    add_scaled_on_gpu_backward,
    outputs=("out",),
    gradients_of=("y",),
    passed_to=("x",),
    instead="add_scaled_reference",
    fake_backward=fake_add_scaled_backward,
)
