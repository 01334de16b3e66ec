"""Settings of a benchmark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from msbench.analysis.benchmarks.problem import Size
from msbench.analysis.benchmarks.timing import FEWEST
from msbench.config.base import LARGEST_COUNT
from msbench.errors import ConfigError

Say = Callable[[str], None]
"""Callback for progress, one line at a time."""

REPEATS = 5
QUICK_REPEATS = 3
QUICK_SIZE = Size(2, 256, 5, 64, 26)
DIMENSIONS = ("b", "l", "m", "d", "n")


@dataclass(frozen=True)
class Settings:
    """Settings that apply to every benchmark.

    `device` is ``cpu`` or ``cuda``; `only` names the contenders that are measured (empty: all).
    """

    device: str = "cpu"
    threads: int = 1
    repeats: int = REPEATS
    only: tuple[str, ...] = ()
    quick: bool = False
    scaling: bool = True


def repeats_of(asked: int | None, *, quick: bool) -> int:
    """Return the number of repeats; ConfigError if there are too few for a spread."""
    if asked is None:
        return QUICK_REPEATS if quick else REPEATS
    if asked < FEWEST:
        raise ConfigError(f"--repeats {asked}: a spread needs {FEWEST} or more")
    return asked


def size_of(asked: Sequence[int | None], *, quick: bool) -> Size:
    """Return the scan's size from the options --b --l --m --d --n in this order; None keeps the default."""
    given = dict(zip(DIMENSIONS, asked, strict=True))
    for name, value in given.items():
        if value is not None and not 1 <= value < LARGEST_COUNT:
            raise ConfigError(f"--{name} {value}: must be 1 or more, and less than {LARGEST_COUNT}")
    start = QUICK_SIZE if quick else Size()
    return replace(start, **{name: value for name, value in given.items() if value is not None})
