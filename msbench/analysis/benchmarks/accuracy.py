"""Errors of outputs and gradients against the loop over time in float64, on the timed arguments."""

import math
from dataclasses import dataclass, field

from torch import Tensor

from msbench.analysis.benchmarks.problem import NAMES, BenchmarkProblem, Scan, Size, double, first, results
from msbench.environment import measure_free_memory
from msbench.ops.scan.reference import Arguments, selective_scan_reference

INVALID = 1e-4
"""Largest valid error; a row with a larger or non-finite one gets no speed-up."""
NOTED = 1e-5
LARGEST = 200_000_000
"""Most state updates that the float64 check computes: 10 to 20 s on one core."""
COPIES = 5
"""Arrays of (b, l, m, d, n) float64 that the check holds."""


@dataclass
class Truth:
    """Outputs and gradients in float64, computed once per size from one problem."""

    whole: BenchmarkProblem
    device: str
    known: dict[Size, list[Tensor]] = field(default_factory=dict)

    def checked_size(self, size: Size) -> Size:
        """Return the size that is checked: all of `size`, or fewer examples if that takes too long."""
        free = measure_free_memory(self.device)
        while size.states > LARGEST or 8 * COPIES * size.states > free / 2:
            size = size.halved()
        return size

    def at(self, size: Size) -> list[Tensor]:
        """Return outputs and gradients for the first examples and steps."""
        if size not in self.known:
            self.known[size] = results(reference, double(first(self.whole, size)))
        return self.known[size]

    def errors(self, scan: Scan, size: Size, found: list[Tensor]) -> dict[str, float]:
        """Return errors by name, where `found` are the results at `size`."""
        checked = self.checked_size(size)
        if checked != size:
            found = results(scan, first(self.whole, checked))
        pairs = zip(NAMES, found, self.at(checked), strict=True)
        return {name: error(one, truth) for name, one, truth in pairs}


def reference(arguments: Arguments) -> Tensor:
    """Compute the scan as a loop over time."""
    return selective_scan_reference(*arguments)


def error(found: Tensor, truth: Tensor) -> float:
    """Return the largest error relative to the largest true value; infinite if it is not finite."""
    if found.shape != truth.shape:
        return math.inf
    # Where all true values are zero (the gradient of A after one step), the error is absolute.
    distance = float((found.double() - truth).abs().max()) / (float(truth.abs().max()) or 1.0)
    return distance if math.isfinite(distance) else math.inf


def verdict(errors: dict[str, float]) -> str:
    """Return why a row is invalid; an empty string if it is valid."""
    name = max(errors, key=lambda key: errors[key])
    if errors[name] <= INVALID:
        return ""
    what = name if name == "output" else f"gradient of {name}"
    return f"its {what} is off by {errors[name]:.1e} (more than {INVALID:.0e})"
