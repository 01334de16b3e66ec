"""The FFT convolution against direct sums and scipy: any lengths, any precision."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.fft
import torch
from op_gradients import gradients
from scipy import signal
from torch import Tensor

from msbench.ops import convolution
from msbench.ops.convolution import (
    circular_convolution,
    dense_convolution,
    find_fast_size,
    long_convolution,
    long_convolution_reference,
    two_sided_convolution,
)


def arguments(
    length: int, taps: int, b: int = 2, m: int = 2, d: int = 3, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """u (b, l, m, d) and kernel, or without m where that is 0."""
    generator = torch.Generator().manual_seed(length + taps)
    channels = (m, d) if m else (d,)
    sizes = (b, length, *channels), (taps, *channels)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


def assert_equal(values: Sequence[Tensor], tolerance: float = 1e-12, **options: Any) -> None:
    truth = gradients(long_convolution_reference, [x.double() for x in values], **options)
    for one, other in zip(gradients(long_convolution, values, **options), truth, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("taps", [1, 2, 3, 16, 31, 100, 127, 300])
@pytest.mark.parametrize("length", [1, 2, 3, 31, 33, 100, 127])
def test_kernels_shorter_as_long_and_longer_than_the_sequence(length: int, taps: int) -> None:
    assert_equal(arguments(length, taps))


@pytest.mark.parametrize(
    ("length", "taps"), [(999, 5), (1000, 1000), (1024, 1024), (1025, 64), (1023, 1025), (1009, 997)]
)
@pytest.mark.parametrize("m", [0, 1, 5])
def test_long_sequences_against_scipy(length: int, taps: int, m: int) -> None:
    values = arguments(length, taps, m=m)
    u, kernel = (x.numpy() for x in values)
    expected = signal.fftconvolve(u, kernel[None], axes=1)[:, :length]
    np.testing.assert_allclose(long_convolution(*values), expected, rtol=1e-11, atol=1e-11)
    found = long_convolution(*(x.float() for x in values))
    np.testing.assert_allclose(found, expected, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize(("length", "taps"), [(999, 11), (1025, 3)])
def test_gradients_of_long_sequences(length: int, taps: int) -> None:
    assert_equal(arguments(length, taps))
    assert_equal([x.float() for x in arguments(length, taps)], 1e-5)


def test_gradients_through_a_long_kernel_against_direct_correlation() -> None:
    u, kernel = arguments(1001, 777, b=1, m=0, d=1)
    g = torch.linspace(-1, 2, 1001, dtype=torch.float64)
    _, gu, gk = gradients(long_convolution, [u, kernel])
    full = np.correlate(g.numpy(), kernel[:, 0].numpy(), mode="full")  # lag 0 is at taps - 1
    np.testing.assert_allclose(gu[0, :, 0], full[776:], rtol=1e-10, atol=1e-9)
    full = np.correlate(g.numpy(), u[0, :, 0].numpy(), mode="full")
    np.testing.assert_allclose(gk[:, 0], full[1000:1777], rtol=1e-10, atol=1e-9)


def test_what_no_output_sees_has_no_gradient() -> None:
    *_, gk = gradients(long_convolution, arguments(7, 12))
    assert gk[:7].abs().min() > 0
    assert not gk[7:].any()


def test_an_impulse_gives_the_kernel_and_nothing_comes_before_it() -> None:
    for length in (64, 65, 1000):
        u, kernel = arguments(length, length, b=1, m=0)
        u.zero_()
        u[:, 20] = 1
        y = long_convolution(u, kernel)[0]
        torch.testing.assert_close(y[20:], kernel[:-20])
        assert y[:20].abs().max() < 1e-14


def test_loss_on_the_last_step_only() -> None:
    weight = torch.zeros(2, 90, 2, 3)
    weight[:, -1] = 1
    assert_equal(arguments(90, 90), weight=weight)
    assert_equal(arguments(90, 31), weight=weight)


@pytest.mark.parametrize("taps", [1, 4, 40])
@pytest.mark.parametrize("length", [1, 2, 33])
def test_both_sides_are_scipys_convolution_with_one_long_kernel(length: int, taps: int) -> None:
    u, past = arguments(length, taps, m=0)
    future = 2 * past.flip(0) + 1
    found = two_sided_convolution(u, past, future)
    whole = torch.cat([future.flip(0), past])
    for example, y in zip(u, found, strict=True):
        for channel in range(3):
            full = signal.convolve(example[:, channel].numpy(), whole[:, channel].numpy())
            np.testing.assert_allclose(y[:, channel], full[taps : taps + length], rtol=1e-12, atol=1e-12)


def test_gradcheck() -> None:
    for length, taps in ((9, 4), (5, 9)):
        values = [x.requires_grad_() for x in arguments(length, taps, m=0)]
        assert torch.autograd.gradcheck(long_convolution, values)


def test_slow_decays_in_float32_are_as_good_as_float64() -> None:
    u, _ = arguments(4097, 1, m=0)
    kernel = torch.exp(-1e-4 * torch.arange(4097, dtype=torch.float64)).unsqueeze(1).expand(-1, 3)
    exact = signal.lfilter([1], [1, -np.exp(-1e-4)], u.numpy(), axis=1)
    found = long_convolution(u.float(), kernel.float()).double().numpy()
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize("length", [1000, 1024, 37])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_transformed_in_float32(length: int, half: torch.dtype) -> None:
    u, kernel = arguments(length, length, dtype=torch.float32)
    y = long_convolution(u.to(half), kernel)
    assert y.dtype == half
    assert torch.equal(y, long_convolution(u.to(half).float(), kernel).to(half))
    values = [u, kernel]
    with torch.autocast("cpu", dtype=half):
        inside = gradients(long_convolution, values)
        low = gradients(long_convolution, [u.to(half), kernel.to(half)])
    assert all(
        torch.equal(one, other)
        for one, other in zip(inside, gradients(long_convolution, values), strict=True)
    )
    assert [x.dtype for x in low] == [half] * 3


def test_strided_and_expanded_inputs_equal_contiguous_ones() -> None:
    u, kernel = arguments(40, 9)
    inputs = [
        (u.mT.contiguous().mT, kernel.mT.contiguous().mT),
        (u[:, 1::3, 1:], kernel[2:, :1]),
        (u[:, :, :1].expand(-1, -1, 4, -1), kernel[:, :1].expand(-1, 4, -1)),
        (u.flip(1), kernel[:1].expand(9, -1, -1)),
    ]
    for one, other in inputs:
        assert_equal([one, other])
        expected = long_convolution(one.contiguous(), other.contiguous())
        assert torch.equal(long_convolution(one, other), expected)
    leaf = u.clone().requires_grad_()  # an expanded gradient
    found, truth = (f(leaf, kernel).sum() for f in (long_convolution, long_convolution_reference))
    torch.testing.assert_close(torch.autograd.grad(found, leaf), torch.autograd.grad(truth, leaf))


def test_parts_of_a_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = arguments(50, 20, b=7)
    expected = gradients(long_convolution, values)
    monkeypatch.setitem(convolution.ELEMENTS, "cpu", 700)  # 2 examples a part, and 1 that is left
    torch.testing.assert_close(gradients(long_convolution, values), expected)


def test_runs_are_bit_equal() -> None:
    values = arguments(1000, 1000, b=3, d=20, dtype=torch.float32)
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        one, other = gradients(long_convolution, values), gradients(long_convolution, values)
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
    torch.set_num_threads(before)


def test_function_transforms() -> None:
    u, kernel = arguments(12, 20, b=1)

    def last(u: Tensor) -> Tensor:
        return long_convolution(u, kernel)[0, -1, 0]

    expected = torch.autograd.functional.jacobian(last, u)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(torch.func.jacrev(last)(u), expected)
    leaf = u.clone().requires_grad_()
    (rows,) = torch.autograd.grad(last(leaf), leaf, torch.eye(3, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(torch.func.vmap(last)(torch.stack([u, 2 * u]))[1], last(2 * u))
    gradient = torch.func.grad(lambda u: long_convolution(u, kernel).square().sum())
    torch.testing.assert_close(torch.func.vmap(gradient)(torch.stack([u, 2 * u]))[1], 2 * gradient(u))


def test_compiled_graphs_keep_it_whole() -> None:
    values = arguments(17, 30)
    compiled: Any = torch.compile(long_convolution, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, values), gradients(long_convolution, values))


def test_second_derivatives_are_refused() -> None:
    u, kernel = (x.requires_grad_() for x in arguments(9, 5))
    first = torch.autograd.grad(long_convolution(u, kernel).square().sum(), u, create_graph=True)
    with pytest.raises(NotImplementedError, match="long_convolution_reference"):
        torch.autograd.grad(first[0].sum(), kernel)


def test_only_the_arguments_are_kept() -> None:
    values = [x.requires_grad_() for x in arguments(100, 100)]
    saved: list[int] = []

    def note(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        long_convolution(*values)
    assert sum(saved) == sum(x.numel() for x in values)


def test_good_sizes_are_the_next_even_ones_that_scipy_calls_fast() -> None:
    for least in (*range(1, 700), 1999, 2047, 2049, 4095, 32_769, 99_999):
        size = find_fast_size(least)
        assert size == 2 * scipy.fft.next_fast_len(-(-least // 2), real=True), least


def test_wrong_shapes_are_named() -> None:
    u, kernel = arguments(9, 5)
    for one, other in (
        (u, kernel[:, 0]),
        (u[0, 0], kernel),
        (u, kernel[..., :2]),
        (u[:, :0], kernel),
        (u, kernel[:0]),
    ):
        with pytest.raises(ValueError, match=r"u must be \(b, l, m, d\) and kernel"):
            long_convolution(one, other)
    with pytest.raises(ValueError, match="must be real"):
        long_convolution(u, kernel + 1j)


def dense_arguments(length: int, taps: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """u (2, length, 3) and kernel (taps, 4, 3)."""
    generator = torch.Generator().manual_seed(length + taps)
    sizes = (2, length, 3), (taps, 4, 3)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(dtype) for size in sizes]


def dense_reference(u: Tensor, kernel: Tensor) -> Tensor:
    outputs = []
    for t in range(u.shape[1]):
        seen = range(min(t + 1, len(kernel)))
        outputs.append(torch.stack([u[:, t - j] @ kernel[j].T for j in seen]).sum(0))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("taps", [1, 3, 16, 40])
@pytest.mark.parametrize("length", [1, 2, 31])
def test_dense_kernels_equal_their_sum(length: int, taps: int) -> None:
    values = dense_arguments(length, taps)
    truth = gradients(dense_reference, values)
    for one, other in zip(gradients(dense_convolution, values), truth, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-12 * other.abs().max().clamp(min=1e-3)


def test_dense_kernels_compile_transform_and_keep_the_arguments_alone() -> None:
    values = dense_arguments(17, 20)
    compiled: Any = torch.compile(dense_convolution, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, values), gradients(dense_convolution, values))
    u, kernel = values

    def last(u: Tensor) -> Tensor:
        return dense_convolution(u, kernel)[0, -1, 0]

    expected = torch.func.jacrev(lambda u: dense_reference(u, kernel)[0, -1, 0])(u)
    torch.testing.assert_close(torch.func.jacrev(last)(u), expected)
    saved: list[int] = []

    def note(x: Tensor) -> Tensor:
        saved.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        dense_convolution(*(x.requires_grad_() for x in values))
    assert sum(saved) == u.numel() + kernel[:17].numel()


def test_dense_kernels_are_transformed_in_float32_and_wrong_shapes_are_named() -> None:
    u, kernel = dense_arguments(9, 5, torch.float32)
    y = dense_convolution(u.bfloat16(), kernel)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, dense_convolution(u.bfloat16().float(), kernel).bfloat16())
    for one, other in ((u[0], kernel), (u, kernel[..., :2]), (u[:, :0], kernel), (u, kernel[:0])):
        with pytest.raises(ValueError, match=r"u must be \(b, l, i\) and kernel \(k, o, i\)"):
            dense_convolution(one, other)


def circular_arguments(shared: bool) -> tuple[list[Tensor], Tensor]:
    """u (4, 9, 3), a kernel for each example or for all, longer than u; and lengths."""
    generator = torch.Generator().manual_seed(0)
    sizes = (4, 9, 3), (1 if shared else 4, 12, 3)
    values = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    return values, torch.tensor([9, 1, 4, 8])


def circular_reference(u: Tensor, kernel: Tensor, lengths: Tensor) -> Tensor:
    """Zero after the end, as outputs there have no meaning."""
    y = torch.zeros_like(u)
    for row, n in enumerate(lengths.tolist()):
        taps = kernel.expand(len(u), -1, -1)[row, :n]
        lags = (torch.arange(n).unsqueeze(1) - torch.arange(n)) % n
        y[row, :n] = torch.einsum("tsd,sd->td", taps[lags], u[row, :n])
    return y


@pytest.mark.parametrize("shared", [False, True])
def test_circular_kernels_wrap_around_at_each_end(shared: bool) -> None:
    values, lengths = circular_arguments(shared)
    real = (torch.arange(9) < lengths.unsqueeze(1)).unsqueeze(2)

    def found(u: Tensor, kernel: Tensor) -> Tensor:
        return circular_convolution(u, kernel, lengths) * real

    truth = gradients(lambda u, kernel: circular_reference(u, kernel, lengths), values)
    for one, other in zip(gradients(found, values), truth, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-13 * other.abs().max()
    whole = torch.full((4,), 9)
    spectra = torch.fft.rfft(values[0], dim=1) * torch.fft.rfft(values[1][:, :9], dim=1)
    expected = torch.fft.irfft(spectra, n=9, dim=1)
    torch.testing.assert_close(
        circular_convolution(values[0], values[1], whole), expected, rtol=1e-12, atol=1e-12
    )


def test_circular_kernels_compile_and_transform_and_wrong_shapes_are_named() -> None:
    values, lengths = circular_arguments(shared=False)

    def call(u: Tensor, kernel: Tensor) -> Tensor:
        return circular_convolution(u, kernel, lengths)

    compiled: Any = torch.compile(call, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, values), gradients(call, values))
    u, kernel = values
    rows = torch.func.jacrev(lambda u: circular_reference(u, kernel, lengths)[2, 3, 0])(u)
    torch.testing.assert_close(torch.func.jacrev(lambda u: call(u, kernel)[2, 3, 0])(u), rows)
    half = circular_convolution(u.bfloat16(), kernel.float(), lengths)
    assert half.dtype == torch.bfloat16
    for wrong in (kernel[:3], kernel[..., :2], kernel[:, :8], kernel[0]):
        with pytest.raises(ValueError, match=r"kernel must be \(b, k, d\) or \(1, k, d\)"):
            circular_convolution(u, wrong, lengths)
