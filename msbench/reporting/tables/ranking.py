"""The models of each column of a table in their order, with intervals: the content of its accuracy plots.

One scale serves every renderer. What lies far from the rest, such as one seed that learned nothing, does not
stretch it: it is shown at an end of the scale.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from msbench.reporting.tables.cells import MODIFIED_GROUP, RULES_GROUP, UNITS, Cell, Column, Row, Table
from msbench.stats.proportion import wilson
from msbench.stats.summary import compute_mean_interval

INTERVALS = (
    "Bars are 95 % intervals: of the mean over seeds (Student's t), or of a single seed over the test"
    " examples (Wilson)."
)
FAR, NEAR = 5.0, 1.5
"""Multiples of the range of the middle half of the numbers: what is further away than the first is far, and a
seed or an end of an interval that is further from the others than the second (Tukey 1977: 1.5 and 3)."""
TICKS = 6


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high`."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Return the position of a value: 0 to 1, also for those beyond the ends."""
        return min(max((value - self.low) / (self.high - self.low), 0.0), 1.0)

    def has(self, value: float) -> bool:
        """Return True for values from `low` to `high`."""
        return self.low <= value <= self.high

    @property
    def ticks(self) -> list[float]:
        """At most `TICKS` round numbers on the axis."""
        least = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(least))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(step * number, 10) for number in range(first, last + 1)]


@dataclass(frozen=True)
class RankedResult:
    """A model in a column, or a trivial rule there; numbers are in the unit of the column.

    `low` and `high` are the ends of the interval described in `INTERVALS`; None where there is none.
    `failed` describes the seeds without a result, such as ``1 of 5 diverged``. `seeds` are single results.
    """

    table: str
    task: str
    label: str
    unit: str
    name: str
    model: str
    kind: Literal["model", "rule"]
    reported: float | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    failed: str = ""
    seeds: tuple[float, ...] = ()
    best: bool = False

    @property
    def value(self) -> float | None:
        """The number by which it is ranked."""
        return self.reported if self.measured is None else self.measured


@dataclass(frozen=True)
class Ranking:
    """The models of a column, the best first, its trivial rules, and in a table of claims the base model."""

    rows: tuple[RankedResult, ...]
    rules: tuple[RankedResult, ...] = ()
    base: RankedResult | None = None

    @property
    def label(self) -> str:
        """The heading of the column."""
        return self.rows[0].label

    @property
    def unit(self) -> str:
        """The unit of the column, a key of `UNITS`."""
        return self.rows[0].unit

    @cached_property
    def scale(self) -> Scale:
        """A scale with all means, reported numbers, seeds and intervals, but far ones, and some room."""
        means = [value for each in self.rows for value in (each.measured, each.reported) if value is not None]
        ends = [
            value for each in self.rows for value in (each.low, each.high, *each.seeds) if value is not None
        ]
        widths = [
            each.high - each.low for each in self.rows if each.low is not None and each.high is not None
        ]
        low, high = find_range(means, ends, float(np.median(widths)) / (2 * NEAR) if widths else 0.0)
        room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
        return Scale(low - room, high + room)

    @property
    def lines(self) -> list[tuple[str, float]]:
        """Name and value of the rules and the base on the scale."""
        every = [*self.rules, *([self.base] if self.base else [])]
        found = [(each.name, each.value) for each in every if each.value is not None]
        return sorted((pair for pair in found if self.scale.has(pair[1])), key=lambda pair: pair[1])

    @property
    def notes(self) -> list[str]:
        """Descriptions of what is not on the scale."""
        rules = [(each.name, each.value) for each in self.rules if each.value is not None]
        means = [
            (each.name, value) for each in self.rows for value in (each.measured, each.reported) if value
        ]
        seeds = [(f"a seed of {each.name}", seed) for each in self.rows for seed in self.list_seeds(each)]
        listed = ", ".join(
            f"{name} ({self.format(value)})"
            for name, value in [*means, *seeds, *rules]
            if not self.scale.has(value)
        )
        return [f"Beyond the scale of {self.label}: {listed}"] if listed else []

    def list_seeds(self, row: RankedResult) -> tuple[float, ...]:
        """Return the single seeds to show: those of several whose mean is on the scale."""
        return row.seeds if row.n > 1 and row.measured is not None and self.scale.has(row.measured) else ()

    def format(self, value: float | None) -> str:
        """Return a number to the decimals of the unit; empty for None."""
        return "" if value is None else f"{value:.{UNITS[self.unit].digits}f}"


