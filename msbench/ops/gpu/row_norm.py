"""Layer norm and RMS norm on a GPU, in Triton: operator and launches. Only x and its mask are kept."""

from typing import Any

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.gpu.norm import KERNELS as MERGING
from msbench.ops.gpu.norm import MERGE, count_merging, make_floats, make_like
from msbench.ops.gpu.tiles import TILE, cut_into_tiles
from msbench.ops.operators import register_differentiable

KERNELS = "msbench.ops.gpu.row_norm_kernels"
TYPES = (torch.float32, torch.bfloat16, torch.float16)


def is_supported(x: Tensor, weight: Tensor) -> bool:
    """Return True if the kernels can normalise x: not empty, of at most 32 bits, its rows not too wide."""
    return x.dtype in TYPES and weight.dtype == torch.float32 and x.numel() > 0 and x.shape[-1] <= TILE


def row_norm_on_gpu(
    x: Tensor,
    mask: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
    dtype: torch.dtype,
) -> Tensor:
    """Compute `msbench.ops.layer_norm.layer_norm` for x (..., d), with y in `dtype`."""
    x, y, d = x.contiguous(), make_like(x, dtype), x.shape[-1]
    rows = x.numel() // d
    cut = cut_into_tiles(rows, d, TILE)
    with use_device_of(x):
        load_kernels(KERNELS).normalise_rows[(cut.tiles,)](
            *(x, x if mask is None else mask.contiguous(), weight, weight if bias is None else bias, y),
            *(rows, epsilon, bias is None, mask is not None, d, cut.rows, cut.columns),
        )
    return y


def fake_row_norm(x: Tensor, *options: Any) -> Tensor:
    """Return an empty tensor with the shape of `row_norm_on_gpu`."""
    return make_like(x, options[-1])


def row_norm_on_gpu_backward(
    g: Tensor, x: Tensor, mask: Tensor | None, weight: Tensor, bias: Tensor | None, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias (even without a bias)."""
    g, x, d = g.contiguous(), x.contiguous(), x.shape[-1]
    rows = x.numel() // d
    cut = cut_into_tiles(rows, d, TILE)
    g_x, g_weight, g_bias = make_like(x, x.dtype), make_floats(x, d), make_floats(x, d)
    parts = make_floats(x, cut.chunks, 2, d)
    with use_device_of(x):
        load_kernels(KERNELS).normalise_rows_backward[(cut.chunks,)](
            *(g, x, x if mask is None else mask.contiguous(), weight, g_x, parts, rows, cut.each),
            *(epsilon, bias is None, mask is not None, d, cut.rows, cut.columns),
        )
        load_kernels(MERGING).merge_gradients[count_merging(d)](
            parts, g_bias, g_weight, cut.chunks, d, **MERGE
        )
    return g_x, g_weight, g_bias


def fake_row_norm_backward(g: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `row_norm_on_gpu_backward`."""
    del g
    return make_like(x, x.dtype), make_floats(x, x.shape[-1]), make_floats(x, x.shape[-1])


run_row_norm = register_differentiable(
    row_norm_on_gpu,
    fake_row_norm,
    row_norm_on_gpu_backward,
    outputs=("y",),
    gradients_of=("x", "weight", "bias"),
    instead="layer_norm_reference",
    fake_backward=fake_row_norm_backward,
)
