"""The time-invariant diagonal system in PyTorch operations: for other devices, and without a compiler.

Chunks of T steps are columns of matrices, and each chunk is computed by matrix products, per channel::

    y = K u + W' h        h: the states before the chunk        K[t, s] = k[t - s],  k[j] = sum_n w a^j
    h <- a^T h + E u      E[n, s] = a^(T - 1 - s)               W[n, t] = w a^(t + 1)

The states before the chunks are an elementwise recurrence over l / T steps. Decays are exponentials of sums
of logarithms, never products of decays, so slow ones do not drift. Streams are computed one after another.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from msbench.ops.linear_torch import recurrence, reversed_recurrence
from msbench.ops.recurrences_native import Tensors


class LtiStream(NamedTuple):
    """The parameters of one stream of d channels with n states each."""

    log_decay: Tensor  # (d, n)
    weight: Tensor  # (d, n)
    powers: Tensor  # (d, n, T + 1)

    @property
    def length(self) -> int:
        """Steps per chunk."""
        return self.powers.shape[2] - 1

    def toeplitz(self) -> Tensor:
        """Return K (d, T, T)."""
        kernel = torch.einsum("dn,dnt->dt", self.weight, self.powers[..., :-1])
        steps = torch.arange(self.length, device=kernel.device)
        lags = (steps.unsqueeze(1) - steps + self.length).clamp(min=0)
        return functional.pad(kernel, (self.length, 0))[:, lags]

    def into_states(self) -> Tensor:
        """Return E (d, n, T)."""
        return self.powers[..., :-1].flip(2)

    def from_states(self) -> Tensor:
        """Return W (d, n, T)."""
        return self.weight.unsqueeze(2) * self.powers[..., 1:]

    def carried(self, x: Tensor, *, back: bool) -> Tensor:
        """Return the states (d, n, c, b) before each chunk from each chunk's input; in reverse if `back`."""
        d, n, chunks, b = x.shape
        scan = reversed_recurrence if back else recurrence
        log = (self.log_decay * self.length).reshape(d * n, 1, 1)
        after = scan(log, x.reshape(d * n, chunks, b), log=True).view(x.shape)
        none = torch.zeros_like(after[:, :, :1])
        return torch.cat([after[:, :, 1:], none] if back else [none, after[:, :, :-1]], dim=2)


def stream_of(log_decay: Tensor, weight: Tensor, length: int) -> LtiStream:
    """Return the matrices of one stream for sequences of a given length."""
    # K has T^2 elements and takes T products per step; the states take n of both per chunk.
    size = min(length, 64 if log_decay.shape[1] <= 64 else 128)
    exponents = torch.arange(size + 1, device=log_decay.device, dtype=log_decay.dtype)
    return LtiStream(log_decay, weight, (log_decay.unsqueeze(2) * exponents).exp())


def chunked(x: Tensor, size: int) -> Tensor:
    """Return x (b, l, d) as (d, T, c, b), padded with zeros at the end."""
    b, length, d = x.shape
    chunks = -(-length // size)
    padded = functional.pad(x, (0, 0, 0, chunks * size - length))
    return padded.view(b, chunks, size, d).permute(3, 2, 1, 0).contiguous()


def joined(x: Tensor, length: int) -> Tensor:
    """Invert `chunked` (a view if possible)."""
    return x.permute(3, 2, 1, 0).flatten(1, 2)[:, :length]


def product(x: Tensor, y: Tensor) -> Tensor:
    """Multiply x (d, i, j) and y (d, j, c, b): (d, i, c, b)."""
    return torch.bmm(x, y.flatten(2)).view(*x.shape[:2], *y.shape[2:])


def forward(stream: LtiStream, x: Tensor) -> Tensor:
    """Return y of x, both (d, T, c, b)."""
    y = product(stream.toeplitz(), x)
    if x.shape[2] > 1:
        before = stream.carried(product(stream.into_states(), x), back=False)
        y += product(stream.from_states().mT, before)
    return y


def backward(stream: LtiStream, x: Tensor, gy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, log decays and weights."""
    gx = product(stream.toeplitz().mT, gy)
    g_kernel = diagonals(torch.bmm(gy.flatten(2), x.flatten(2).mT))
    lags = torch.arange(stream.length + 1, device=x.device, dtype=x.dtype)
    # Gradients of the terms with the power j of the decay times a weight, and of those without a weight.
    weighed = stream.powers * functional.pad(g_kernel, (0, 1)).unsqueeze(1)
    plain = torch.zeros_like(stream.log_decay)
    if x.shape[2] > 1:
        before = stream.carried(product(stream.into_states(), x), back=False)
        behind = stream.carried(product(stream.from_states(), gy), back=True)
        gx += product(stream.into_states().mT, behind)
        weighed[..., 1:] += stream.powers[..., 1:] * torch.bmm(before.flatten(2), gy.flatten(2).mT)
        entering = torch.bmm(behind.flatten(2), x.flatten(2).mT).flip(2)
        plain = (entering * stream.powers[..., :-1] * lags[:-1]).sum(2)
        plain += stream.length * stream.powers[..., -1] * (behind * before).sum((2, 3))
    return gx, stream.weight * (weighed * lags).sum(2) + plain, weighed.sum(2)


def diagonals(x: Tensor) -> Tensor:
    """Sum x (d, T, T) over its diagonals from the main one down, (d, T): all x[t, s] with t - s = j."""
    size = x.shape[1]
    # Rows of 2 T elements, read as rows of 2 T - 1, are shifted by one against each other.
    rows = functional.pad(x.flip(2), (0, size)).flatten(1)[:, : size * (2 * size - 1)]
    return rows.reshape(-1, size, 2 * size - 1).sum(1)[:, size - 1 :]


class TorchLtiEngine:
    """See `msbench.ops.lti_scan.LtiEngine`."""

    def forward(self, tensors: Tensors, *, keep: bool) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.lti_scan.LtiEngine`."""
        u, log_decay, weight, skip, mix = tensors
        y = u.new_empty(u.shape)
        for s in range(u.shape[2]):
            stream = stream_of(log_decay[s], weight[s], u.shape[1])
            y[:, :, s] = joined(forward(stream, chunked(u[:, :, s], stream.length)), u.shape[1])
        if skip is not None:
            y.addcmul_(u, skip)
        out = y if mix is None else torch.einsum("blm,blmd->bld", mix, y).contiguous()
        return out, y if keep else u.new_empty(0)

    def backward(self, gout: Tensor, tensors: Tensors, kept: Tensor) -> Tensors:
        """See `msbench.ops.lti_scan.LtiEngine`."""
        u, log_decay, weight, skip, mix = tensors
        gu, g_decay, g_weight = u.new_empty(u.shape), torch.empty_like(log_decay), torch.empty_like(weight)
        g_skip = None if skip is None else torch.empty_like(skip)
        for s in range(u.shape[2]):
            gy = gout[:, :, s] if mix is None else mix[:, :, s].unsqueeze(2) * gout
            stream = stream_of(log_decay[s], weight[s], u.shape[1])
            columns = (chunked(x, stream.length) for x in (u[:, :, s], gy))
            gx, g_decay[s], g_weight[s] = backward(stream, *columns)
            gu[:, :, s] = joined(gx, u.shape[1])
            if skip is not None and g_skip is not None:
                gu[:, :, s].addcmul_(gy, skip[s])
                g_skip[s] = (gy * u[:, :, s]).sum((0, 1))
        g_mix = torch.einsum("bld,blmd->blm", gout, kept).contiguous() if kept.numel() else None
        return gu, g_decay, g_weight, g_skip, g_mix


ENGINE = TorchLtiEngine()
