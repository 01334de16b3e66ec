"""Long causal convolutions along time, by FFT."""

import torch
from torch import Tensor

from msbench.ops.operators import register_differentiable

ELEMENTS = {"cpu": 2**20}
"""Signal elements per transform, by device: with 2^24 the backward took 1.6 times as long on a CPU."""
MANY_ELEMENTS = 2**24
"""Elements per transform on other devices: spectra of a whole batch would take four times its memory."""


def long_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Compute ``y[t] = sum_j kernel[j] u[t - j]``, each channel with its own kernel.

    Parameters
    ----------
    u : (b, l, m, d) or (b, l, d)
    kernel : (k, m, d) or (k, d), by lag; of any length (lags beyond the signal are cut)

    Returns y with the shape and dtype of `u`. Any length, any strides. Transforms are float32, or float64 if
    an argument is, regardless of autocast, and padded, so that nothing wraps around. Both arguments get
    gradients; second derivatives need `long_convolution_reference`. Runs are bit-equal only for the same
    number of threads: PyTorch multiplies complex numbers differently at the ends of the threads' shares.
    """
    check_convolution_shapes(u, kernel)
    dtype = torch.promote_types(torch.promote_types(u.dtype, kernel.dtype), torch.float32)
    seen = kernel[: u.shape[1]]
    y: Tensor = _convolution(u.to(dtype).flatten(2), seen.to(dtype).flatten(1))
    return y.view(u.shape).to(u.dtype)


def two_sided_convolution(u: Tensor, past: Tensor, future: Tensor) -> Tensor:
    """Compute ``y[t] = sum_j past[j] u[t - j] + sum_j future[j] u[t + 1 + j]``, each channel with its own.

    u is (b, l, d), zero after the end of each sequence; past and future are (k, d), of the same length. Types
    and precision are those of `long_convolution`, which computes both sides at once.
    """
    both = torch.stack([u, u.flip(1)], dim=2)
    ahead, back = long_convolution(both, torch.stack([past, future], dim=1)).unbind(2)
    return ahead + torch.cat([back.flip(1)[:, 1:], torch.zeros_like(u[:, :1])], dim=1)


def long_convolution_reference(u: Tensor, kernel: Tensor) -> Tensor:
    """Compute `long_convolution` as a sum over lags: slow, simple, differentiable any number of times."""
    check_convolution_shapes(u, kernel)
    y = torch.zeros_like(u)
    for lag, tap in enumerate(kernel.unbind(0)[: u.shape[1]]):
        before = torch.zeros_like(u[:, :lag])
        y = y + tap * torch.cat([before, u[:, : u.shape[1] - lag]], dim=1)
    return y


def check_convolution_shapes(u: Tensor, kernel: Tensor) -> None:
    """Raise ValueError if channels differ, a size is 0 or numbers are complex."""
    if u.is_complex() or kernel.is_complex():
        raise ValueError("u and kernel must be real: take real and imaginary parts one after the other")
    if u.ndim not in (3, 4) or kernel.shape[1:] != u.shape[2:] or 0 in u.shape or 0 in kernel.shape:
        raise ValueError(
            "u must be (b, l, m, d) and kernel (k, m, d), or (b, l, d) and (k, d), none empty; got"
            f" {tuple(u.shape)} and {tuple(kernel.shape)}"
        )


def find_fast_size(least: int) -> int:
    """Return the smallest even number from `least` on without a prime factor above 5, whose FFT is fast."""
    best = 1 << max(1, (least - 1).bit_length())
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            twos = max(1, (-(-least // threes) - 1).bit_length())
            best = min(best, threes << twos)
            threes *= 3
        fives *= 5
    return best


def transform(x: Tensor, size: int) -> Tensor:
    """Transform x (..., l, d) to frequencies (..., d, size / 2 + 1), with `size` points."""
    # On a contiguous copy: along a stride the transform took twice as long.
    spectra: Tensor = torch.fft.rfft(x.mT.contiguous(), n=size)
    return spectra


def invert_transform(spectra: Tensor, size: int, length: int) -> Tensor:
    """Return the first `length` steps of the signal with these spectra (a view); inverts `transform`."""
    signals: Tensor = torch.fft.irfft(spectra, n=size)
    return signals[..., :length].mT


def fft_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Convolve u (b, l, d) with kernel (k, d), k at most l."""
    length = u.shape[1]
    size = find_fast_size(length + kernel.shape[0] - 1)
    weights, y = transform(kernel, size), u.new_empty(u.shape)
    for part, out in zip(split_examples(u), split_examples(y), strict=True):
        out.copy_(invert_transform(transform(part, size).mul_(weights), size, length))
    return y


