"""The choice of kernels for the recurrences: C++ if the selective scan is, after a self-check."""

import warnings
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from msbench.ops import linear_torch, lti_torch, recurrences_native
from msbench.ops.layer_kernels import Check, fault_of
from msbench.ops.operation import constant, isolated
from msbench.ops.scan_kernels import choose


class Engines(NamedTuple):
    """The C++ implementations of both recurrences."""

    linear: recurrences_native.Linear
    lti: recurrences_native.Lti


def native_for(x: Tensor) -> bool:
    """Return True if the C++ engines are used for tensors like x, real or complex.

    Lower precision is promoted. ``MSBENCH_SCAN`` overrides the choice for these kernels too.
    """
    return x.device.type == "cpu" and x.numel() > 0 and chosen()


@constant
def chosen() -> bool:
    """Return True if the C++ engines are used: with the C++ scan, if the self-check passes."""
    return choose("cpu").engine == "cpp" and _right()


@cache
def _right() -> bool:
    fault = isolated(self_check, Engines(recurrences_native.LINEAR, recurrences_native.LTI))
    if fault:
        warnings.warn(f"the C++ recurrences are left out: {fault}", RuntimeWarning, stacklevel=5)
    return not fault


def self_check(engines: Engines) -> str:
    """Return the first fault of the engines on small problems, or an empty string.

    The problems have several spans of steps and blocks of channels, an odd number of channels, and slow
    decays, because a fast decay hides a fault in the carried state.
    """
    source = torch.Generator().manual_seed(0)

    def normal(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(size, generator=source, dtype=dtype)

    def decays(*size: int) -> Tensor:
        return torch.exp(-0.1 * normal(*size).abs())

    size, complexes = (2, 50, 83), torch.complex64
    angles = torch.polar(decays(83), normal(83))
    x, g = (normal(*size, dtype=complexes) for _ in range(2))
    signals = normal(2, 50, 3, 19), -0.1 * normal(3, 19, 13).square(), normal(3, 19, 13)
    problems: tuple[tuple[Check, list[Tensor]], ...] = (
        (_linear, [decays(*size), normal(*size), normal(*size)]),
        (_linear, [decays(1, 50, 83), normal(*size), normal(*size)]),
        (_linear, [decays(1, 1, 83), normal(*size), normal(*size)]),
        (_linear, [angles.expand(size).contiguous(), x, g]),
        (_linear, [angles.expand(1, 1, 83).contiguous(), x, g]),
        (_lti, [*signals, normal(3, 19), normal(2, 50, 3), normal(2, 50, 19)]),
        (_lti, [*signals, normal(2, 50, 3, 19)]),
    )
    return fault_of(engines, problems)


# Each returns output and gradients, by the engines or, if those are None, in PyTorch operations.


def _linear(engines: Engines | None, a: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    engine = linear_torch.ENGINE if engines is None else engines.linear
    h = engine.forward(a, x)
    return h, *engine.backward(g, a, h)


def _lti(
    engines: Engines | None, u: Tensor, log_decay: Tensor, weight: Tensor, *rest: Tensor
) -> tuple[Tensor, ...]:
    engine = lti_torch.ENGINE if engines is None else engines.lti
    skip, mix = rest[:-1] or (None, None)
    tensors = (u, log_decay, weight, skip, mix)
    out, kept = engine.forward(tensors, keep=mix is not None)
    gradients = engine.backward(rest[-1], tensors, kept)
    return out, *(x for x in gradients if x is not None)
