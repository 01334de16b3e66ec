"""Causal filters along time: the nested multi-scale decomposition, and Mamba's short convolution.

All filters are indexed by lag: ``filter[..., j]`` is the weight of the sample j dilated steps back.
(PyTorch's ``conv1d`` has the reverse order.) The signal is padded with (k - 1) dilation zeros before the
first sample: lengths are kept, and no output sees the future.

Both are a bank of filters: S levels with one or two sides (low-pass, high-pass) each. It is computed in C++
(``native/layers.cpp``), in Triton (`msbench.ops.gpu.bank`) or in PyTorch operations.
"""

import ctypes
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops import native_library
from msbench.ops.gpu import bank
from msbench.ops.gpu.bank import TritonBankEngine
from msbench.ops.native_library import get_address
from msbench.ops.operators import mark_constant, register_differentiable
from msbench.ops.scan.dispatch import find_difference, uses_native, uses_triton


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> Tensor:
    """Filter every channel with its own taps: x (b, l, d), weight (d, k), bias (d,) -> (b, l, d).

    ::

        y[t] = bias + sum_j weight[j] x[t - j dilation]

    Any length, even shorter than the filter. The dtype is that of `x` and `weight` promoted, but that of `x`
    in half precision; the arithmetic is of the promoted one.
    """
    check_conv(x, weight, bias, dilation)
    return _apply_bank(x, *_arrange_conv(weight, bias), dilation).squeeze(2)


def convolve_silu(x: Tensor, weight: Tensor, bias: Tensor | None = None, dilation: int = 1) -> Tensor:
    """Return SiLU of `causal_conv`; on a GPU in one kernel each way, which keeps x alone."""
    check_conv(x, weight, bias, dilation)
    filters = _arrange_conv(weight, bias)
    if bank.is_supported(x, filters[0]) and is_bank_on_gpu(x.device.type):
        stream: Tensor = _silu_conv(x, *_promote_filters(x, *filters), dilation)
        return stream.squeeze(2)
    return functional.silu(_filter(x, *filters, dilation).squeeze(2)).to(find_stream_dtype(x, weight))