def fft_convolution_backward(g: Tensor, u: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of u and kernel. Spectra, twice as large as signals, are recomputed."""
    length = u.shape[1]
    size = find_fast_size(length + kernel.shape[0] - 1)
    weights, gu = transform(kernel, size).conj().resolve_conj(), u.new_empty(u.shape)
    total = torch.zeros_like(weights)
    for part, incoming, out in zip(split_examples(u), split_examples(g), split_examples(gu), strict=True):
        spectra = transform(incoming, size)
        total += (transform(part, size).conj() * spectra).sum(0)
        out.copy_(invert_transform(spectra.mul_(weights), size, length))
    return gu, invert_transform(total, size, kernel.shape[0]).contiguous()


def split_examples(x: Tensor) -> tuple[Tensor, ...]:
    """Split x (b, l, d) into views of some examples each, with about `ELEMENTS` elements."""
    size = ELEMENTS.get(x.device.type, MANY_ELEMENTS)
    return tuple(torch.split(x, max(1, size // (x.shape[1] * x.shape[2]))))


def fake_fft_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `fft_convolution`."""
    del kernel
    return u.new_empty(u.shape)


_convolution = register_differentiable(
    fft_convolution,
    fake_fft_convolution,
    fft_convolution_backward,
    outputs=("y",),
    instead="long_convolution_reference",
)


def dense_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Compute ``y[t] = sum_j kernel[j] u[t - j]`` with a matrix at each lag: every channel sees all others.

    Parameters
    ----------
    u : (b, l, i)
    kernel : (k, o, i), by lag; of any length (lags beyond the signal are cut)

    Returns y (b, l, o) with the dtype of `u`. Precision, gradients and equality of bits are those of
    `long_convolution`. The kernel's spectrum is held whole: about 4 k o i numbers.
    """
    if u.ndim != 3 or kernel.ndim != 3 or kernel.shape[2] != u.shape[2] or 0 in (*u.shape, *kernel.shape):
        raise ValueError(
            f"u must be (b, l, i) and kernel (k, o, i), none empty; got {tuple(u.shape)} and"
            f" {tuple(kernel.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(u.dtype, kernel.dtype), torch.float32)
    y: Tensor = _dense_convolution(u.to(dtype), kernel[: u.shape[1]].to(dtype))
    return y.to(u.dtype)


def transform_dense(kernel: Tensor, size: int) -> Tensor:
    """Transform kernel (k, o, i) to frequencies (o, i, size / 2 + 1), with `size` points."""
    spectra: Tensor = torch.fft.rfft(kernel.permute(1, 2, 0).contiguous(), n=size)
    return spectra


def fft_dense_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Convolve u (b, l, i) with kernel (k, o, i), k at most l."""
    length = u.shape[1]
    size = find_fast_size(length + kernel.shape[0] - 1)
    spectra = torch.einsum("bif,oif->bof", transform(u, size), transform_dense(kernel, size))
    return invert_transform(spectra, size, length).contiguous()


def fft_dense_convolution_backward(g: Tensor, u: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of u and kernel; spectra are recomputed."""
    taps, length = kernel.shape[0], u.shape[1]
    size = find_fast_size(length + taps - 1)
    incoming = transform(g, size)
    inputs = torch.einsum("bof,oif->bif", incoming, transform_dense(kernel, size).conj())
    weights = torch.einsum("bof,bif->oif", incoming, transform(u, size).conj())
    kernels: Tensor = torch.fft.irfft(weights, n=size)[..., :taps]
    return invert_transform(inputs, size, length).contiguous(), kernels.permute(2, 0, 1).contiguous()


def fake_dense_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `fft_dense_convolution`."""
    return u.new_empty((*u.shape[:2], kernel.shape[1]))


_dense_convolution = register_differentiable(
    fft_dense_convolution,
    fake_dense_convolution,
    fft_dense_convolution_backward,
    outputs=("y",),
    instead="a sum over lags",
)


def circular_convolution(u: Tensor, kernel: Tensor, lengths: Tensor) -> Tensor:
    """Compute ``y[t] = sum_j kernel[j] u[(t - j) mod n]`` over j < n, where n is a sequence's own length.

    Parameters
    ----------
    u : (b, l, d)
    kernel : (b, k, d), or (1, k, d) for all examples, by lag; k at least l
    lengths : (b,) int64, at most l; what stands in u and kernel from n on is ignored

    Returns y (b, l, d) with the dtype of `u`; positions from n on have no meaning. Precision, gradients and
    equality of bits are those of `long_convolution`.
    """
    b, length, d = u.shape
    if kernel.ndim != 3 or kernel.shape[0] not in (1, b) or kernel.shape[2] != d or kernel.shape[1] < length:
        raise ValueError(
            f"kernel must be (b, k, d) or (1, k, d) with k at least l, for u (b, l, d); got"
            f" {tuple(kernel.shape)} for {tuple(u.shape)}"
        )
    dtype = torch.promote_types(torch.promote_types(u.dtype, kernel.dtype), torch.float32)
    y: Tensor = _circular_convolution(u.to(dtype), kernel[:, :length].to(dtype), lengths)
    return y.to(u.dtype)


def mask_positions(lengths: Tensor, longest: int) -> Tensor:
    """Return True at the real positions of sequences of these lengths, (b, longest, 1)."""
    return (torch.arange(longest, device=lengths.device) < lengths.unsqueeze(1)).unsqueeze(2)


def fft_circular_convolution(u: Tensor, kernel: Tensor, lengths: Tensor) -> Tensor:
    """Convolve u (b, l, d) with kernel (b or 1, l, d), and add what passes a sequence's end to its start."""
    length = u.shape[1]
    size, real = find_fast_size(2 * length), mask_positions(lengths, length)
    spectra = transform(u * real, size).mul_(transform(kernel * real, size))
    y = invert_transform(spectra, size, 2 * length)
    wrapped = torch.arange(length, device=u.device) + lengths.unsqueeze(1)
    return y[:, :length] + y.take_along_dim(wrapped.unsqueeze(2), dim=1)


def fft_circular_convolution_backward(
    g: Tensor, u: Tensor, kernel: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of u and kernel; spectra are recomputed."""
    length = u.shape[1]
    size, real = find_fast_size(2 * length), mask_positions(lengths, length)
    # Each output is a sum of two positions of the linear convolution, n apart: both get its gradient.
    positions = torch.arange(2 * length, device=u.device) % lengths.clamp(min=1).unsqueeze(1)
    both = g.take_along_dim(positions.unsqueeze(2), dim=1) * mask_positions(2 * lengths, 2 * length)
    incoming = transform(both, size)
    inputs = invert_transform(incoming * transform(kernel * real, size).conj(), size, length) * real
    kernels = invert_transform(incoming * transform(u * real, size).conj(), size, length) * real
    return inputs.contiguous(), (
        kernels.sum(0, keepdim=True) if len(kernel) < len(u) else kernels
    ).contiguous()


def fake_circular_convolution(u: Tensor, kernel: Tensor, lengths: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `fft_circular_convolution`."""
    del kernel, lengths
    return u.new_empty(u.shape)


_circular_convolution = register_differentiable(
    fft_circular_convolution,
    fake_circular_convolution,
    fft_circular_convolution_backward,
    outputs=("y",),
    instead="a sum over lags",
    gradients_of=("u", "kernel"),
)
