"""The benchmark command: settings, measurement, comparison, file."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from msbench.analysis.benchmarks import comparison, datasets, document, scan, shapes, step
from msbench.analysis.benchmarks.problem import Size
from msbench.analysis.benchmarks.settings import Say, Settings, repeats_of, size_of
from msbench.console import say
from msbench.environment import choose_accelerator, describe_environment
from msbench.errors import ConfigError, UnknownName

WHAT = ("scan", "step", "data")


@dataclass(frozen=True)
class BenchmarkRequest:
    """The options of ``msbench bench``, as given."""

    what: str = "scan"
    device: str = "auto"
    threads: int | None = None
    repeats: int | None = None
    only: tuple[str, ...] = ()
    size: tuple[int | None, ...] = (None,) * 5
    shapes: tuple[str, ...] = ()
    scaling: bool = True
    quick: bool = False
    out: Path | None = None
    compare: Path | None = None
    quiet: bool = False


@dataclass
class ProgressMessages:
    """Progress messages with the time since the start; none where `quiet`."""

    quiet: bool
    began: float = field(default_factory=time.monotonic)

    def __call__(self, text: str) -> None:
        if not self.quiet:
            say(f"[{time.monotonic() - self.began:4.0f} s] {text}")

    @property
    def seconds(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began


def carry_out(request: BenchmarkRequest) -> dict[str, Any]:
    """Run the benchmark; return the document, written to a file if requested.

    Its `rows` may contain no measurement. Raises ConfigError before anything is measured if an option or the
    older document is invalid.
    """
    if request.what not in WHAT:
        raise UnknownName("benchmark", request.what, WHAT)
    check_options(request)
    size = size_of(request.size, quick=request.quick)
    names = shapes.shapes(request.shapes, quick=request.quick)
    old = document.read(request.compare, request.what) if request.compare else None
    settings = settings_of(request)
    describe_environment()  # now: the commit that is measured, even if another is checked out meanwhile
    progress = ProgressMessages(request.quiet)
    found = with_threads(request.what, settings, size, names, progress)
    made = document.document(request.what, settings, progress.seconds, found)
    if old is not None:
        made["comparison"] = comparison.compare(made, old)
    if request.out is not None:
        document.write(request.out, made)
    return made


def check_options(request: BenchmarkRequest) -> None:
    """Raise ConfigError for an option of another benchmark, which would be ignored silently."""
    if request.what != "scan" and any(value is not None for value in request.size):
        raise ConfigError("--b --l --m --d --n are the sizes of `bench scan`; `bench step` has --shape")
    if request.what != "step" and request.shapes:
        raise ConfigError("--shape is of `bench step`; `bench scan` has --b --l --m --d --n")
    if request.threads is not None and request.threads < 1:
        raise ConfigError(f"--threads {request.threads}: must be 1 or more")


def settings_of(request: BenchmarkRequest) -> Settings:
    """Return the settings, resolved for this machine."""
    return Settings(
        device=choose_accelerator(request.device),
        threads=request.threads or torch.get_num_threads(),
        repeats=repeats_of(request.repeats, quick=request.quick),
        only=request.only,
        quick=request.quick,
        scaling=request.scaling,
    )


def with_threads(what: str, settings: Settings, size: Size, names: list[str], say: Say) -> dict[str, Any]:
    """Measure with the requested number of threads; restore the process's own afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        if what == "data":
            return datasets.measure(settings, say)
        return scan.measure(size, settings, say) if what == "scan" else step.measure(names, settings, say)
    finally:
        torch.set_num_threads(before)
