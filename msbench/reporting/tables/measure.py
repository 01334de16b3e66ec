"""Computation of a cell's mean, spread, status and marks from its runs."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from msbench.reporting.tables.cells import UNITS, Cell, CellStatus, Column
from msbench.reporting.tables.collect import CellRuns, usable
from msbench.reporting.tables.judgement import Evidence
from msbench.results.record import RunRecord
from msbench.stats import learned_rule, spread

FAILURES: tuple[CellStatus, ...] = ("diverged", "out-of-memory", "failed", "interrupted")
"""Statuses by priority: the first that any seed has is the status of a cell without a result."""


def measure(column: Column, found: CellRuns, n_planned: int, notes: list[str]) -> Cell:
    """Compute the measured part of a cell: only finite results enter its mean, and its marks are texts.

    Notes on the whole table are appended to `notes`.
    """
    unit = UNITS[column.unit]
    failed: Counter[str] = Counter(record.status for record in found.unfinished)
    runs: list[RunRecord] = []
    for record in found.finished:
        value = record.metrics.get(unit.metric)
        if usable(value):
            runs.append(record)
        elif value is None:
            notes.append(f"run {record.run_id} has no {unit.metric} and is not shown")
        else:
            failed["diverged"] += 1
            notes.append(f"run {record.run_id}: {unit.metric} is {value}, shown as diverged")
    marks = _left_out(found)
    if not runs:
        status: CellStatus = next((each for each in FAILURES if failed[each]), "missing")
        attempts = tuple(record.run_id for record in (*found.finished, *found.unfinished))
        return Cell(
            n_planned=n_planned,
            status=status,
            run_ids=attempts,
            marks=marks,
            evidence=_evidence(unit.metric, (), n_planned, failed, found),
        )
    cell = _mean(column, runs, n_planned, (*_unfinished(failed), *marks), notes)
    return replace(cell, evidence=_evidence(unit.metric, runs, n_planned, failed, found))


def _evidence(
    metric: str, runs: Sequence[RunRecord], n_planned: int, failed: Mapping[str, int], found: CellRuns
) -> Evidence:
    """Return the evidence of these runs, which are on the same data; `failed` counts the others."""
    sizes = {record.n_test for record in runs}
    chance = runs[0].chance if runs else None
    return Evidence(
        metric=metric,
        values=tuple(record.metrics[metric] for record in runs),
        seeds=tuple(record.seed for record in runs),
        n_planned=n_planned,
        n_test=next(iter(sizes)) if len(sizes) == 1 else None,
        rules=dict(runs[0].baselines) if runs else {},
        chance=found.present.chance if chance is None else chance,
        data_digest=runs[0].data_digest if runs else "",
        hardware=_common(record.hardware for record in runs),
        unfinished=dict(failed),
        data_notes=tuple(dict.fromkeys(note for record in runs for note in record.data_notes)),
        newer=Counter(record.status for record in found.newer) if runs else {},
        unread=found.present.unread,
        stale=found.stale,
    )


def _common(values: Iterable[str]) -> str:
    """Return the common value; empty where they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def _mean(
    column: Column, runs: list[RunRecord], n_planned: int, marks: tuple[str, ...], notes: list[str]
) -> Cell:
    unit = UNITS[column.unit]
    values = [record.metrics[unit.metric] for record in runs]
    notes += [f"data of {column.task}: {text}" for record in runs for text in record.data_notes]
    mean, sd = statistics.fmean(values), spread(values)
    return Cell(
        measured=unit.scale * mean,
        sd=None if sd is None else unit.scale * sd,
        n=len(values),
        n_planned=n_planned,
        status="measured",
        marks=(*_rule(column, runs, mean, sd, notes), *marks),
        run_ids=tuple(record.run_id for record in runs),
    )


def _rule(
    column: Column, runs: list[RunRecord], mean: float, sd: float | None, notes: list[str]
) -> tuple[str, ...]:
    """Return the mark of a mean that a trivial rule explains."""
    rules = runs[0].baselines
    if column.unit != "percent" or not rules:
        return ()
    sizes = [record.n_test for record in runs if record.n_test]
    if len(sizes) < len(runs):
        notes.append(f"{column.label}: runs without n_test are not compared with the trivial rules")
        return ()
    rule = learned_rule(mean, sd, len(runs), min(sizes), rules)
    if rule is None:
        return ()
    how = "within two standard errors of it" if mean >= rules[rule] else "not above it"
    text = f"learned no more than the trivial rule '{rule}' ({rules[rule]:.2%}): {how}"
    return (text,)


def _unfinished(failed: Counter[str]) -> tuple[str, ...]:
    if not failed:
        return ()
    listed = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
    return (f"seeds without a result, not in the mean: {listed}",)


def _left_out(found: CellRuns) -> tuple[str, ...]:
    if not found.left_out:
        return ()
    count = runs_in_words(len(found.left_out))
    counts = "the newest of both counts" if found.stale or not found.present.source else "those here count"
    return (f"{count} on other data or from other source code left out: {counts}",)


def runs_in_words(count: int) -> str:
    """Return text such as ``1 run`` or ``2 runs``."""
    return f"{count} run{'' if count == 1 else 's'}"
