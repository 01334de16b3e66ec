"""The smallest margins that correct results pass reliably, from the spread of seeds."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from msbench.errors import ConfigError, Undecided
from msbench.gate.baseline_file import BaselineEntry
from msbench.gate.baselines import collect_entries
from msbench.gate.check import CheckOptions, check_reference
from msbench.results import store
from msbench.runs.suite import Suite, load_suite
from msbench.runs.suite_file import WIDEST_MARGIN
from msbench.stats.noninferiority import compute_power
from msbench.stats.summary import pool_sd

RELIABLY = 0.95
"""Probability with which a result as good as expected should pass."""
STEP = 0.005
"""Margins are rounded up to half a point: few seeds do not allow more precision."""
HEADER = (
    *("suite", "task", "hardware", "model", "seeds", "mean", "sd", "pooled sd", "margin", "passes", "fails"),
    "fails at twice",
)


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Calibration of one task, in fractions.

    `sd` is the spread of seeds shared by all models, with `degrees` of freedom. A run of `n` seeds is
    compared with `n_expected`. At `margin`, a result as good as the expected one passes with probability
    `passes` and fails with `fails`; one that is worse by twice the margin fails with `fails_at_twice`.
    `margin` is None if even the widest allowed margin passes too seldom.
    """

    sd: float
    degrees: int
    n: int
    n_expected: int
    margin: float | None
    passes: float
    fails: float
    fails_at_twice: float


def calibrate_margin(groups: Sequence[Sequence[float]], n: int, n_expected: int) -> Calibration | None:
    """Return the margin for runs of `n` seeds against an expectation from `n_expected` (0: taken as exact).

    `groups` are the results of seeds, one group per model. None if they show no spread: no group has two
    seeds, or all seeds agree.
    """
    spread = pool_sd(groups)
    if spread is None or not spread.sd:
        return None
    error = spread.sd * math.sqrt(1 / n + (1 / n_expected if n_expected else 0))
    # Against the paper only the stated spread counts; against a baseline the run's own seeds are added.
    degrees = spread.degrees + (n - 1 if n_expected else 0)
    margins = (step * STEP for step in range(1, round(WIDEST_MARGIN / STEP) + 1))
    margin = next((each for each in margins if compute_power(each, error, degrees) >= RELIABLY), None)
    used = WIDEST_MARGIN if margin is None else margin
    passes = compute_power(used, error, degrees)
    return Calibration(
        sd=spread.sd,
        degrees=spread.degrees,
        n=n,
        n_expected=n_expected,
        margin=margin,
        passes=passes,
        fails=compute_power(-used, error, degrees),
        fails_at_twice=passes,  # by symmetry: as far below the bound as the expected mean is above it
    )


@dataclass(frozen=True)
class TaskCalibration:
    """The calibration of one task on one class of hardware; `found` is None if its seeds show no spread."""

    suite: str
    task: str
    hardware: str
    entries: Mapping[str, BaselineEntry]
    found: Calibration | None

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return a row under `HEADER` for each model, with the values shared by its task's seeds."""
        place, found = (self.suite, self.task, self.hardware), self.found
        shared: tuple[str, ...] = ("--",) * 5
        if found is not None:
            rates = (found.passes, found.fails, found.fails_at_twice)
            shared = (_percent(found.sd), _percent(found.margin), *(f"{rate:.1%}" for rate in rates))
        return [
            (*place, model, str(entry.n), f"{entry.mean:.2%}", _percent(entry.sd), *shared)
            for model, entry in self.entries.items()
        ]

    @property
    def suggestion(self) -> str:
        """Return the YAML for the suite, with the reason; a comment if the seeds allow no margin."""
        where = f"# suites/{self.suite}.yaml, for {self.task} on {self.hardware}"
        found = self.found
        if found is None:
            return f"{where}: at least two seeds of one model are needed, and they must differ"
        spread = f"sd {found.sd:.2%} of {found.degrees} degrees of freedom"
        against = f"{found.n_expected} seeds" if found.n_expected else "the paper"
        if found.margin is None:
            return (
                f"{where}: {spread}: not even a margin of {WIDEST_MARGIN:.0%} passes reliably; run more seeds"
            )
        return (
            f"{where}\n"
            f"gate:\n"
            f"  tasks:\n"
            f"    {self.task}:\n"
            f"      margin: {found.margin:g}\n"
            f'      reason: "{spread}; {found.n} against {against}:'
            f' {found.passes:.0%} pass at no gap, {found.fails_at_twice:.0%} fail at twice the margin"\n'
            f"      sd: {found.sd:.5f}\n"
            f"      degrees: {found.degrees}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "suite": self.suite,
            "task": self.task,
            "hardware": self.hardware,
            "models": {model: entry.model_dump(mode="json") for model, entry in self.entries.items()},
            "calibration": asdict(self.found) if self.found else None,
        }


def calibrate_suites(options: CheckOptions, warn: Callable[[str], object]) -> list[TaskCalibration]:
    """Calibrate every task of these suites, or of all with runs.

    The margins are for results checked against the paper, whose numbers count as exact, or against a baseline
    from these same seeds. `warn` is called for results that are left out. Raises Undecided if no run has a
    result, and ConfigError for an invalid reference.
    """
    check_reference(options.against)
    calibrated = []
    for suite in [load_suite(name) for name in options.suites] or _load_with_runs(options.results, warn):
        stored = store.read_runs(options.results, suite.name)
        collected = collect_entries(suite, stored, options.results)
        for text in (*stored.warnings, *collected.left_out):
            warn(text)
        tasks: dict[tuple[str, str], dict[str, BaselineEntry]] = defaultdict(dict)
        for (task, model, hardware), entry in collected.entries.items():
            tasks[task, hardware][model] = entry
        for (task, hardware), entries in tasks.items():
            groups = [entry.values for entry in entries.values()]
            n_expected = 0 if options.against == "paper" else min(entry.n for entry in entries.values())
            found = calibrate_margin(groups, len(suite.seeds), n_expected)
            calibrated.append(TaskCalibration(suite.name, task, hardware, entries, found))
    if not calibrated:
        raise Undecided(
            f"{options.results}: no run under the protocol of a suite has a result to calibrate with"
        )
    return calibrated


def _load_with_runs(results: Path, warn: Callable[[str], object]) -> list[Suite]:
    """Return the suites that have a run here."""
    found = []
    for folder in store.list_suites_with_runs(results).folders:
        try:
            found.append(load_suite(folder.name))
        except ConfigError as error:
            warn(f"skipped {folder}: {error}")
    return found


def _percent(value: float | None) -> str:
    return "--" if value is None else f"{value:.2%}"
