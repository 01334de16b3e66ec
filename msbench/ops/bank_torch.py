"""A bank of causal filters in PyTorch operations: the reference and fallback of the C++ kernel."""

import torch
from torch import Tensor


class TorchBankEngine:
    """See `msbench.ops.decompose.BankEngine`; low-pass signals between levels are kept for the backward."""

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """Return the streams, and the low-pass signals (S - 1, b, l, d)."""
        b, length, d = x.shape
        levels, sides = taps.shape[:2]
        streams = x.new_empty(b, length, levels + 2 if sides == 2 else 1, d)
        inner = x.new_empty(levels - 1, b, length, d)
        split_levels(x, taps, bias, dilation, streams, inner)
        return streams, inner

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, taps and bias, computed from the coarsest level to the finest."""
        del bias  # the low-pass signals hold it already
        signals = [x, *kept.unbind(0)]
        g_taps, g_bias = torch.zeros_like(taps), taps.new_empty(*taps.shape[:2], x.shape[2])
        g_low = g[:, :, -1]
        for s in reversed(range(len(taps))):
            step = dilation * 2**s
            g_signal = torch.zeros_like(x, memory_format=torch.contiguous_format)
            for side, g_out in enumerate((g_low, g[:, :, s + 1]) if taps.shape[1] == 2 else (g_low,)):
                correlate(g_out, taps[s, side], step, g_signal)
                add_tap_gradients(g_out, signals[s], step, g_taps[s, side])
                g_bias[s, side] = g_out.sum((0, 1))
            g_low = g_signal
        return g_low + g[:, :, 0] if taps.shape[1] == 2 else g_low, g_taps, g_bias

    def kept_shape(self, x: Tensor, taps: Tensor) -> tuple[int, ...]:
        """Return the shape of the low-pass signals between levels."""
        return (taps.shape[0] - 1, *x.shape)


ENGINE = TorchBankEngine()


def split_levels(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, streams: Tensor, inner: Tensor
) -> None:
    """Write the streams of x (b, l, d), and the low-pass signals between levels (S - 1, b, l, d)."""
    two = taps.shape[1] == 2
    if two:
        streams[:, :, 0] = x
    for s, low in enumerate([*inner.unbind(0), streams[:, :, -1]]):
        for side, out in enumerate((low, streams[:, :, s + 1]) if two else (low,)):
            filtered(x, taps[s, side], dilation * 2**s, out)
            if bias is not None:
                out.add_(bias[s, side])
        x = low


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


def add_tap_gradients(g: Tensor, x: Tensor, dilation: int, out: Tensor) -> None:
    """Write the gradients of the taps of `filtered` into `out` (k, d), which must be zero."""
    for index in range(min(len(out), -(-x.shape[1] // dilation))):
        lag = index * dilation
        out[index] = (g[:, lag:] * x[:, : x.shape[1] - lag]).sum((0, 1))


def shifts(taps: Tensor, dilation: int, length: int) -> list[tuple[int, Tensor]]:
    """Return lag and tap of all taps except the first whose lag is within a signal of this length."""
    pairs = [(index * dilation, tap) for index, tap in enumerate(taps.unbind(0))]
    return [(lag, tap) for lag, tap in pairs[1:] if lag < length]
