"""Batch norm over real positions on a GPU, in Triton: operators and launches.

Forward and backward each read x twice. For the backward only x, its mask and moments are kept. Sums are
float32 in a fixed order, whatever the type of x.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.gpu.tiles import cut_into_tiles, round_up_to_power
from msbench.ops.operators import register_differentiable, register_operator

KERNELS = "msbench.ops.gpu.norm_kernels"
TYPES = (torch.float32, torch.bfloat16, torch.float16)
MERGE = {"ROWS": 256, "COLUMNS": 8}
"""Tiles of a merge of chunks: few channels, so that there are several programs; each loads many chunks."""


def is_supported(x: Tensor, weight: Tensor) -> bool:
    """Return True if the kernels can normalise x: not empty, of at most 32 bits, with float32 weights."""
    return x.dtype in TYPES and weight.dtype == torch.float32 and x.numel() > 0


def norm_on_gpu(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, epsilon: float, zero: bool, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute `masked_batch_norm` with y in `dtype`; moments are float32."""
    mean, var, count = compute_moments(x, mask)
    y = frozen_norm_on_gpu(x, mask, weight, bias, mean, var, epsilon, zero, dtype)
    return y, mean, var, count


def compute_moments(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean (d,), biased variance (d,) and number of real positions, at least 1."""
    x, mask = x.contiguous(), mask.contiguous()
    d = x.shape[-1]
    rows = x.numel() // d
    cut, kernels = cut_into_tiles(rows, d), load_kernels(KERNELS)
    counts, parts = make_floats(x, cut.chunks), make_floats(x, 2, cut.chunks, d)
    mean, var, count = make_floats(x, d), make_floats(x, d), make_floats(x)
    with use_device_of(x):
        kernels.gather_moments[(cut.chunks * cut.blocks,)](
            x, mask, counts, parts, rows, cut.each, cut.chunks, d, cut.rows, cut.columns
        )
        kernels.merge_moments[count_merging(d)](counts, parts, mean, var, count, cut.chunks, d, **MERGE)
    return mean, var, count


def fake_norm(x: Tensor, *options: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `norm_on_gpu`."""
    d = x.shape[-1]
    return make_like(x, options[-1]), make_floats(x, d), make_floats(x, d), make_floats(x)


def norm_on_gpu_backward(
    g: Tensor,
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    mean: Tensor,
    var: Tensor,
    count: Tensor,
    epsilon: float,
    zero: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias."""
    g = g.contiguous()
    sums = sum_gradients(g, x, mask, mean, var, epsilon, zero)
    return apply_gradients(g, x, mask, weight, mean, var, count, *sums, epsilon, zero), *sums


def sum_gradients(
    g: Tensor, x: Tensor, mask: Tensor, mean: Tensor, var: Tensor, epsilon: float, zero: bool
) -> tuple[Tensor, Tensor]:
    """Return the gradients (d,) of weight and bias."""
    g, x, mask = g.contiguous(), x.contiguous(), mask.contiguous()
    d = x.shape[-1]
    cut, kernels = cut_into_tiles(x.numel() // d, d), load_kernels(KERNELS)
    parts, g_weight, g_bias = make_floats(x, cut.chunks, 2, d), make_floats(x, d), make_floats(x, d)
    with use_device_of(x):
        kernels.gather_gradients[(cut.chunks * cut.blocks,)](
            *(g, x, mask, mean, var, parts, x.numel() // d, cut.each, epsilon),
            *(zero, d, cut.rows, cut.columns),
        )
        kernels.merge_gradients[count_merging(d)](parts, g_bias, g_weight, cut.chunks, d, **MERGE)
    return g_weight, g_bias


def apply_gradients(
    g: Tensor,
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    mean: Tensor,
    var: Tensor,
    count: Tensor,
    g_weight: Tensor,
    g_bias: Tensor,
    epsilon: float,
    zero: bool,
) -> Tensor:
    """Return the gradient of x, from those of weight and bias over all positions that made the moments."""
    g, x, mask = g.contiguous(), x.contiguous(), mask.contiguous()
    d, g_x = x.shape[-1], make_like(x, x.dtype)
    cut = cut_into_tiles(x.numel() // d, d)
    with use_device_of(x):
        load_kernels(KERNELS).apply_gradients[(cut.tiles * cut.blocks,)](
            *(g, x, mask, weight.contiguous(), mean, var, count, g_weight, g_bias, g_x),
            *(x.numel() // d, epsilon, zero, d, cut.rows, cut.columns),
        )
    return g_x


def fake_norm_backward(g: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `norm_on_gpu_backward`."""
    del g
    return make_like(x, x.dtype), make_floats(x, x.shape[-1]), make_floats(x, x.shape[-1])


def frozen_norm_on_gpu(
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    epsilon: float,
    zero: bool,
    dtype: torch.dtype,
) -> Tensor:
    """Compute `frozen_batch_norm` with y in `dtype`."""
    x, mask = x.contiguous(), mask.contiguous()
    d = x.shape[-1]
    rows, y = x.numel() // d, make_like(x, dtype)
    cut = cut_into_tiles(rows, d)
    with use_device_of(x):
        load_kernels(KERNELS).apply_moments[(cut.tiles * cut.blocks,)](
            *(x, mask, weight.contiguous(), bias.contiguous(), mean.contiguous(), var.contiguous(), y),
            *(rows, epsilon, zero, d, cut.rows, cut.columns),
        )
    return y


def fake_frozen_norm(x: Tensor, *options: Any) -> Tensor:
    """Return an empty tensor with the shape of `frozen_norm_on_gpu`."""
    return make_like(x, options[-1])


def count_merging(d: int) -> tuple[int]:
    """Return the number of programs that merge the chunks of d channels."""
    return (-(-d // MERGE["COLUMNS"]),)


def make_floats(x: Tensor, *size: int) -> Tensor:
    """Return an empty float32 tensor on x's device."""
    return x.new_empty(size, dtype=torch.float32)


def make_like(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an empty contiguous tensor of x's shape."""
    return x.new_empty(x.shape, dtype=dtype)


def track_moments_on_gpu(
    running_mean: Tensor, running_var: Tensor, mean: Tensor, var: Tensor, count: Tensor, momentum: float
) -> None:
    """Move the running moments towards mean and unbiased variance, in place, in one launch."""
    d = len(mean)
    columns = min(256, round_up_to_power(d))
    with use_device_of(mean):
        load_kernels(KERNELS).track_moments[(-(-d // columns),)](
            running_mean, running_var, mean, var, count, momentum, d, columns
        )


def fake_track_moments(*_: Any) -> None:
    """Return nothing, as `track_moments_on_gpu`."""


track = register_operator(track_moments_on_gpu, fake_track_moments, mutates=("running_mean", "running_var"))
apply_frozen_norm = register_operator(frozen_norm_on_gpu, fake_frozen_norm)
apply_norm = register_differentiable(
    norm_on_gpu,
    fake_norm,
    norm_on_gpu_backward,
    outputs=("y", "mean", "var", "count"),
    gradients_of=("x", "weight", "bias"),
    instead="masked_batch_norm_reference",
    fake_backward=fake_norm_backward,
)


class SpreadNorm(torch.autograd.Function):
    """`msbench.ops.batch_norm.spread_batch_norm`; `total` sums vectors over processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        mask: Tensor,
        weight: Tensor,
        bias: Tensor,
        total: Callable[[Tensor], Tensor],
        epsilon: float,
        zero: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return y, and mean, variance and number of the real positions of all processes."""
        own_mean, own_var, _ = compute_moments(x, mask)
        own_count = mask.sum(dtype=torch.float32)
        sums = total(torch.cat([own_mean * own_count, own_count.view(1)]))
        count = sums[-1].clamp(min=1)
        mean = sums[:-1] / count
        apart = own_mean - mean
        var = total(own_count * (own_var + apart * apart)) / count
        y = frozen_norm_on_gpu(x, mask, weight, bias, mean, var, epsilon, zero, weight.dtype)
        ctx.save_for_backward(x, mask, weight, mean, var, count)
        ctx.options = total, epsilon, zero
        ctx.mark_non_differentiable(mean, var, count)
        return y, mean, var, count

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        """Return the gradients of x, weight and bias."""
        x, mask, weight, mean, var, count = ctx.saved_tensors
        total, epsilon, zero = ctx.options
        g = g.contiguous()
        own = sum_gradients(g, x, mask, mean, var, epsilon, zero)
        g_weight, g_bias = total(torch.cat(own)).view(2, -1)
        g_x = apply_gradients(g, x, mask, weight, mean, var, count, g_weight, g_bias, epsilon, zero)
        return g_x, None, *own, None, None, None