def rank_models(table: Table) -> list[Ranking]:
    """Return the ranking of each column that has a measured model; columns of distances or bins have none."""
    columns = [index for index, column in enumerate(table.columns) if _is_ranked(column)]
    results = [
        _make_result(table, table.columns[index], row, row.cells[index])
        for index in columns
        for row in table.rows
        if row.group != MODIFIED_GROUP
    ]
    return group_rankings(results, table.base)


def _is_ranked(column: Column) -> bool:
    return UNITS[column.unit].ranked and column.source != "bin"


def group_rankings(results: Iterable[RankedResult], base: str = "") -> list[Ranking]:
    """Return the ranking of each task that has a measured model; `base` is the model of a table of claims."""
    tasks: dict[tuple[str, str, str], list[RankedResult]] = {}
    for each in results:
        tasks.setdefault((each.task, each.label, each.unit), []).append(each)
    found = []
    for of_task in tasks.values():
        models = [
            each for each in of_task if each.kind == "model" and (each.value is not None or each.failed)
        ]
        models.sort(key=lambda each: (each.value is None, -(each.value or 0.0)))
        measured = [each for each in models if each.measured is not None]
        if measured:
            first = next((each for each in measured if each.model == base), None)
            found.append(
                Ranking(tuple(models), tuple(each for each in of_task if each.kind == "rule"), first)
            )
    return found


def _make_result(table: Table, column: Column, row: Row, cell: Cell) -> RankedResult:
    unit, evidence = UNITS[column.unit], cell.evidence
    seeds = evidence.values if evidence and cell.status == "measured" else ()
    interval = compute_mean_interval(seeds)
    if len(seeds) == 1 and evidence and evidence.n_test and evidence.metric.endswith("accuracy"):
        interval = wilson(round(seeds[0] * evidence.n_test), evidence.n_test)
    unfinished = evidence.unfinished if evidence else {}
    failed = [f"{count} of {cell.n_planned} {status}" for status, count in unfinished.items() if count]
    return RankedResult(
        *(table.id, column.task, column.label, column.unit, row.name, row.model),
        kind="rule" if row.group == RULES_GROUP else "model",
        reported=parse_reported(cell.reported),
        measured=cell.measured,
        low=unit.scale * interval.low if interval else None,
        high=unit.scale * interval.high if interval else None,
        n=cell.n,
        failed=", ".join(failed),
        seeds=tuple(unit.scale * value for value in seeds),
        best=cell.best,
    )


def parse_reported(text: str) -> float | None:
    """Return a reported value as a number; None where it is none, or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def find_range(
    centres: Sequence[float], others: Sequence[float] = (), least: float = 0.0
) -> tuple[float, float]:
    """Return the lowest and highest of these numbers, without those far from the middle of `centres`.

    Of `others` those near the remaining `centres` count. `least` is the least range that the middle is taken
    to have. Without numbers the range is 0 to 1.
    """
    if not centres:
        return 0.0, 1.0
    low, high = (float(each) for each in np.quantile(centres, (0.25, 0.75)))
    spread = max(high - low, least)
    kept = [value for value in centres if low - FAR * spread <= value <= high + FAR * spread]
    low, high = min(kept), max(kept)
    kept += [value for value in others if low - NEAR * spread <= value <= high + NEAR * spread]
    return min(kept), max(kept)
