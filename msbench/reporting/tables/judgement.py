"""What a verdict is made from, and what it says. Rates are fractions throughout."""

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
    """What the runs behind a cell gave.

    `values` has the result of each finished seed of `seeds`, as the records have it. `unfinished` counts the
    seeds without a result by status. `rules` are what trivial rules reach on the same test split; `chance` is
    what the metric is without a model, where that is known. `hardware` is the class of device, such as
    ``cpu`` or the name of a GPU; it is empty where runs were on several. `data_notes` are what set-up told of
    the data, such as that they are not all of the published ones. `newer` counts by status the runs that are
    not among these, though they are of the code and data that are here or ended after these without a result.
    `unread` has a line for each run of the present code without a readable record, and `stale` says that
    these results are of other source code than what is here.
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

    `expected` and `margin` are what was asked: the mean must not be below ``expected - margin``. `low` and
    `high` are the one-sided 95 % confidence bounds of the mean, the uncertainty of `expected` included;
    `seeds_needed` is how many more seeds like these would decide, where that can be told.
    """

    verdict: Verdict
    reason: str
    expected: float | None = None
    margin: float | None = None
    low: float | None = None
    high: float | None = None
    seeds_needed: int | None = None
