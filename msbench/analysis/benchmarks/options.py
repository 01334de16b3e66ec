"""Options of ``msbench bench``, checked and resolved for this machine."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from msbench.analysis.benchmarks.measurement import FEWEST
from msbench.analysis.benchmarks.problem import Size
from msbench.config.base import LARGEST_COUNT
from msbench.environment import choose_accelerator
from msbench.errors import ConfigError, UnknownName

BENCHMARKS = ("scan", "step", "data")
REPEATS, QUICK_REPEATS = 5, 3
DEFAULT_SIZE, QUICK_SIZE = Size(), Size(2, 256, 5, 64, 26)
SETTINGS = ("device", "threads", "repeats", "only", "quick", "scaling")


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """One benchmark and how it is measured.

    `what` is one of `BENCHMARKS`, `device` is ``cpu`` or ``cuda``; `only` names the contenders that are
    measured (empty: all). `size` is of the scan, `shapes` are of the step (empty: the default ones).
    """

    what: str = "scan"
    device: str = "cpu"
    threads: int = 1
    repeats: int = REPEATS
    only: tuple[str, ...] = ()
    quick: bool = False
    scaling: bool = True
    size: Size = DEFAULT_SIZE
    shapes: tuple[str, ...] = ()
    out: Path | None = None
    compare: Path | None = None
    quiet: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Return the options that are part of the result, for its document."""
        return {name: value for name, value in asdict(self).items() if name in SETTINGS}


def parse_options(
    *,
    device: str = "auto",
    threads: int | None = None,
    repeats: int | None = None,
    quick: bool = False,
    size: dict[str, int | None],
    **others: Any,
) -> BenchmarkOptions:
    """Return options from the command line, where None is unset; ConfigError names an invalid flag.

    An option of another benchmark is an error, as it would be ignored silently. `size` has the flags ``--b``,
    ``--l``, ``--m``, ``--d`` and ``--n``.
    """
    what = others.get("what", "scan")
    given = {name: value for name, value in size.items() if value is not None}
    if what not in BENCHMARKS:
        raise UnknownName("benchmark", what, BENCHMARKS)
    if what != "scan" and given:
        raise ConfigError("--b --l --m --d --n are the sizes of `bench scan`; `bench step` has --shape")
    if what != "step" and others.get("shapes"):
        raise ConfigError("--shape is of `bench step`; `bench scan` has --b --l --m --d --n")
    for name, value in given.items():
        if not 1 <= value < LARGEST_COUNT:
            raise ConfigError(f"--{name} {value}: must be 1 or more, and less than {LARGEST_COUNT}")
    if threads is not None and threads < 1:
        raise ConfigError(f"--threads {threads}: must be 1 or more")
    if repeats is not None and repeats < FEWEST:
        raise ConfigError(f"--repeats {repeats}: a spread needs {FEWEST} or more")
    return BenchmarkOptions(
        device=choose_accelerator(device),
        threads=torch.get_num_threads() if threads is None else threads,
        repeats=repeats or (QUICK_REPEATS if quick else REPEATS),
        quick=quick,
        size=replace(QUICK_SIZE if quick else DEFAULT_SIZE, **given),
        **others,
    )
