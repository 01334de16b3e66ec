"""Computation of a cell's mean, spread, status and notes from its runs, its distances or other cells."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msbench.reporting.tables.cells import UNITS, Cell, CellStatus, Column, Evidence
from msbench.reporting.tables.notes import format_run_count
from msbench.reporting.tables.selection import CellRuns, is_usable
from msbench.results.mixing_documents import Distances, find_comparable
from msbench.results.record import RunRecord, describe_scored_classes, get_metric_key, list_rules
from msbench.stats.proportion import find_unbeaten_rule
from msbench.stats.summary import compute_sd

FAILURES: tuple[CellStatus, ...] = ("diverged", "out-of-memory", "failed", "interrupted")
"""Statuses by priority: the first that any seed has is the status of a cell without a result."""


def measure_results(column: Column, found: CellRuns, n_planned: int, table_notes: list[str]) -> Cell:
    """Compute the measured part of a cell: only finite results enter its mean.

    Notes on the whole table are appended to `table_notes`.
    """
    unit = UNITS[column.unit]
    failed: Counter[str] = Counter(record.status for record in found.unfinished)
    runs: list[RunRecord] = []
    for record in found.finished:
        value = record.metrics.get(unit.metric)
        if is_usable(value):
            runs.append(record)
        elif value is None:
            table_notes.append(f"run {record.run_id} has no {unit.metric} and is not shown")
        else:
            failed["diverged"] += 1
            table_notes.append(f"run {record.run_id}: {unit.metric} is {value}, shown as diverged")
    evidence = _collect_evidence(unit.metric, runs, n_planned, failed, found)
    notes = _note_left_out(found)
    if not runs:
        return Cell(
            n_planned=n_planned,
            status=next((each for each in FAILURES if failed[each]), "missing"),
            run_ids=tuple(record.run_id for record in (*found.finished, *found.unfinished)),
            notes=notes,
            evidence=evidence,
        )
    texts = [text for record in runs for text in (*record.data_notes, *record.data_remarks)]
    table_notes += [f"data of {column.task}: {text}" for text in texts]
    mean, sd = statistics.fmean(evidence.values), compute_sd(evidence.values)
    return Cell(
        measured=unit.scale * mean,
        sd=None if sd is None else unit.scale * sd,
        n=len(runs),
        n_planned=n_planned,
        status="measured",
        notes=(
            *_note_rule(column, runs, mean, sd, table_notes),
            *_note_classes(column, runs),
            *_note_unfinished(failed),
            *notes,
        ),
        run_ids=tuple(record.run_id for record in runs),
        evidence=evidence,
    )


def _collect_evidence(
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
        seconds=sum(record.seconds for record in runs),
    )


def _common(values: Iterable[str]) -> str:
    """Return the common value; empty where they differ."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""


def _note_rule(
    column: Column, runs: list[RunRecord], mean: float, sd: float | None, table_notes: list[str]
) -> tuple[str, ...]:
    """Return a note on a test result that does not beat every trivial rule."""
    rules = list_rules(runs[0])
    if not rules or UNITS[column.unit].metric != get_metric_key("test", runs[0].metric):
        return ()
    sizes = [record.n_test for record in runs if record.n_test]
    if len(sizes) < len(runs):
        table_notes.append(f"{column.label}: runs without n_test are not compared with the trivial rules")
        return ()
    rule = find_unbeaten_rule(mean, sd, len(runs), min(sizes), rules)
    if rule is None:
        return ()
    how = "within two standard errors of it" if mean >= rules[rule] else "below it"
    text = f"learned no more than the trivial rule '{rule}' ({rules[rule]:.2%}): {how}"
    return (text,)


def _note_classes(column: Column, runs: list[RunRecord]) -> tuple[str, ...]:
    """Return a note on classes that the mean leaves out, as the test split has too few examples of them."""
    if UNITS[column.unit].metric != get_metric_key("test", "macro-auroc"):
        return ()
    found = dict.fromkeys(filter(None, map(describe_scored_classes, runs)))
    return (f"{' and '.join(found)}: the others cannot be scored on the test split",) if found else ()


def _note_unfinished(failed: Counter[str]) -> tuple[str, ...]:
    if not failed:
        return ()
    listed = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
    return (f"seeds without a result, not in the mean: {listed}",)


def _note_left_out(found: CellRuns) -> tuple[str, ...]:
    if not found.left_out:
        return ()
    count = format_run_count(len(found.left_out))
    counts = "the newest of both counts" if found.stale or not found.present.source else "those here count"
    return (f"{count} on other data or from other source code left out: {counts}",)


def measure_distances(
    runs: Sequence[RunRecord],
    n_planned: int,
    measured: Mapping[str, Sequence[Distances]],
    table_notes: list[str],
) -> Cell:
    """Return the cell of these finished runs, one per seed: of each the newest measurement that counts.

    The spread is over layers, channels and examples: the root mean square of that of the seeds. `table_notes`
    gets a line on what is not shown.
    """
    of_runs = [measured.get(record.run_id, ()) for record in runs]
    found = [each for each in map(find_comparable, of_runs) if each is not None and each.mean is not None]
    other = sum(not each.is_comparable for measurements in of_runs for each in measurements)
    if other:
        count = f"{other} measurement{'' if other == 1 else 's'}"
        table_notes.append(f"mixing distances with other options, or before training, are not shown: {count}")
    if not found:
        return Cell(n_planned=n_planned)
    spreads = [each.sd for each in found if each.sd is not None]
    return Cell(
        measured=statistics.fmean(each.mean for each in found if each.mean is not None),
        sd=math.hypot(*spreads) / math.sqrt(len(found)) if len(spreads) == len(found) else None,
        n=len(found),
        n_planned=n_planned,
        status="measured",
        run_ids=tuple(each.run_id for each in found),
    )


def average_cells(label: str, parts: Sequence[tuple[str, Cell]]) -> Cell:
    """Return the mean over tasks, each given with its heading: a value only if every task was measured.

    Otherwise it is missing, with a note that names the missing tasks if any task was measured. The spread is
    that of an average of one run per task: runs of different tasks are independent, whatever their seeds.
    Without a spread in every task there is none. `n` and `n_planned` are those of the task that lacks most.
    """
    cells = [cell for _, cell in parts]
    planned = max((cell.n_planned for cell in cells), default=0)
    lacking = [f"{name} {cell.status}" for name, cell in parts if cell.measured is None]
    if lacking or not cells:
        some = len(lacking) < len(cells)
        notes = (f"{label} is not computed: {', '.join(lacking)}",) if some else ()
        return Cell(n_planned=planned, notes=notes)
    return Cell(
        measured=statistics.fmean(cell.measured for cell in cells if cell.measured is not None),
        sd=_spread([cell.sd for cell in cells]),
        n=min(cell.n for cell in cells),
        n_planned=planned,
        status="measured",
        run_ids=tuple(dict.fromkeys(identity for cell in cells for identity in cell.run_ids)),
    )


def _spread(deviations: Sequence[float | None]) -> float | None:
    known = [deviation for deviation in deviations if deviation is not None]
    return math.hypot(*known) / len(known) if len(known) == len(deviations) else None
