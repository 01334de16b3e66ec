"""Options of ``msbench bench``, checked and resolved for this machine."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from msbench.analysis.benchmarks.measurement import FEWEST
from msbench.analysis.benchmarks.problem import Size
from msbench.config.base import LARGEST_COUNT
from msbench.environment import choose_accelerator
from msbench.errors import ConfigError, UnknownName

BENCHMARKS = ("scan", "step", "length", "data")
REPEATS, QUICK_REPEATS = 5, 3
DEFAULT_SIZE, QUICK_SIZE = Size(), Size(2, 256, 5, 64, 26)


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


def resolve_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that depend on others or on this machine: device, threads, repeats and size.

    `flags` are the values of the command line, where None is unset. ConfigError names an invalid one; an
    option of another benchmark is an error too, as it would be ignored silently.
    """
    what, quick = flags.get("what", "scan"), flags.get("quick", False)
    threads, repeats = flags.get("threads"), flags.get("repeats")
    size = {name: flags[name] for name in asdict(DEFAULT_SIZE) if flags.get(name) is not None}
    if what not in BENCHMARKS:
        raise UnknownName("benchmark", what, BENCHMARKS)
    if what != "scan" and size:
        raise ConfigError("--b --l --m --d --n are the sizes of `bench scan`; `bench step` has --shape")
    if what != "step" and flags.get("shapes"):
        raise ConfigError("--shape is of `bench step`; `bench scan` has --b --l --m --d --n")
    for name, value in size.items():
        if not 1 <= value < LARGEST_COUNT:
            raise ConfigError(f"--{name} {value}: must be 1 or more, and less than {LARGEST_COUNT}")
    if threads is not None and threads < 1:
        raise ConfigError(f"--threads {threads}: must be 1 or more")
    if repeats is not None and repeats < FEWEST:
        raise ConfigError(f"--repeats {repeats}: a spread needs {FEWEST} or more")
    return {
        "device": choose_accelerator(flags.get("device", "auto")),
        "threads": threads or torch.get_num_threads(),
        "repeats": repeats or (QUICK_REPEATS if quick else REPEATS),
        "size": replace(QUICK_SIZE if quick else DEFAULT_SIZE, **size),
    }
