"""The decomposition and the convolution against SciPy, against one fused bank, and for causality."""

import numpy as np
import pytest
import pywt
import torch
from numpy.typing import NDArray
from scipy.signal import lfilter
from torch import Tensor
from torch.nn import functional

from msbench.ops.filters import causal_conv, convolve_silu, decompose

GENERATOR = torch.Generator().manual_seed(3)


def normal(*size: int) -> Tensor:
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64)


def stuffed(taps: NDArray[np.float64], dilation: int) -> NDArray[np.float64]:
    """A dilated filter written out: dilation - 1 zeros between the taps."""
    out = np.zeros((len(taps) - 1) * dilation + 1)
    out[::dilation] = taps
    return out


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 33, 100])
@pytest.mark.parametrize("kernel", [1, 2, 4])
@pytest.mark.parametrize("levels", [1, 3])
def test_levels_equal_scipy_filters(length: int, kernel: int, levels: int) -> None:
    x, filters = normal(2, length, 3), normal(levels, 2, kernel, 3)
    streams = decompose(x, filters).numpy()
    assert streams.shape == (2, length, levels + 2, 3)
    for b in range(2):
        for d in range(3):
            signal = x[b, :, d].numpy()
            np.testing.assert_array_equal(streams[b, :, 0, d], signal)
            for s in range(levels):
                low, high = (stuffed(filters[s, side, :, d].numpy(), 2**s) for side in (0, 1))
                np.testing.assert_allclose(streams[b, :, s + 1, d], lfilter(high, [1.0], signal), atol=1e-12)
                signal = lfilter(low, [1.0], signal)
            np.testing.assert_allclose(streams[b, :, -1, d], signal, atol=1e-12)


