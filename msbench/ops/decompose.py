"""Causal filters along time: the nested multi-scale decomposition, and Mamba's short convolution.

All filters are indexed by lag: ``filter[..., j]`` is the weight of the sample j dilated steps back.
(PyTorch's ``conv1d`` has the reverse order.) The signal is padded with (k - 1) dilation zeros before the
first sample: lengths are kept, and no output sees the future.

Both are a bank of filters: S levels with one or two sides (low-pass, high-pass) each.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from msbench.ops import bank_torch, layer_kernels, layers_native
from msbench.ops.operation import differentiable, once_differentiable, operation


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> Tensor:
    """Filter every channel with its own taps: x (b, l, d), weight (d, k), bias (d,) -> (b, l, d).

    ::

        y[t] = bias + sum_j weight[j] x[t - j dilation]

    Any length, even shorter than the filter. The dtype is that of `x` and `weight` promoted.
    """
    if x.ndim != 3 or weight.ndim != 2 or x.shape[2] != weight.shape[0] or weight.shape[1] < 1:
        raise ValueError(
            f"x must be (b, l, d) and weight (d, k); got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    check_bias(bias, (x.shape[2],))
    if dilation < 1:
        raise ValueError(f"dilation must be at least 1; got {dilation}")
    filters = weight.t()[None, None]
    return _filtered(x, filters, None if bias is None else bias[None, None], dilation).squeeze(2)


def decompose(x: Tensor, filters: Tensor, bias: Tensor | None = None) -> Tensor:
    """Split a signal into scales (equations 2 and 3), nested and without decimation.

    ::

        d^s[t] = sum_j psi^s[j] a^{s-1}[t - 2^{s-1} j],    a^s likewise with phi^s,    a^0 = x

    Parameters
    ----------
    x : (b, l, d)
    filters : (S, 2, k, d); ``filters[s - 1]`` is phi^s (low-pass), psi^s (high-pass)
    bias : (S, 2, d) or None

    Returns the streams [x, d^1 .. d^S, a^S], (b, l, S + 2, d). Any length.
    """
    check_bank(x, filters, bias)
    return _filtered(x, filters, bias, 1)


def check_bank(x: Tensor, filters: Tensor, bias: Tensor | None) -> None:
    """Raise ValueError if shapes are invalid for `decompose`."""
    if x.ndim != 3 or filters.ndim != 4 or filters.shape[1] != 2 or filters.shape[3] != x.shape[2]:
        raise ValueError(
            f"x must be (b, l, d) and filters (S, 2, k, d); got {tuple(x.shape)} and {tuple(filters.shape)}"
        )
    if 0 in filters.shape:
        raise ValueError(f"no level or no tap in filters {tuple(filters.shape)}")
    check_bias(bias, (filters.shape[0], 2, filters.shape[3]))


def check_bias(bias: Tensor | None, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a bias has another shape: the C++ kernel would read beyond its end."""
    if bias is not None and bias.shape != shape:
        raise ValueError(f"the bias of the filters must be {shape}; got {tuple(bias.shape)}")


class BankEngine(Protocol):
    """An implementation of a bank and its gradients."""

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """Filter x (b, l, d) with taps (S, sides, k, d) and bias (S, sides, d).

        Returns the streams, and the tensor that `backward` needs. The streams are (b, l, S + 2, d), or with
        one side, where S is 1, (b, l, 1, d).
        """

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, taps and bias (even without a bias) from that of the streams."""

    def kept_shape(self, x: Tensor, taps: Tensor) -> tuple[int, ...]:
        """Return the shape of the tensor that `forward` keeps."""


ENGINES: dict[str, BankEngine] = {"torch": bank_torch.ENGINE, "cpp": layers_native.ENGINE}


def _filtered(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Call `BankEngine.forward`, differentiably; `dilation` is that of the first level."""
    dtype = torch.promote_types(x.dtype, taps.dtype)
    x, taps, bias = x.to(dtype), taps.to(dtype), None if bias is None else bias.to(dtype)
    engine = "cpp" if layer_kernels.native_for(x) else "torch"
    streams: Tensor = bank(x, taps, bias, dilation, engine)[0]
    return streams


def filter_bank(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, engine: str
) -> tuple[Tensor, Tensor]:
    """Return the streams, and the tensor that the engine keeps for the backward."""
    return ENGINES[engine].forward(x, taps, bias, dilation)


def fake_bank(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, engine: str
) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `filter_bank`."""
    del bias, dilation
    b, length, d = x.shape
    streams = taps.shape[0] + 2 if taps.shape[1] == 2 else 1
    return x.new_empty(b, length, streams, d), x.new_empty(ENGINES[engine].kept_shape(x, taps))


def filter_bank_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int, engine: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, taps and bias."""
    return ENGINES[engine].backward(g, x, taps, bias, kept, dilation)


def fake_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int, engine: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `filter_bank_backward`."""
    del g, bias, kept, dilation, engine
    return x.new_empty(x.shape), taps.new_empty(taps.shape), taps.new_empty(*taps.shape[:2], x.shape[2])


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the arguments and the engine's kept tensor."""
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # no zeros of the size of the kept tensor
    ctx.rest = inputs[3:]


def backward(ctx: Any, g: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
    if g is None:
        return (None,) * 5
    x, taps, bias, kept = ctx.saved_tensors
    gx, g_taps, g_bias = bank_backward(g, x, taps, bias, kept, *ctx.rest)
    return gx, g_taps, None if bias is None else g_bias, None, None


bank_backward = once_differentiable(operation(filter_bank_backward, fake_backward), "shifted sums in PyTorch")
bank = differentiable(operation(filter_bank, fake_bank), setup_context, backward)
