"""The choice of kernels for the parts around the scan: C++ if the scan is, after a self-check."""

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from msbench.ops import bank_torch, layers_native
from msbench.ops.operation import constant, isolated
from msbench.ops.scan_kernels import TOLERANCE, choose
from msbench.ops.scan_native import KINDS

Check = Callable[..., tuple[Tensor, ...]]


def native_for(x: Tensor) -> bool:
    """Return True if the C++ engine is used for tensors like x.

    ``MSBENCH_SCAN`` overrides the choice for these kernels too.
    """
    cpu = x.device.type == "cpu" and x.dtype in KINDS and x.numel() > 0
    return cpu and chosen()


@constant
def chosen() -> bool:
    """Return True if the C++ engine is used: with the C++ scan, if the self-check passes."""
    return choose("cpu").engine == "cpp" and _right()


@cache
def _right() -> bool:
    fault = isolated(self_check, layers_native.ENGINE)
    if fault:
        warnings.warn(f"the C++ filters and norms are left out: {fault}", RuntimeWarning, stacklevel=5)
    return not fault


def self_check(engine: layers_native.NativeLayerEngine) -> str:
    """Return the first fault of the engine on small problems, or an empty string.

    The problems have three chunks of steps, an odd number of channels, padding.
    """
    source = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    problems: tuple[tuple[Check, list[Tensor]], ...] = (
        (_bank, [normal(2, 150, 19), normal(3, 2, 4, 19), normal(3, 2, 19), normal(2, 150, 5, 19)]),
        (_norm, [normal(2, 150, 19), (normal(2, 150, 1) > 0).float(), normal(2, 19), normal(2, 150, 19)]),
    )
    return fault_of(engine, problems)


def fault_of(engine: object, problems: Sequence[tuple[Check, list[Tensor]]]) -> str:
    """Return the first difference of the checks between an engine and None (double precision), or ""."""
    for check, arguments in problems:
        try:
            found = check(engine, *arguments)
        except Exception as error:
            return f"{check.__name__[1:]}: {type(error).__name__}: {error}"
        truth = check(None, *(x.to(torch.promote_types(x.dtype, torch.float64)) for x in arguments))
        for number, (one, other) in enumerate(zip(found, truth, strict=True)):
            distance = float((one - other).abs().max() / other.abs().max())
            if not distance < TOLERANCE:
                return f"{check.__name__[1:]}: output or gradient {number} is off by {distance:.1e}"
    return ""


# Each returns output and gradients, by the engine or, if that is None, in PyTorch operations. Gradients are
# explicit: the choice may be made under no_grad, or inside a transform.


def _bank(
    engine: layers_native.NativeLayerEngine | None, x: Tensor, taps: Tensor, bias: Tensor, g: Tensor
) -> tuple[Tensor, ...]:
    chosen = engine or bank_torch.ENGINE
    streams, kept = chosen.forward(x, taps, bias, 1)
    return streams, *chosen.backward(g, x, taps, bias, kept, 1)


def _norm(
    engine: layers_native.NativeLayerEngine | None, x: Tensor, mask: Tensor, affine: Tensor, g: Tensor
) -> tuple[Tensor, ...]:
    weight, bias = affine.unbind()
    if engine is not None:
        moments = engine.norm_statistics(x, mask)
        y = engine.norm_forward(x, mask, (weight, bias), moments, 0.0, True)
        return y, *moments, *engine.norm_backward(g, x, mask, (weight, bias), moments, 0.0, True)
    mean = (x * mask).sum((0, 1)) / mask.sum()
    var = ((x - mean).square() * mask).sum((0, 1)) / mask.sum()
    one, g = (x - mean) * var.rsqrt(), g * mask
    g_weight, g_bias = (g * one).sum((0, 1)), g.sum((0, 1))
    g_x = weight * var.rsqrt() * (g - mask * (g_bias + one * g_weight) / mask.sum())
    return (one * weight + bias) * mask, mean, var, g_x, g_weight, g_bias
