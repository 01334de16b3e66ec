"""The selective scan on a GPU in Triton: preparation of arguments, kernel launches, sums of partial results.

float64 falls back to PyTorch operations.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from msbench.ops.gpu.launch import load_kernels, use_device_of
from msbench.ops.scan import torch_engine, triton_shape
from msbench.ops.scan.reference import Arguments, make_contiguous
from msbench.ops.scan.triton_shape import (
    SCHEDULERS,
    KernelShape,
    ScanSizes,
    choose_backward_shape,
    choose_forward_shape,
)

KERNELS = "msbench.ops.scan.triton_kernels"
PARTS = 32 * 2**20
"""Bytes of partial gradients of B and C per launch of the backward: they stay in 50 MB of L2 until summed."""


class TritonScanEngine:
    """See `msbench.ops.scan.torch_engine.TorchScanEngine`; the state before every `every` steps is kept.

    Results are bit-equal in every run: all sums have a fixed order, and blocks depend on sizes alone.
    """

    def __init__(self, every: int = triton_shape.EVERY, schedulers: int = SCHEDULERS) -> None:
        self.every, self.schedulers = every, schedulers

    def forward(self, arguments: Arguments, *, scaled: bool, keep: bool) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        if arguments[0].dtype == torch.float64:
            return torch_engine.ENGINE.forward(arguments, scaled=scaled, keep=keep)
        tensors = make_contiguous(arguments)
        u, dt, A, _, _, skip, mix = tensors
        b, length, m, d = u.shape
        shape = choose_forward_shape(self._problem(tensors, scaled), keep=keep)
        outputs = shape.M // shape.STREAMS
        y = u.new_empty(b, length, outputs, d)
        kept = u.new_empty(self.kept_shape(u, A) if keep else 0)
        ready = u, dt, scale_decays(A, shape), pack_pairs(tensors, shape), u if skip is None else skip
        with use_device_of(u):
            load_kernels(KERNELS).scan_forward[(b * outputs * shape.BLOCKS,)](
                *ready, u if mix is None else mix, y, kept, length, 1, shape, num_warps=1
            )
        wanted = m if mix is None else 1
        y = y if outputs == wanted else y.view(b, length, wanted, -1, d).sum(3)
        return (y if mix is None else y.squeeze(2)), kept

    def backward(self, arguments: Arguments, kept: Tensor, gy: Tensor, *, scaled: bool) -> Arguments:
        """See `msbench.ops.scan.torch_engine.TorchScanEngine`."""
        if arguments[0].dtype == torch.float64:
            return torch_engine.ENGINE.backward(arguments, kept, gy, scaled=scaled)
        tensors, kept, gy = make_contiguous(arguments), kept.contiguous(), gy.contiguous()
        parts = PartialGradients(tensors, choose_backward_shape(self._problem(tensors, scaled)))
        with use_device_of(gy):
            for first, last in parts.list_launches():
                parts.launch(tensors, kept, gy, first, last)
        return parts.sum(tensors)

    def kept_shape(self, u: Tensor, A: Tensor) -> tuple[int, ...]:
        """Return the shape of the kept states: one per `every` steps, channels last, groups zero-padded."""
        if u.dtype == torch.float64:
            return torch_engine.ENGINE.kept_shape(u, A)
        m, d, n = A.shape
        parts = triton_shape.count_groups(n)
        return (u.shape[0], -(-u.shape[1] // self.every), m * parts, -(-n // parts), d)

    def _problem(self, tensors: Arguments, scaled: bool) -> ScanSizes:
        u, _, A, _, _, skip, mix = tensors
        b, _, m, d = u.shape
        return ScanSizes(
            b, m, d, A.shape[2], mix is not None, skip is not None, scaled, self.every, self.schedulers
        )


ENGINE = TritonScanEngine()


class PartialGradients:
    """The partial gradients, one per program, summed afterwards in a fixed order."""

    def __init__(self, tensors: Arguments, shape: KernelShape) -> None:
        u, _, A = tensors[:3]
        b, length, _, d = u.shape
        self.shape, self.ready = shape, (scale_decays(A, shape), pack_pairs(tensors, shape))
        self.u, self.dt = u.new_empty(2, b, length, shape.M, d).unbind(0)
        self.states, self.A = u.new_zeros(2, b, shape.M, shape.N, d).unbind(0)
        self.skip = u.new_zeros(b if shape.SKIP else 0, shape.M, d)
        self.saved = u.new_empty(b * shape.M * shape.BLOCKS, shape.SLOTS * shape.KN * shape.K * 32)
        self.words = u.new_empty(b, length, shape.M, 2 * shape.KN * shape.LN + 2)

    def list_launches(self) -> list[tuple[int, int]]:
        """Return first and last span of each launch of the kernel, starting from the end."""
        one_span = self.words[:, 0].nbytes * self.shape.BLOCKS * self.shape.EVERY
        count, spans = max(1, PARTS // one_span), -(-self.words.shape[1] // self.shape.EVERY)
        return [(max(0, last - count + 1), last) for last in range(spans - 1, -1, -count)]

    def launch(self, tensors: Arguments, kept: Tensor, gy: Tensor, first: int, last: int) -> None:
        """Compute the partial gradients of some spans."""
        u, dt, _, _, _, skip, mix = tensors
        shape, (A, words) = self.shape, self.ready
        here = self.words[:, first * shape.EVERY : (last + 1) * shape.EVERY]
        parts = u.new_empty(*here.shape[:3], shape.BLOCKS, here.shape[3])
        inputs = u, dt, A, words, u if skip is None else skip, u if mix is None else mix, kept, gy, self.saved
        outputs = self.states, self.u, self.dt, self.A, parts, self.skip
        load_kernels(KERNELS).scan_backward[(len(self.saved),)](
            *inputs, *outputs, u.shape[1], first, last, 1, shape, num_warps=1
        )
        torch.sum(parts, 3, out=here)

    def sum(self, tensors: Arguments) -> Arguments:
        """Return the sums of the partial gradients."""
        _, _, A, B, C, skip, mix = tensors
        m, d, n = A.shape
        (b, length), shape = B.shape[:2], self.shape
        u, dt = (x if shape.GROUPS == 1 else x.view(b, length, m, -1, d).sum(3) for x in (self.u, self.dt))
        g_A = self.A.sum(0).view(m, -1, d)[:, :n].mT.contiguous()
        pair = self.words[..., :-2].view(b, length, m, shape.GROUPS, -1, 2)[..., : shape.N, :]
        g_B, g_C = (pair[..., i].reshape(b, length, m, -1)[..., :n].contiguous() for i in range(2))
        g_skip = self.skip.sum(0).view(m, -1, d)[:, 0].contiguous() if shape.SKIP else None
        if mix is None:
            return u, dt, g_A, g_B, g_C, g_skip, None
        g_mix = (g_C * C).sum(3)
        if skip is not None:
            g_mix += self.words[:, :, :: shape.GROUPS, -2]
        return u, dt, g_A, g_B, g_C * mix.unsqueeze(3), g_skip, g_mix


def scale_decays(A: Tensor, shape: KernelShape) -> Tensor:
    """Return A (m, d, n) as exponents of two, (groups, n of a group, d)."""
    m, d, n = A.shape
    padded = A.new_zeros(m, shape.GROUPS * shape.N, d)
    torch.mul(A.mT, math.log2(math.e), out=padded[:, :n])
    return padded


def pack_pairs(tensors: Arguments, shape: KernelShape) -> Tensor:
    """Return B and C, weighted by the mixer, as halves of 64-bit words (b, l, groups, KN LN), zero-padded."""
    B, C, mix = tensors[3], tensors[4], tensors[6]
    words = B.new_zeros(*B.shape[:3], shape.GROUPS, shape.KN * shape.LN, 2)
    for half, x in enumerate((B, C if mix is None else C * mix.unsqueeze(3))):
        padded = pad(x, (0, shape.GROUPS * shape.N - x.shape[3]))
        words[..., : shape.N, half] = padded.view(*B.shape[:3], shape.GROUPS, shape.N)
    return words.flatten(2, 3).view(torch.int64).squeeze(4)
