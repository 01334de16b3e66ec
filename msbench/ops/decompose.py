"""Causal filters along time: the nested multi-scale decomposition, and Mamba's short convolution.

Everywhere a filter is indexed by lag: ``filter[..., j]`` weighs the sample j dilated steps back. (PyTorch's
``conv1d`` keeps its weights the other way round.) Before the first sample there are (k - 1) dilation zeros:
lengths stay, and no output sees the future.
"""

from typing import Any

import torch
from torch import Tensor

from msbench.ops.vmap import looped


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> Tensor:
    """Filter every channel with its own taps: x (b, l, d), weight (d, k), bias (d,) -> (b, l, d).

    ::

        y[t] = bias + sum_j weight[j] x[t - j dilation]

    Any length, shorter than the filter too. The dtype is that of `x` and `weight` promoted.
    """
    if x.ndim != 3 or weight.ndim != 2 or x.shape[2] != weight.shape[0] or weight.shape[1] < 1:
        raise ValueError(
            f"x must be (b, l, d) and weight (d, k); got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    dtype = torch.promote_types(x.dtype, weight.dtype)
    y: Tensor = CausalConv.apply(x.to(dtype), weight.to(dtype).t(), dilation)
    return y if bias is None else y + bias


def decompose(x: Tensor, filters: Tensor, bias: Tensor | None = None) -> Tensor:
    """Split a signal into scales (equations 2 and 3), nested and without decimation.

    ::

        d^s[t] = sum_j psi^s[j] a^{s-1}[t - 2^{s-1} j],    a^s with phi^s alike,    a^0 = x

    Parameters
    ----------
    x : (b, l, d)
    filters : (S, 2, k, d); ``filters[s - 1]`` is phi^s (low-pass), psi^s (high-pass)
    bias : (S, 2, d) or None

    Returns the streams [x, d^1 .. d^S, a^S] side by side, (b, l, S + 2, d). Any length.
    """
    if x.ndim != 3 or filters.ndim != 4 or filters.shape[1] != 2 or filters.shape[3] != x.shape[2]:
        raise ValueError(
            f"x must be (b, l, d) and filters (S, 2, k, d); got {tuple(x.shape)} and {tuple(filters.shape)}"
        )
    if 0 in filters.shape:
        raise ValueError(f"no level or no tap in filters {tuple(filters.shape)}")
    dtype = torch.promote_types(x.dtype, filters.dtype)
    offsets = None if bias is None else bias.to(dtype)
    streams: Tensor = Decompose.apply(x.to(dtype), filters.to(dtype), offsets)[0]
    return streams


def filtered(x: Tensor, taps: Tensor, dilation: int, out: Tensor) -> None:
    """Write the causal filter of x (b, l, d) with taps (k, d) into `out`."""
    torch.mul(x, taps[0], out=out)
    for lag, tap in shifts(taps, dilation, x.shape[1]):
        out[:, lag:].addcmul_(x[:, :-lag], tap)


def correlate(g: Tensor, taps: Tensor, dilation: int, out: Tensor) -> None:
    """Add to `out` (b, l, d) the transpose of `filtered`, applied to g: the gradient of its input."""
    out.addcmul_(g, taps[0])
    for lag, tap in shifts(taps, dilation, g.shape[1]):
        out[:, :-lag].addcmul_(g[:, lag:], tap)


def tap_gradients(g: Tensor, x: Tensor, count: int, dilation: int) -> Tensor:
    """Gradients (k, d) of the taps of `filtered`."""
    gradients = g.new_zeros(count, g.shape[2])
    for index in range(min(count, -(-x.shape[1] // dilation))):
        lag = index * dilation
        gradients[index] = (g[:, lag:] * x[:, : x.shape[1] - lag]).sum((0, 1))
    return gradients


def shifts(taps: Tensor, dilation: int, length: int) -> list[tuple[int, Tensor]]:
    """Lag and tap of all taps but the first that reach into a signal of this length."""
    pairs = [(index * dilation, tap) for index, tap in enumerate(taps.unbind(0))]
    return [(lag, tap) for lag, tap in pairs[1:] if lag < length]


def split_levels(x: Tensor, filters: Tensor, bias: Tensor | None, streams: Tensor, inner: Tensor) -> None:
    """Write the streams of x (b, l, d), and the low-pass signals between levels (S - 1, b, l, d)."""
    streams[:, :, 0] = x
    for s, low in enumerate([*inner.unbind(0), streams[:, :, -1]]):
        for side, out in enumerate((low, streams[:, :, s + 1])):
            filtered(x, filters[s, side], 2**s, out)
            if bias is not None:
                out.add_(bias[s, side])
        x = low


def join_levels(
    g: Tensor, signals: list[Tensor], filters: Tensor, g_filters: Tensor, g_bias: Tensor
) -> Tensor:
    """The gradient of x from that of the streams; writes those of filters and bias.

    `signals` are a^0 .. a^{S-1}, what the filters of each level read.
    """
    g_low = g[:, :, -1]
    for s in reversed(range(len(filters))):
        g_signal = torch.zeros_like(signals[s], memory_format=torch.contiguous_format)
        for side, g_out in enumerate((g_low, g[:, :, s + 1])):
            correlate(g_out, filters[s, side], 2**s, g_signal)
            g_filters[s, side] = tap_gradients(g_out, signals[s], filters.shape[2], 2**s)
            g_bias[s, side] = g_out.sum((0, 1))
        g_low = g_signal
    return g_low + g[:, :, 0]


class CausalConv(torch.autograd.Function):
    """x (b, l, d), taps (k, d), dilation -> (b, l, d)."""

    vmap = staticmethod(looped(lambda: CausalConv))

    @staticmethod
    def forward(x: Tensor, taps: Tensor, dilation: int) -> Tensor:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        filtered(x, taps, dilation, y)
        return y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs[:2])
        ctx.dilation = inputs[2]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        return (*CausalConvBackward.apply(g, *ctx.saved_tensors, ctx.dilation), None)


class CausalConvBackward(torch.autograd.Function):
    """Gradients of `CausalConv`; a function of its own so that they can be batched."""

    vmap = staticmethod(looped(lambda: CausalConvBackward))

    @staticmethod
    def forward(g: Tensor, x: Tensor, taps: Tensor, dilation: int) -> tuple[Tensor, Tensor]:
        gx = torch.zeros_like(x, memory_format=torch.contiguous_format)
        correlate(g, taps, dilation, gx)
        return gx, tap_gradients(g, x, len(taps), dilation)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError("second derivatives of a causal convolution")


class Decompose(torch.autograd.Function):
    """Streams (b, l, S + 2, d) written in place, and the low-pass signals a^1 .. a^{S-1} for the backward."""

    vmap = staticmethod(looped(lambda: Decompose))

    @staticmethod
    def forward(x: Tensor, filters: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        b, length, d = x.shape
        levels = len(filters)
        streams = x.new_empty(b, length, levels + 2, d)
        inner = x.new_empty(levels - 1, b, length, d)
        split_levels(x, filters, bias, streams, inner)
        return streams, inner

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0], inputs[1], output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.biased = inputs[2] is not None

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gx, g_filters, g_bias = DecomposeBackward.apply(g, *ctx.saved_tensors)
        return gx, g_filters, g_bias if ctx.biased else None


class DecomposeBackward(torch.autograd.Function):
    """Gradients of `Decompose`, from the coarsest level to the finest."""

    vmap = staticmethod(looped(lambda: DecomposeBackward))

    @staticmethod
    def forward(g: Tensor, x: Tensor, filters: Tensor, inner: Tensor) -> tuple[Tensor, ...]:
        g_filters, g_bias = torch.empty_like(filters), filters.new_empty(len(filters), 2, x.shape[2])
        g_x = join_levels(g, [x, *inner.unbind(0)], filters, g_filters, g_bias)
        return g_x, g_filters, g_bias

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise NotImplementedError("second derivatives of the decomposition")
