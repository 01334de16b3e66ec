"""The implementations in the benchmark of the scan, and the size at which each fits into memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from msbench.analysis.benchmarks import peers
from msbench.analysis.benchmarks.problem import Size
from msbench.errors import UnknownName
from msbench.ops.scan.dispatch import KERNELS, Kernel
from msbench.ops.scan.reference import Arguments

BASELINE = "reference"
"""The kernel that speed-ups refer to: the loop over time, well implemented."""
PEER = "mambapy"
"""The peer that speed-ups also refer to."""


@dataclass(frozen=True)
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

    def bytes(self, size: Size) -> int:
        """Return the approximate bytes of forward and backward, without arguments, output and gradients."""
        return round(4 * (self.copies * size.states + 4 * size.arguments))

    def fitted(self, size: Size, free: int) -> tuple[Size | None, str]:
        """Return the largest size that takes at most half of the `free` bytes, and a note on reductions.

        Fewer examples, or fewer steps because of `longest`; None if one example is too much.
        """
        notes, wanted = [], size
        if self.longest is not None and size.l > self.longest:
            size = replace(size, l=self.longest, b=1)
            notes.append(self.why)
        while self.bytes(size) > free / 2 and size.b > 1:
            size = size.halved()
        if self.bytes(size) > free / 2:
            need, have = self.bytes(size) / 1e9, free / 1e9
            return None, f"one example takes about {need:.1f} GB, more than half of the {have:.1f} GB free"
        if size.l == wanted.l and size != wanted:
            notes.append(f"b {wanted.b} would take more than half of the free memory")
        return size, "; ".join(notes)


PEERS: dict[str, Contender] = {
    "mambapy": Contender(
        "mambapy", peers.mambapy, peers.mambapy_missing, partial(peers.label, "mambapy"), 8.0
    ),
    "transformers": Contender(
        "transformers",
        peers.transformers,
        peers.transformers_missing,
        partial(peers.label, "transformers"),
        5.0,
        128,
        "shorter, since its backward takes time quadratic in the length (minutes for 1024 steps):"
        " ratios flatter it",
    ),
    "accelerated-scan": Contender(
        "accelerated-scan",
        peers.accelerated,
        peers.accelerated_missing,
        partial(peers.label, "accelerated-scan"),
        10.0,
    ),
}


def contenders(only: Sequence[str] = ()) -> list[Contender]:
    """Return the project's kernels, fastest first, then the peers; UnknownName for an unknown one."""
    known = {name: _own(kernel) for name, kernel in KERNELS.items()} | {
        name: peer for name, peer in PEERS.items() if name not in KERNELS
    }
    for name in only:
        if name not in known:
            raise UnknownName("implementation", name, known, "--only")
    return [contender for name, contender in known.items() if not only or name in only]


def _own(kernel: Kernel) -> Contender:
    def scan(arguments: Arguments) -> Tensor:
        return kernel.scan(arguments, scaled=True)

    copies = 3.0 if kernel.engine == BASELINE else 0.3
    return Contender(kernel.engine, scan, kernel.missing, kernel.label, copies)
