"""Explanation of planned training: the changes of each planned run since the nearest stored run."""

from collections.abc import Iterable, Sequence
from typing import Any

from msbench.config.differences import Change
from msbench.reporting.compare.page import Grid, Part
from msbench.runs import plan as agenda
from msbench.runs.plan import PlannedRun


def document(entries: Iterable[PlannedRun]) -> list[dict[str, Any]]:
    """Return the rows of the plan for JSON, each with its nearest stored run and the changes since."""
    return [
        agenda.describe(entry, estimate=False)
        | {
            "unlike": entry.nearest.run_id if entry.nearest else None,
            "changes": [change.as_dict() for change in entry.changes],
        }
        for entry in entries
    ]


def pages(entries: Iterable[PlannedRun]) -> Iterable[Part]:
    """Yield a table for each group of runs with the same changes."""
    groups: dict[str, list[PlannedRun]] = {}
    for entry in entries:
        if entry.changes:
            groups.setdefault(repr(entry.changes), []).append(entry)
    for group in groups.values():
        yield Grid(_title(group), ("what", "stored", "now"), [_row(change) for change in group[0].changes])


def _row(change: Change) -> tuple[str, str, str]:
    return change.name, change.before_text, change.now_text


def _title(group: Sequence[PlannedRun]) -> str:
    """Return a title with the runs by task and model, their seeds, and the stored runs they differ from."""
    seeds: dict[tuple[str, str], list[str]] = {}
    for entry in group:
        seeds.setdefault((entry.spec.task, entry.spec.model_name), []).append(str(entry.spec.seed))
    runs = [f"{task} {model} seed {', '.join(listed)}" for (task, model), listed in seeds.items()]
    stored = dict.fromkeys(entry.nearest.run_id for entry in group if entry.nearest)
    return f"{'; '.join(runs)}: since {', '.join(stored)}"
