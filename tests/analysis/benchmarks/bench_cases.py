"""Small problems and documents that the tests of the benchmark share."""

from typing import Any

import pytest
from torch import Tensor

from msbench.analysis.benchmarks import bounds
from msbench.analysis.benchmarks.contenders import Contender
from msbench.analysis.benchmarks.problem import Size
from msbench.ops.scan.reference import Arguments, selective_scan_reference

SMALL = Size(2, 19, 3, 5, 4)


def silent(_text: str) -> None:
    """No progress."""


def right(arguments: Arguments) -> Tensor:
    """The reference."""
    return selective_scan_reference(*arguments)


def wrong(arguments: Arguments) -> Tensor:
    """A gradient of A that is half of what it should be; the output is right."""
    u, dt, A, B, C, skip, mix = arguments
    return selective_scan_reference(u, dt, A / 2 + A.detach() / 2, B, C, skip, mix)


def broken(_arguments: Arguments) -> Tensor:
    """An implementation that fails."""
    raise RuntimeError("no kernel image\nis available")


def contender(name: str, scan: Any = right, missing: str = "", **options: Any) -> Contender:
    return Contender(
        name=name,
        scan=scan,
        missing=lambda _device: missing,
        label=lambda: f"{name} 1.0",
        copies=3.0,
        **options,
    )


def spread(median: float, reach: float = 0.0) -> dict[str, Any]:
    """A timing as a document has it."""
    low, high = median * (1 - reach), median * (1 + reach)
    return {"median": median, "p20": low, "p80": high, "cpu": median, "calls": 5}


def row(name: str, median: float = 1.0, reach: float = 0.0, **more: Any) -> dict[str, Any]:
    """A measured row of the scan, as far as a comparison reads it."""
    times = {"forward": spread(median, reach), "forward_backward": spread(3 * median, reach)}
    size = {"b": 1, "l": 8, "m": 2, "d": 4, "n": 3}
    return {"name": name, "status": "measured", "size": size, **times, **more}


def document(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A document of the scan, as far as a comparison reads it."""
    return {
        "schema": "msbench-bench",
        "schema_version": 1,
        "what": "scan",
        "device": {"type": "cpu", "name": "A processor"},
        "threads": 2,
        "environment": {"host": "here", "packages": {"torch": "2.14.1"}},
        "rows": list(rows),
        **more,
    }


def modest_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short loops in place of those that show a machine's best: no test asserts a speed."""
    monkeypatch.setattr(bounds, "PASSES", 1 << 10)
