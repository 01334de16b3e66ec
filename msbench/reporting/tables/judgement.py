"""Evidence for verdicts, and the verdicts themselves. Rates are fractions throughout."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal[
    "pass",
    "improved",
    "inconclusive",
    "fail",
    "chance-level",
    "trivial-rule",
    "diverged",
    "missing",
    "invalid",
    "other-data",
    "xfail",
]


@dataclass(frozen=True)
class Evidence:
    """The results of the runs behind a cell.

    `values` has the recorded result of each finished seed of `seeds`. `unfinished` counts the seeds without a
    result by status. `rules` are the results of trivial rules on the same test split; `chance` is the chance
    level of the metric, where known. `hardware` is the class of device, such as ``cpu`` or the name of a GPU;
    it is empty where runs were on several. `data_notes` are the notes of the data setup, such as that part of
    the published data is missing. `newer` counts by status the runs that are not among these, though they are
    of the present code and data or ended after these without a result. `unread` has a line for each run of
    the present code without a readable record, and `stale` is True if these results are of other source code
    than the present one.
    """

    metric: str
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    n_planned: int
    n_test: int | None = None
    rules: Mapping[str, float] = field(default_factory=dict)
    chance: float | None = None
    data_digest: str = ""
    hardware: str = ""
    unfinished: Mapping[str, int] = field(default_factory=dict)
    data_notes: tuple[str, ...] = ()
    newer: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    stale: bool = False


@dataclass(frozen=True)
class Judgement:
    """A verdict with its evidence in one sentence.

    `expected` and `margin` define the test: the mean must not be below ``expected - margin``. `low` and
    `high` are the one-sided 95 % confidence bounds of the mean, the uncertainty of `expected` included;
    `seeds_needed` is the number of further seeds like these that would decide, where it can be estimated.
    """

    verdict: Verdict
    reason: str
    expected: float | None = None
    margin: float | None = None
    low: float | None = None
    high: float | None = None
    seeds_needed: int | None = None
