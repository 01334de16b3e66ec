"""The scan on a GPU with step sizes that are computed before it, and again in the backward: none are kept."""

from typing import Any, cast

import torch
from torch import Tensor

from msbench.ops.gpu.scan_steps import compute_step_gradients, compute_steps
from msbench.ops.operators import needs_gradient, register_differentiable
from msbench.ops.scan.engines import ENGINES
from msbench.ops.scan.reference import Discretisation, make_contiguous, space_rows
from msbench.ops.scan.triton_engine import TritonScanEngine

Gradients = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def run_low_rank(
    u: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    *,
    discretisation: Discretisation,
) -> Tensor:
    """Return `msbench.ops.scan.fused.low_rank_scan` in float32.

    u, low, B, C and mix may be in half precision: they are read as they are and computed with in float32.
    """
    skip = None if skip is None else skip.float()
    tensors = u, low, weight.float(), bias.float(), A.float(), B, C, skip, mix
    y: Tensor = _scan(*tensors, discretisation == "euler", needs_gradient(tensors))[0]
    return y


def triton_low_rank_scan(
    u: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    scaled: bool,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return output and kept states."""
    dt = compute_steps(space_rows(low), *make_contiguous((weight, bias)))
    return find_engine().forward((u, dt, A, B, C, skip, mix), scaled=scaled, keep=keep)


def fake_triton_low_rank_scan(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `triton_low_rank_scan`."""
    A, mix, keep = rest[3], rest[7], rest[9]
    size = u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[3])
    kept = find_engine().kept_shape(u, A) if keep else 0
    return u.new_empty(size, dtype=torch.float32), u.new_empty(kept, dtype=torch.float32)


def triton_low_rank_scan_backward(
    gy: Tensor,
    u: Tensor,
    low: Tensor,
    weight: Tensor,
    bias: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    scaled: bool,
) -> Gradients:
    """Return the gradients of the nine tensors; that of a missing tensor is empty."""
    low, (weight, bias) = space_rows(low), make_contiguous((weight, bias))
    arguments = u, compute_steps(low, weight, bias), A, B, C, skip, mix
    g_u, g_dt, *rest = find_engine().find_gradients(arguments, kept, gy, scaled=scaled)
    steps = compute_step_gradients(low, weight, bias, g_dt)
    return g_u, *steps, *(gy.new_empty(0) if x is None else x for x in rest)  # type: ignore[return-value]


def find_engine() -> TritonScanEngine:
    """Return the scan's engine."""
    return cast("TritonScanEngine", ENGINES["triton"])


_scan = register_differentiable(
    triton_low_rank_scan,
    fake_triton_low_rank_scan,
    triton_low_rank_scan_backward,
    outputs=("y", "kept"),
    instead="step_sizes and selective_scan_reference in PyTorch",
)