def test_streams_equal_one_fused_bank_of_filters() -> None:
    levels, kernel, length = 3, 4, 60
    x, filters = normal(1, length, 1), normal(levels, 2, kernel, 1)
    low = np.ones(1)
    bank = [low]
    for s in range(levels):
        taps = filters[s, :, :, 0].numpy()
        bank.append(np.convolve(low, stuffed(taps[1], 2**s)))
        low = np.convolve(low, stuffed(taps[0], 2**s))
    bank.append(low)
    assert len(low) == (kernel - 1) * (2**levels - 1) + 1
    expected = np.stack([np.convolve(x[0, :, 0].numpy(), taps)[:length] for taps in bank], axis=1)
    np.testing.assert_allclose(decompose(x, filters)[0, :, :, 0].numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("wavelet", ["haar", "db2", "db4", "sym4"])
def test_wavelet_filters_give_the_stationary_transform_of_pywavelets(wavelet: str) -> None:
    levels, length = 3, 128
    taps = pywt.Wavelet(wavelet)
    kernel = taps.dec_len
    x = normal(1, length, 1)
    pair = torch.tensor([taps.dec_lo, taps.dec_hi], dtype=torch.float64)
    streams = decompose(x, pair.view(1, 2, kernel, 1).expand(levels, -1, -1, -1))[0, :, :, 0].numpy()
    # From the coarsest level to the finest; circular, and centred where ours is causal.
    transform = pywt.swt(x[0, :, 0].numpy(), wavelet, level=levels, norm=False)
    for s, (low, high) in enumerate(reversed(transform), start=1):
        settled, shift = (kernel - 1) * (2**s - 1), kernel // 2 * (2**s - 1)
        found = [(streams[:, s], high)] + ([(streams[:, -1], low)] if s == levels else [])
        for ours, theirs in found:
            np.testing.assert_allclose(ours[settled:], np.roll(theirs, shift)[settled:], atol=1e-12)


def test_haar_splits_a_constant_and_an_alternation() -> None:
    filters = torch.tensor([[0.5, 0.5], [0.5, -0.5]], dtype=torch.float64).view(1, 2, 2, 1)
    constant = decompose(torch.ones(1, 6, 1, dtype=torch.float64), filters)[0, 1:, :, 0]
    torch.testing.assert_close(constant, torch.tensor([[1.0, 0.0, 1.0]], dtype=torch.float64).expand(5, 3))
    signs = torch.tensor([1.0, -1, 1, -1, 1, -1], dtype=torch.float64).view(1, 6, 1)
    alternation = decompose(signs, filters)[0, 1:, :, 0]
    torch.testing.assert_close(alternation[:, 1], signs[0, 1:, 0])
    assert not alternation[:, 2].any()


def test_bias_of_every_level_reaches_the_next() -> None:
    x, filters, bias = normal(1, 9, 2), normal(2, 2, 3, 2), normal(2, 2, 2)
    low = causal_conv(x, filters[0, 0].T, bias[0, 0])
    streams = decompose(x, filters, bias)
    torch.testing.assert_close(streams[:, :, 1], causal_conv(x, filters[0, 1].T, bias[0, 1]))
    torch.testing.assert_close(streams[:, :, 2], causal_conv(low, filters[1, 1].T, bias[1, 1], dilation=2))
    torch.testing.assert_close(streams[:, :, 3], causal_conv(low, filters[1, 0].T, bias[1, 0], dilation=2))


@pytest.mark.parametrize("length", [1, 3, 11])
@pytest.mark.parametrize("biased", [False, True])
def test_gradients_of_the_decomposition(length: int, biased: bool) -> None:
    values = [normal(2, length, 2), normal(3, 2, 3, 2), *([normal(3, 2, 2)] if biased else [])]
    assert torch.autograd.gradcheck(decompose, [value.requires_grad_() for value in values])


@pytest.mark.parametrize("length", [1, 2, 3, 4, 31, 1023, 1024, 1025, 1026, 1027])
@pytest.mark.parametrize("kernel", [1, 2, 4, 5, 8])
def test_convolution_equals_torch(length: int, kernel: int) -> None:
    x, weight, bias = normal(2, length, 3), normal(3, kernel), normal(3)
    padded = functional.pad(x.mT, (kernel - 1, 0))
    expected = functional.conv1d(padded, weight.flip(1).unsqueeze(1), bias, groups=3).mT
    torch.testing.assert_close(causal_conv(x, weight, bias), expected)


@pytest.mark.parametrize("dilation", [1, 2])
def test_gradients_of_the_convolution(dilation: int) -> None:
    values = [value.requires_grad_() for value in (normal(2, 5, 2), normal(2, 4), normal(2))]
    assert torch.autograd.gradcheck(lambda x, w, b: causal_conv(x, w, b, dilation), values)


@pytest.mark.parametrize("view", ["transposed", "sliced", "expanded"])
def test_strided_inputs(view: str) -> None:
    base = normal(4, 20, 6)
    x = {"transposed": base.mT, "sliced": base[:, ::2], "expanded": base[:1].expand(3, -1, -1)}[view]
    filters, weight = normal(2, 2, 3, x.shape[2]), normal(x.shape[2], 3)
    torch.testing.assert_close(decompose(x, filters), decompose(x.contiguous(), filters), rtol=0, atol=0)
    torch.testing.assert_close(causal_conv(x, weight), causal_conv(x.contiguous(), weight), rtol=0, atol=0)


def test_no_output_sees_the_future() -> None:
    filters = normal(3, 2, 4, 1)
    jacobian = torch.func.jacrev(lambda x: decompose(x, filters))(normal(1, 24, 1))
    by_time = jacobian.view(24, 5, 24)
    for stream in range(5):
        assert not by_time[:, stream].triu(1).any()
    assert by_time[23, 4].nonzero().min() == 23 - 3 * 7


def test_function_transforms_equal_loops() -> None:
    x, filters, weight = normal(3, 1, 6, 2), normal(2, 2, 2, 2), normal(2, 3)
    batched = torch.func.vmap(lambda one: decompose(one, filters))(x)
    torch.testing.assert_close(batched, torch.stack([decompose(one, filters) for one in x]))
    jacobian = torch.func.jacrev(lambda one: causal_conv(one, weight))(x[0])
    expected = torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
        lambda one: causal_conv(one, weight), x[0]
    )
    torch.testing.assert_close(jacobian, expected)


def test_wrong_shapes_are_reported() -> None:
    with pytest.raises(ValueError, match=r"filters \(S, 2, k, d\)"):
        decompose(normal(1, 5, 3), normal(2, 2, 4, 2))
    with pytest.raises(ValueError, match="no level or no tap"):
        decompose(normal(1, 5, 3), normal(0, 2, 4, 3))
    with pytest.raises(ValueError, match=r"weight \(d, k\)"):
        causal_conv(normal(1, 5, 3), normal(2, 4))
    with pytest.raises(ValueError, match="bias of the filters must be"):
        causal_conv(normal(1, 5, 3), normal(3, 4), normal(1))
    with pytest.raises(ValueError, match="dilation must be at least 1"):
        causal_conv(normal(1, 5, 3), normal(3, 4), dilation=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(0)
    x, filters = torch.randn(2, 30, 5, generator=source), torch.randn(2, 2, 3, 5, generator=source)
    weight, half = filters[0, 0].mT, x.to(dtype)
    for convolve in (causal_conv, convolve_silu):
        found = convolve(half, weight)
        assert found.dtype == dtype
        assert torch.equal(found, convolve(half.float(), weight).to(dtype))
    streams = decompose(half, filters)
    assert streams.dtype == dtype
    assert torch.equal(streams, decompose(half.float(), filters).to(dtype))