def check_conv(x: Tensor, weight: Tensor, bias: Tensor | None, dilation: int) -> None:
    """Raise ValueError if shapes or dilation are invalid for `causal_conv`."""
    if x.ndim != 3 or weight.ndim != 2 or x.shape[2] != weight.shape[0] or weight.shape[1] < 1:
        raise ValueError(
            f"x must be (b, l, d) and weight (d, k); got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    check_bias(bias, (x.shape[2],))
    if dilation < 1:
        raise ValueError(f"dilation must be at least 1; got {dilation}")


def _arrange_conv(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the filters of a convolution as those of a bank with one level and one side."""
    return weight.t()[None, None], None if bias is None else bias[None, None]


def decompose(x: Tensor, filters: Tensor, bias: Tensor | None = None) -> Tensor:
    """Split a signal into scales (equations 2 and 3), nested and without decimation.

    ::

        d^s[t] = sum_j psi^s[j] a^{s-1}[t - 2^{s-1} j],    a^s likewise with phi^s,    a^0 = x

    Parameters
    ----------
    x : (b, l, d)
    filters : (S, 2, k, d); ``filters[s - 1]`` is phi^s (low-pass), psi^s (high-pass)
    bias : (S, 2, d) or None

    Returns the streams [x, d^1 .. d^S, a^S], (b, l, S + 2, d), in the dtype of `causal_conv`. Any length.
    """
    check_bank(x, filters, bias)
    return _apply_bank(x, filters, bias, 1)


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


class TorchBankEngine:
    """A bank and its gradients in PyTorch operations; low-pass signals between levels are kept."""

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """Filter x (b, l, d) with taps (S, sides, k, d) and bias (S, sides, d).

        Returns the streams, (b, l, S + 2, d), or with one side, where S is 1, (b, l, 1, d); and the low-pass
        signals (S - 1, b, l, d), which `backward` needs.
        """
        b, length, d = x.shape
        levels, sides = taps.shape[:2]
        streams = x.new_empty(b, length, levels + 2 if sides == 2 else 1, d)
        inner = x.new_empty(levels - 1, b, length, d)
        split_levels(x, taps, bias, dilation, streams, inner)
        return streams, inner

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, taps and bias (even without a bias) from that of the streams.

        They are computed from the coarsest level to the finest.
        """
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


def split_levels(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, streams: Tensor, inner: Tensor
) -> None:
    """Write the streams of x (b, l, d), and the low-pass signals between levels (S - 1, b, l, d)."""
    two = taps.shape[1] == 2
    if two:
        streams[:, :, 0] = x
    for s, low in enumerate([*inner.unbind(0), streams[:, :, -1]]):
        for side, out in enumerate((low, streams[:, :, s + 1]) if two else (low,)):
            filter_signal(x, taps[s, side], dilation * 2**s, out)
            if bias is not None:
                out.add_(bias[s, side])
        x = low


def filter_signal(x: Tensor, taps: Tensor, dilation: int, out: Tensor) -> None:
    """Write the causal filter of x (b, l, d) with taps (k, d) into `out`."""
    torch.mul(x, taps[0], out=out)
    for lag, tap in pair_lags(taps, dilation, x.shape[1]):
        out[:, lag:].addcmul_(x[:, :-lag], tap)


def correlate(g: Tensor, taps: Tensor, dilation: int, out: Tensor) -> None:
    """Add to `out` (b, l, d) the transpose of `filter_signal`, applied to g: the gradient of its input."""
    out.addcmul_(g, taps[0])
    for lag, tap in pair_lags(taps, dilation, g.shape[1]):
        out[:, :-lag].addcmul_(g[:, lag:], tap)


def add_tap_gradients(g: Tensor, x: Tensor, dilation: int, out: Tensor) -> None:
    """Write the gradients of the taps of `filter_signal` into `out` (k, d), which must be zero."""
    for index in range(min(len(out), -(-x.shape[1] // dilation))):
        lag = index * dilation
        out[index] = (g[:, lag:] * x[:, : x.shape[1] - lag]).sum((0, 1))


def pair_lags(taps: Tensor, dilation: int, length: int) -> list[tuple[int, Tensor]]:
    """Return lag and tap of all taps except the first whose lag is within a signal of this length."""
    pairs = [(index * dilation, tap) for index, tap in enumerate(taps.unbind(0))]
    return [(lag, tap) for lag, tap in pairs[1:] if lag < length]


class NativeBankEngine:
    """A bank in C++; nothing is kept. All tensors are on the CPU, float32 or float64, and not empty."""

    def forward(self, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> tuple[Tensor, Tensor]:
        """Return the streams, and an empty tensor."""
        (b, length, d), (levels, sides) = x.shape, taps.shape[:2]
        out = x.new_empty(b, length, levels + 2 if sides == 2 else 1, d)
        tensors = _make_dense(x), taps.contiguous(), None if bias is None else bias.contiguous()
        native_library.call("bank_forward", x, make_bank_problem(*tensors, dilation), out)
        return out, x.new_empty(0)

    def backward(
        self, g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of x, taps and bias."""
        del kept
        tensors = _make_dense(x), taps.contiguous(), None if bias is None else bias.contiguous()
        gradients = (
            x.new_empty(x.shape),
            taps.new_empty(taps.shape),
            taps.new_empty(*taps.shape[:2], x.shape[2]),
        )
        problem = make_bank_problem(*tensors, dilation)
        native_library.call("bank_backward", x, problem, g.contiguous(), *gradients)
        return gradients

    def kept_shape(self, x: Tensor, taps: Tensor) -> tuple[int, ...]:
        """Return the shape of an empty tensor: nothing is kept."""
        del x, taps
        return (0,)


class BankProblem(ctypes.Structure):
    """``BankProblem`` of ``native/bank.h``."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("b", "l", "d", "levels", "sides", "k", "dilation")),
        *((name, ctypes.c_int64) for name in ("x_example", "x_step")),
        *((name, ctypes.c_void_p) for name in ("x", "taps", "bias")),
        *((name, ctypes.c_int32) for name in ("threads", "instructions")),
    )


def make_bank_problem(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> BankProblem:
    """Return the problem of some tensors, which must outlive it."""
    sizes = (*x.shape, *taps.shape[:3], dilation, x.stride(0), x.stride(1))
    return BankProblem(*sizes, *map(get_address, (x, taps, bias)), *native_library.execution_options())


def _make_dense(x: Tensor) -> Tensor:
    """Return x (b, l, d) with contiguous channels; half of a projection has them and is not copied."""
    return x if x.stride(2) == 1 else x.contiguous()


ENGINES: dict[str, TorchBankEngine | NativeBankEngine | TritonBankEngine] = {
    "torch": TorchBankEngine(),
    "cpp": NativeBankEngine(),
    "triton": TritonBankEngine(),
}
ACTIVATED = TritonBankEngine(silu=True)
NAMES = ("output", "x", "taps", "bias")


def find_stream_dtype(x: Tensor, taps: Tensor) -> torch.dtype:
    """Return the dtype of the streams of x: its own in half precision, else that of x and taps promoted."""
    half = x.dtype in (torch.bfloat16, torch.float16)
    return x.dtype if half else torch.promote_types(x.dtype, taps.dtype)


def _apply_bank(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Return streams in their dtype, differentiably; `dilation` is that of the first level."""
    return _filter(x, taps, bias, dilation).to(find_stream_dtype(x, taps))


def _filter(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Call the forward of an engine, whose streams may be of a higher precision than theirs."""
    taps, bias = _promote_filters(x, taps, bias)
    if bank.is_supported(x, taps) and is_bank_on_gpu(x.device.type):
        return apply_bank(x, taps, bias, dilation, engine=bank.NAME)
    x = x.to(taps.dtype)
    native = native_library.is_supported(x) and is_bank_native()
    return apply_bank(x, taps, bias, dilation, engine="cpp" if native else "torch")


def _promote_filters(x: Tensor, taps: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return taps and bias in the dtype of x and taps promoted."""
    dtype = torch.promote_types(x.dtype, taps.dtype)
    return taps.to(dtype), None if bias is None else bias.to(dtype)


def apply_bank(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, *, engine: str) -> Tensor:
    """Return the streams by one of `ENGINES`, differentiably."""
    streams: Tensor = _bank(x, taps, bias, dilation, engine)[0]
    return streams


@mark_constant
def is_bank_native() -> bool:
    """Return True if the C++ engine is used: with the C++ scan, if it passes its check."""
    return uses_native("filter bank", check_native_bank)


@mark_constant
def is_bank_on_gpu(device: str) -> bool:
    """Return True if the Triton engine is used on a device type: with the Triton scan."""
    return uses_triton(device, "filter bank", check_bank_on_gpu)


def check_native_bank() -> str:
    """Return the first fault of the C++ engine on a small problem, or an empty string.

    The problem has three chunks of steps and an odd number of channels.
    """
    return find_difference(partial(_run_engine, "cpp"), partial(_run_engine, "torch"), draw_bank(3, 2), NAMES)


def check_bank_on_gpu(device: str) -> str:
    """Return the first fault of the Triton engine on two small problems, or an empty string.

    They have several spans of steps and an odd number of channels; one has SiLU.
    """
    levels, conv = ([x.to(device) for x in draw_bank(*sizes)] for sizes in ((3, 2), (1, 1)))
    reference = partial(_run_engine, "torch")
    return find_difference(partial(_run_engine, bank.NAME), reference, levels, NAMES) or find_difference(
        lambda *x: _silu_conv(*x, 1), lambda *x: functional.silu(reference(*x)), conv, NAMES
    )


def draw_bank(levels: int, sides: int) -> list[Tensor]:
    """Return signal, taps and bias: fixed values."""
    source = torch.Generator().manual_seed(0)
    sizes = (2, 150, 19), (levels, sides, 4, 19), (levels, sides, 19)
    return [torch.randn(size, generator=source) for size in sizes]


def _run_engine(engine: str, x: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
    return apply_bank(x, taps, bias, 1, engine=engine)


def filter_bank(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, engine: str
) -> tuple[Tensor, Tensor]:
    """Return the streams, and the tensor that the engine keeps for the backward."""
    return ENGINES[engine].forward(x, taps, bias, dilation)


def fake_filter_bank(
    x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int, engine: str
) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `filter_bank`."""
    del bias, dilation
    b, length, d = x.shape
    streams = taps.shape[0] + 2 if taps.shape[1] == 2 else 1
    kept = ENGINES[engine].kept_shape(x, taps)
    dtype = find_stream_dtype(x, taps)
    return x.new_empty(b, length, streams, d, dtype=dtype), taps.new_empty(kept)


def filter_bank_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, kept: Tensor, dilation: int, engine: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, taps and bias."""
    g_x, g_taps, g_bias = ENGINES[engine].backward(g, x, taps, bias, kept, dilation)
    return g_x, g_taps, g_bias if bias is not None else g.new_empty(0)


_bank = register_differentiable(
    filter_bank,
    fake_filter_bank,
    filter_bank_backward,
    outputs=("streams", "kept"),
    instead="shifted sums in PyTorch",
)


def silu_conv(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Return SiLU of the stream of a bank with one side, in Triton."""
    return ACTIVATED.forward(x, taps, bias, dilation)[0]


def fake_silu_conv(x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int) -> Tensor:
    """Return an empty tensor with the shape of `silu_conv`."""
    del bias, dilation
    return x.new_empty(x.unsqueeze(2).shape, dtype=find_stream_dtype(x, taps))


def silu_conv_backward(
    g: Tensor, x: Tensor, taps: Tensor, bias: Tensor | None, dilation: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, taps and bias."""
    g_x, g_taps, g_bias = ACTIVATED.backward(g, x, taps, bias, taps.new_empty(0, *x.shape), dilation)
    return g_x, g_taps, g_bias if bias is not None else g.new_empty(0)


_silu_conv = register_differentiable(
    silu_conv,
    fake_silu_conv,
    silu_conv_backward,
    outputs=("y",),
    instead="causal_conv and functional.silu in PyTorch",
)
