"""The time-invariant diagonal state space model: S4D-Real, in several streams."""

from typing import Any, Protocol

import torch
from torch import Tensor

from msbench.ops import lti_torch, recurrence_kernels, recurrences_native
from msbench.ops.operation import differentiable, kept, once_differentiable, operation
from msbench.ops.recurrences_native import Tensors


def lti_scan(
    u: Tensor, log_decay: Tensor, weight: Tensor, skip: Tensor | None = None, mix: Tensor | None = None
) -> Tensor:
    """Run m streams of d channels through systems of n real states each (Gu et al. 2022, S4D).

    ::

        h_t = exp(log_decay) h_{t-1} + u_t
        y_t = sum_n weight h_t + skip u_t
        z_t = sum_m mix_t y_t                            (if mix is given)

    Parameters
    ----------
    u : (b, l, m, d)
    log_decay : (m, d, n), at most 0: dt A
    weight : (m, d, n): C times the discretised B
    skip : (m, d) or None
    mix : (b, l, m) or None

    Returns z (b, l, d) if `mix` is given, else y (b, l, m, d), in the dtype of `u`. Any length, any strides.
    All arithmetic is float32, or float64 if an argument is, regardless of autocast. Decays are as slow as
    `log_decay`, though float32 cannot distinguish exp(-1e-8) from 1. Every tensor gets a gradient; no states
    are kept for that. Second derivatives need `lti_scan_reference`.
    """
    tensors = (u, log_decay, weight, skip, mix)
    check_shapes(tensors)
    double = any(x is not None and x.dtype == torch.float64 for x in tensors)
    dtype = torch.float64 if double else torch.float32
    wide = [None if x is None else x.to(dtype) for x in tensors]
    engine = "cpp" if recurrence_kernels.native_for(u) else "torch"
    with torch.autocast(u.device.type, enabled=False):
        out: Tensor = system(*wide, engine, mix is not None and kept([mix]))[0]
    return out.to(u.dtype)


def lti_scan_reference(
    u: Tensor, log_decay: Tensor, weight: Tensor, skip: Tensor | None = None, mix: Tensor | None = None
) -> Tensor:
    """Compute `lti_scan` as a loop over time: slow, simple, differentiable any number of times."""
    check_shapes((u, log_decay, weight, skip, mix))
    decay, h, outputs = torch.exp(log_decay), torch.zeros_like(log_decay), []
    for u_t in u.unbind(1):
        h = decay * h + u_t.unsqueeze(-1)
        outputs.append((weight * h).sum(-1))
    y = torch.stack(outputs, dim=1)
    if skip is not None:
        y = y + skip * u
    return y if mix is None else (y * mix.unsqueeze(-1)).sum(2)


def check_shapes(tensors: Tensors) -> None:
    """Raise ValueError, naming the argument, if shapes do not match, a size is 0 or numbers are complex."""
    u, log_decay, weight, skip, mix = tensors
    if any(x is not None and x.is_complex() for x in tensors):
        raise ValueError("all arguments must be real: complex poles need linear_scan or long_convolution")
    if u.ndim != 4 or log_decay.ndim != 3 or 0 in u.shape or 0 in log_decay.shape:
        raise ValueError(
            "u must be (b, l, m, d) and log_decay (m, d, n), none empty; got"
            f" {tuple(u.shape)} and {tuple(log_decay.shape)}"
        )
    (b, length, m, d), n = u.shape, log_decay.shape[2]
    expected = {
        "log_decay": (log_decay, (m, d, n)),
        "weight": (weight, (m, d, n)),
        "skip": (skip, (m, d)),
        "mix": (mix, (b, length, m)),
    }
    for name, (value, shape) in expected.items():
        if value is not None and value.shape != shape:
            raise ValueError(f"{name} must be {shape} beside u {tuple(u.shape)}; got {tuple(value.shape)}")


class LtiEngine(Protocol):
    """An implementation of the system and its gradients, for tensors of one dtype (float32 or float64)."""

    def forward(self, tensors: Tensors, *, keep: bool) -> tuple[Tensor, Tensor]:
        """Return the output, contiguous, and with `keep` the unmixed outputs, for the gradient of mix."""

    def backward(self, gout: Tensor, tensors: Tensors, kept: Tensor) -> Tensors:
        """Return contiguous gradients; that of mix only if `kept` is not empty."""


ENGINES: dict[str, LtiEngine] = {"torch": lti_torch.ENGINE, "cpp": recurrences_native.LTI}


def lti_system(
    u: Tensor,
    log_decay: Tensor,
    weight: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    engine: str,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """Return the output and the kept tensor."""
    return ENGINES[engine].forward((u, log_decay, weight, skip, mix), keep=keep)


def fake_system(u: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """Return empty tensors with the shapes of `lti_system`."""
    mix, _, keep = rest[-3:]
    out = u.new_empty(u.shape if mix is None else (u.shape[0], u.shape[1], u.shape[3]))
    return out, u.new_empty(u.shape if keep else (0,))


def lti_system_backward(
    gout: Tensor,
    u: Tensor,
    log_decay: Tensor,
    weight: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    engine: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the five tensors; a missing one is empty: an operator cannot return None."""
    with torch.autocast(gout.device.type, enabled=False):
        gradients = ENGINES[engine].backward(gout.contiguous(), (u, log_decay, weight, skip, mix), kept)
    return tuple(gout.new_empty(0) if x is None else x for x in gradients)  # type: ignore[return-value]


def fake_backward(
    gout: Tensor,
    u: Tensor,
    log_decay: Tensor,
    weight: Tensor,
    skip: Tensor | None,
    mix: Tensor | None,
    kept: Tensor,
    engine: str,
) -> tuple[Tensor, ...]:
    """Return empty tensors with the shapes of `lti_system_backward`."""
    del gout, engine
    there = (u, log_decay, weight, skip, mix if kept.numel() else None)
    return tuple(u.new_empty(0 if x is None else x.shape) for x in there)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep the arguments and the unmixed outputs."""
    *tensors, ctx.engine, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # no zeros of the size of the kept tensor


def backward(ctx: Any, gout: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs of the operator."""
    if gout is None:
        return (None,) * 7
    saved = ctx.saved_tensors  # once: a checkpoint returns them only once
    assert not ctx.needs_input_grad[4] or saved[5].numel(), "nothing was kept for the gradient of mix"
    gradients = system_backward(gout, *saved, ctx.engine)
    return (*(x if x.numel() else None for x in gradients), None, None)


system_backward = once_differentiable(operation(lti_system_backward, fake_backward), "lti_scan_reference")
system = differentiable(operation(lti_system, fake_system), setup_context, backward)
