"""Gates on a GPU, in Triton: operator and launches."""

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.gpu.tiles import cut_into_tiles
from msbench.ops.operators import register_differentiable

KERNELS = "msbench.ops.gpu.gate_kernels"
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_supported(y: Tensor, z: Tensor) -> bool:
    """Return True if the kernels can multiply y by an activation of z."""
    return y.dtype in TYPES and z.dtype in TYPES and y.shape == z.shape and y.numel() > 0


def gate_on_gpu(y: Tensor, z: Tensor, activation: str) -> Tensor:
    """Compute `msbench.ops.gate.apply_gate`; only y and z are kept for the backward, without a copy."""
    out = make_output(y, torch.promote_types(y.dtype, z.dtype))
    y, z = space_rows(y), space_rows(z)
    d = out.shape[-1]
    rows, cut = out.numel() // d, cut_into_tiles(out.numel() // d, d)
    with use_device_of(y):
        load_kernels(KERNELS).gate_forward[(cut.tiles * cut.blocks,)](
            *(y, z, out, rows, find_row_stride(y), find_row_stride(z)),
            *(activation, d, cut.rows, cut.columns),
        )
    return out


def fake_gate(y: Tensor, z: Tensor, activation: str) -> Tensor:
    """Return an empty tensor with the shape of `gate_on_gpu`."""
    del activation
    return make_output(y, torch.promote_types(y.dtype, z.dtype))


def gate_on_gpu_backward(g: Tensor, y: Tensor, z: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """Return the gradients of y and z."""
    g, g_y, g_z = g.contiguous(), make_output(y, y.dtype), make_output(z, z.dtype)
    y, z = space_rows(y), space_rows(z)
    d = g.shape[-1]
    rows, cut = g.numel() // d, cut_into_tiles(g.numel() // d, d)
    with use_device_of(g):
        load_kernels(KERNELS).gate_backward[(cut.tiles * cut.blocks,)](
            *(g, y, z, g_y, g_z, rows, find_row_stride(y), find_row_stride(z)),
            *(activation, d, cut.rows, cut.columns),
        )
    return g_y, g_z


def fake_gate_backward(g: Tensor, y: Tensor, z: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `gate_on_gpu_backward`."""
    del g, activation
    return make_output(y, y.dtype), make_output(z, z.dtype)


def space_rows(x: Tensor) -> Tensor:
    """Return x (..., d) with evenly spaced rows of contiguous numbers: half of a projection is not copied."""
    return x if find_row_stride(x) else x.contiguous()


def find_row_stride(x: Tensor) -> int:
    """Return the distance of the rows of x (..., d); 0 if it varies or if they are not contiguous."""
    if x.stride(-1) != 1 and x.shape[-1] > 1:
        return 0
    sizes, strides = x.shape[:-1], x.stride()[:-1]
    dims = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size > 1]
    if not dims:
        return x.shape[-1]
    inner = dims[-1][1]
    at = inner
    for size, stride in reversed(dims):
        if stride != at:
            return 0
        at = stride * size
    return inner


def make_output(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty contiguous tensor of x's shape."""
    return x.new_empty(x.shape, dtype=dtype)


run_gate = register_differentiable(
    gate_on_gpu,
    fake_gate,
    gate_on_gpu_backward,
    outputs=("out",),
    instead="gate_reference",
    fake_backward=fake_gate_backward,
)
