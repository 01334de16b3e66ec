"""Public implementations, each given the same problem: m streams, a skip, a mixer, gradients of all seven.

What a library lacks is done in PyTorch in the way that is cheapest for the library: a scan over materialised
decays gets streams as extra channels, a scan of one stream is called once per stream.
"""

from collections.abc import Callable
from importlib import metadata

import torch
from torch import Tensor

from msbench.ops.scan.reference import Arguments, sum_streams

Recurrence = Callable[[Tensor, Tensor], Tensor]
"""h_t = a_t h_{t-1} + x_t from decays and inputs, in the layout of its library."""


def mambapy(arguments: Arguments) -> Tensor:
    """Run mambapy's parallel scan over (b, l, m d, n)."""
    from mambapy.pscan import pscan

    decay, write = discretised(arguments)
    states = pscan(decay.flatten(2, 3), write.flatten(2, 3))
    return read_out(arguments, states.view_as(decay))


def accelerated(arguments: Arguments, recurrence: Recurrence | None = None) -> Tensor:
    """Run accelerated-scan's Triton kernel over (b, m d n, l); tests pass their own `recurrence`."""
    if recurrence is None:
        from accelerated_scan.scalar import scan

        recurrence = scan
    decay, write = (x.flatten(2).mT.contiguous() for x in discretised(arguments))
    states = recurrence(decay, write).mT
    shape = (*arguments[0].shape, arguments[2].shape[2])
    return read_out(arguments, states.reshape(shape))


def transformers(arguments: Arguments) -> Tensor:
    """Run the scan of the Mamba in transformers (5.x), one call per stream."""
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    u, dt, A, B, C, skip, mix = arguments
    outputs = [
        mamba_selective_scan(
            u[:, :, s].mT,
            dt[:, :, s].mT,
            A[s],
            B[:, :, s].mT,
            C[:, :, s].mT,
            None if skip is None else skip[s],
        ).mT
        for s in range(u.shape[2])
    ]
    y = torch.stack(outputs, dim=2)
    return y if mix is None else sum_streams(y, mix)


def discretised(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return exp(dt A) and dt u B, both (b, l, m, d, n)."""
    u, dt, A, B, *_ = arguments
    return torch.exp(dt.unsqueeze(4) * A), (dt * u).unsqueeze(4) * B.unsqueeze(3)


def read_out(arguments: Arguments, states: Tensor) -> Tensor:
    """Compute z from states (b, l, m, d, n)."""
    u, C, skip, mix = arguments[0], arguments[4], arguments[5], arguments[6]
    y = (states @ C.unsqueeze(4)).squeeze(4)
    y = y if skip is None else y + skip * u
    return y if mix is None else sum_streams(y, mix)


def mambapy_missing(_device: str) -> str:
    """Return why mambapy is unavailable; empty if it is available."""
    return missing("mambapy", lambda: __import__("mambapy.pscan"))


def accelerated_missing(device: str) -> str:
    """Return why accelerated-scan is unavailable; empty if it is available."""
    if device != "cuda":
        return "its Triton kernel needs a CUDA device"
    return missing("accelerated-scan", lambda: __import__("accelerated_scan.scalar"))


def transformers_missing(_device: str) -> str:
    """Return why transformers is unavailable; empty if it is available."""
    return missing("transformers", _import_transformers)


def missing(package: str, load: Callable[[], object]) -> str:
    """Return why a peer cannot be imported; an empty string if it can."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed: pip install 'msbench[peers]'"
    try:
        load()
    except Exception as error:  # a peer may fail in any way; its row then reports it
        return f"{label(package)} cannot be used: {type(error).__name__}: {error}"
    return ""


def label(package: str) -> str:
    """Return name and version for records."""
    return f"{package} {metadata.version(package)}"


def _import_transformers() -> None:
    from transformers.models.mamba import modeling_mamba
    from transformers.utils import logging

    # It warns once per process that its CUDA kernels are missing; the row's label names the scan that ran.
    logging.set_verbosity_error()
    if not hasattr(modeling_mamba, "mamba_selective_scan"):
        raise AttributeError("it has no mamba_selective_scan: version 5 or later is needed")
