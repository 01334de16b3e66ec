"""The scan as a PyTorch operator, for all engines."""

from typing import Any

import torch
from torch import Tensor

from msbench.ops.operators import needs_gradient, register_differentiable
from msbench.ops.scan import native_engine, torch_engine, triton_engine
from msbench.ops.scan.reference import Arguments

ScanEngine = torch_engine.TorchScanEngine | native_engine.NativeScanEngine | triton_engine.TritonScanEngine

ENGINES: dict[str, ScanEngine] = {
    "triton": triton_engine.ENGINE,
    "cpp": native_engine.ENGINE,
    "torch": torch_engine.ENGINE,
}


def run_engine(engine: str, arguments: Arguments, *, scaled: bool) -> Tensor:
    """Return the output of the scan by one of `ENGINES`, differentiable in every tensor."""
    y: Tensor = _scan(*arguments, engine, scaled, needs_gradient(arguments))[0]
    return y


def selective_scan(
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    engine: str,
    scaled: bool,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return output and kept states."""
    return ENGINES[engine].forward((u, dt, A, B, C, skip, mix), scaled=scaled, keep=keep)


def fake_selective_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `selective_scan`."""
    mix, engine, _, keep = rest[-4:]
    out = u.new_empty(u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[3]))
    return out, u.new_empty(ENGINES[engine].kept_shape(u, rest[1]) if keep else 0)


def selective_scan_backward(
    gy: Tensor,
    u: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    engine: str,
    scaled: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the seven tensors."""
    arguments = (u, dt, A, B, C, skip, mix)
    with torch.autocast(gy.device.type, enabled=False):
        # An expanded gradient (that of a plain sum) would send matrix products to a slow path.
        *always, g_skip, g_mix = ENGINES[engine].backward(arguments, kept, gy.contiguous(), scaled=scaled)
    return *always, *(gy.new_empty(0) if x is None else x for x in (g_skip, g_mix))  # type: ignore[return-value]


_scan = register_differentiable(
    selective_scan,
    fake_selective_scan,
    selective_scan_backward,
    outputs=("y", "kept"),
    instead="selective_scan_reference",
)
