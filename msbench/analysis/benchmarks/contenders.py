"""The implementations in the benchmark of the scan: our kernels and public ones, given the same problem.

The problem has m streams, a skip, a mixer, and gradients of all seven arguments. What a library lacks is done
in PyTorch in the way that is cheapest for the library: a scan over materialised decays gets streams as extra
channels, a scan of one stream is called once per stream.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, metadata

import torch
from torch import Tensor

from msbench.analysis.benchmarks.problem import Size
from msbench.errors import UnknownName, explain_extra
from msbench.ops.scan.dispatch import KERNELS, Kernel
from msbench.ops.scan.reference import Arguments, sum_streams

BASELINE = "reference"
"""The kernel that speed-ups refer to: the loop over time, well implemented."""
PEER = "mambapy"
"""The peer that speed-ups also refer to."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One implementation of the scan.

    Parameters
    ----------
    scan : function from the seven arguments to z
    missing : ``missing(device type)``: reason for which it is unavailable; empty if it is available
    label : its name with version or instruction set, called only if it is available
    copies : approximate number of (b, l, m, d, n) float32 arrays that forward and backward hold at once
    longest : the longest sequence that it is given, with the reason in `why`
    """

    name: str
    scan: Callable[[Arguments], Tensor]
    missing: Callable[[str], str]
    label: Callable[[], str]
    copies: float
    longest: int | None = None
    why: str = ""

    def needed_bytes(self, size: Size) -> int:
        """Return the approximate bytes of forward and backward, without arguments, output and gradients."""
        return round(4 * (self.copies * size.states + 4 * size.arguments))

    def fit(self, size: Size, free: int) -> tuple[Size | None, str]:
        """Return the largest size that takes at most half of the `free` bytes, and a note on reductions.

        Fewer examples, or fewer steps because of `longest`; None if one example is too much.
        """
        notes, wanted = [], size
        if self.longest is not None and size.l > self.longest:
            size = replace(size, l=self.longest, b=1)
            notes.append(self.why)
        while self.needed_bytes(size) > free / 2 and size.b > 1:
            size = size.halved()
        if self.needed_bytes(size) > free / 2:
            need, have = self.needed_bytes(size) / 1e9, free / 1e9
            return None, f"one example takes about {need:.1f} GB, more than half of the {have:.1f} GB free"
        if size.l == wanted.l and size != wanted:
            notes.append(f"b {wanted.b} would take more than half of the free memory")
        return size, "; ".join(notes)


def scan_mambapy(arguments: Arguments) -> Tensor:
    """Run mambapy's parallel scan over (b, l, m d, n)."""
    from mambapy.pscan import pscan

    decay, write = _discretise(arguments)
    states = pscan(decay.flatten(2, 3), write.flatten(2, 3))
    return _read_out(arguments, states.view_as(decay))


def scan_accelerated(
    arguments: Arguments, recurrence: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Tensor:
    """Run accelerated-scan's Triton kernel over (b, m d n, l).

    Tests pass their own `recurrence`: h_t = a_t h_{t-1} + x_t from decays and inputs in this layout.
    """
    if recurrence is None:
        from accelerated_scan.scalar import scan

        recurrence = scan
    decay, write = (x.flatten(2).mT.contiguous() for x in _discretise(arguments))
    states = recurrence(decay, write).mT
    shape = (*arguments[0].shape, arguments[2].shape[2])
    return _read_out(arguments, states.reshape(shape))


def scan_transformers(arguments: Arguments) -> Tensor:
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


def _discretise(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """Return exp(dt A) and dt u B, both (b, l, m, d, n)."""
    u, dt, A, B, *_ = arguments
    return torch.exp(dt.unsqueeze(4) * A), (dt * u).unsqueeze(4) * B.unsqueeze(3)


def _read_out(arguments: Arguments, states: Tensor) -> Tensor:
    """Compute z from states (b, l, m, d, n)."""
    u, C, skip, mix = arguments[0], arguments[4], arguments[5], arguments[6]
    y = (states @ C.unsqueeze(4)).squeeze(4)
    y = y if skip is None else y + skip * u
    return y if mix is None else sum_streams(y, mix)


def explain_missing(package: str, load: Callable[[], object]) -> str:
    """Return why a peer cannot be imported; an empty string if it can."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return f"not installed: {explain_extra('peers')}"
    try:
        load()
    except Exception as error:  # a peer may fail in any way; its row then reports it
        return f"{label_package(package)} cannot be used: {type(error).__name__}: {error}"
    return ""


def label_package(package: str) -> str:
    """Return name and version for records."""
    return f"{package} {metadata.version(package)}"


def _explain_missing_accelerated(device: str) -> str:
    if device != "cuda":
        return "its Triton kernel needs a CUDA device"
    return explain_missing("accelerated-scan", partial(import_module, "accelerated_scan.scalar"))


def _import_transformers() -> None:
    from transformers.models.mamba import modeling_mamba
    from transformers.utils import logging

    # It warns once per process that its CUDA kernels are missing; the row's label names the scan that ran.
    logging.set_verbosity_error()
    if not hasattr(modeling_mamba, "mamba_selective_scan"):
        raise AttributeError("it has no mamba_selective_scan: version 5 or later is needed")


PEERS = {
    peer.name: peer
    for peer in (
        Contender(
            name="mambapy",
            scan=scan_mambapy,
            missing=lambda _: explain_missing("mambapy", partial(import_module, "mambapy.pscan")),
            label=partial(label_package, "mambapy"),
            copies=8.0,
        ),
        Contender(
            name="transformers",
            scan=scan_transformers,
            missing=lambda _: explain_missing("transformers", _import_transformers),
            label=partial(label_package, "transformers"),
            copies=5.0,
            longest=128,
            why="shorter, since its backward takes time quadratic in the length (minutes for 1024 steps):"
            " ratios flatter it",
        ),
        Contender(
            name="accelerated-scan",
            scan=scan_accelerated,
            missing=_explain_missing_accelerated,
            label=partial(label_package, "accelerated-scan"),
            copies=10.0,
        ),
    )
}


def choose_contenders(only: Sequence[str] = ()) -> list[Contender]:
    """Return the project's kernels, fastest first, then the peers; UnknownName for an unknown one."""
    known = {name: _wrap_kernel(kernel) for name, kernel in KERNELS.items()} | PEERS
    for name in only:
        if name not in known:
            raise UnknownName("implementation", name, known, "--only")
    return [contender for name, contender in known.items() if not only or name in only]


def _wrap_kernel(kernel: Kernel) -> Contender:
    def scan(arguments: Arguments) -> Tensor:
        return kernel.scan(arguments, scaled=True)

    copies = 3.0 if kernel.engine == BASELINE else 0.3
    return Contender(name=kernel.engine, scan=scan, missing=kernel.missing, label=kernel.label, copies=copies)
