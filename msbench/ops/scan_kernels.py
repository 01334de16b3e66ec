"""Which kernel scans: chosen once a process, after it has shown that it computes what the reference does."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from msbench.errors import ConfigError
from msbench.ops import scan_native, scan_torch
from msbench.ops.scan_reference import selective_scan_reference

NAMES = ("output", "u", "dt", "A", "B", "C", "skip", "mix")
TOLERANCE = 1e-4
"""Of the largest value of an output or gradient; the kernels are within 1e-5 in float32."""


@dataclass(frozen=True)
class Kernel:
    """A name for records, and ``scan(arguments, scaled=...)``."""

    name: str
    scan: Callable[..., Tensor]


TORCH = Kernel(scan_torch.NAME, scan_torch.scan)


def choose(device: str) -> Kernel:
    """The kernel for a device type. ``MSBENCH_SCAN=torch`` or ``cpp`` overrides the choice on the CPU."""
    wanted = os.environ.get("MSBENCH_SCAN", "auto")
    if wanted not in ("auto", "torch", "cpp"):
        raise ConfigError(f"MSBENCH_SCAN is {wanted!r}; it may be auto, torch or cpp")
    return _chosen(device, wanted)


@cache
def _chosen(device: str, wanted: str) -> Kernel:
    if device != "cpu" or wanted == "torch":
        return TORCH
    name = scan_native.name()
    if name is None:
        if wanted == "cpp":
            raise ConfigError("MSBENCH_SCAN is cpp, but msbench was installed without a C++ compiler")
        return TORCH
    native = Kernel(name, scan_native.scan)
    if fault := self_check(native):
        warnings.warn(f"the C++ scan is left out: {fault}", RuntimeWarning, stacklevel=2)
        return TORCH
    return native


def self_check(kernel: Kernel) -> str:
    """What a kernel gets wrong on two problems, output or gradient; an empty string where nothing.

    One mixes two streams of an odd number of channels, the other has one stream, no mixer, and is large
    enough for several threads. Both have slow decays over many spans of steps, so that a fault in what is
    carried over cannot hide (a fast decay forgets it).
    """
    return _check(kernel, _problem(2, 37, 2, 19, 5, mixed=True)) or _check(
        kernel, _problem(2, 100, 1, 144, 16, mixed=False)
    )


def _check(kernel: Kernel, arguments: list[Tensor]) -> str:
    missing = [None] * (len(NAMES) - 1 - len(arguments))
    try:
        found = _output_and_gradients(lambda *x: kernel.scan((*x, *missing), scaled=True), arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    expected = _output_and_gradients(selective_scan_reference, [x.double() for x in arguments])
    for name, one, truth in zip(NAMES, found, expected, strict=False):
        distance = float((one - truth).abs().max() / truth.abs().max())
        if not distance < TOLERANCE:
            return f"its {name} is off by {distance:.1e}"
    return ""


def _problem(b: int, length: int, m: int, d: int, n: int, *, mixed: bool) -> list[Tensor]:
    """u, dt, A, B, C, skip and, where `mixed`, mix, always the same; global generators are left alone."""
    source = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=source)

    dt, A = normal(b, length, m, d).abs() * 0.1, -normal(m, d, n).abs()
    u, B, C = normal(b, length, m, d), normal(b, length, m, n), normal(b, length, m, n)
    return [u, dt, A, B, C, normal(m, d), *([normal(b, length, m)] if mixed else [])]


def _output_and_gradients(scan: Callable[..., Tensor], arguments: list[Tensor]) -> list[Tensor]:
    leaves = [x.clone().requires_grad_() for x in arguments]
    with torch.enable_grad():
        output = scan(*leaves)
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view(output.shape)
        gradients = torch.autograd.grad((output * weights).sum(), leaves)
    return [output.detach(), *gradients]
