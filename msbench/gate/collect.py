"""Baselines from runs: every seed's result under the suite's protocol, for each class of hardware."""

import datetime
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from msbench import __version__
from msbench.config import RunSpec
from msbench.gate.baseline_file import ANY, Baseline, BaselineEntry, Cells, Place, signed
from msbench.gate.expectation import bound_problem
from msbench.reporting.tables.load import find_present_versions
from msbench.reporting.tables.selection import UNKNOWN_VERSION, PresentVersion, choose_data, select_runs
from msbench.results.record import RunRecord
from msbench.results.store import StoredRuns
from msbench.runs.suite import Suite, plan
from msbench.runs.suite_gate import DEFAULT_MARGIN, DEFAULT_REASON
from msbench.stats import learned_rule, spread

UNCOMPARED = {"date", "msbench", "checksum"}
"""Fields that are not updated if the numbers are the same."""


@dataclass
class CollectedEntries:
    """New entries by place, reasons for places without one, and `warnings` of too weak entries."""

    entries: dict[Place, BaselineEntry] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BaselineChange:
    """One entry before and after; `old` is None if it is new."""

    place: Place
    old: BaselineEntry | None
    new: BaselineEntry


def collect(
    suite: Suite, stored: StoredRuns, results: Path, *, any_hardware: bool = False
) -> CollectedEntries:
    """Return entries of every task and model, from their runs under the suite's protocol, for all seeds.

    With `any_hardware` an entry applies to all classes; its runs must be on one class. Places with a seed
    that diverged, or without the number of test examples, have no entry: the remaining seeds prove nothing.
    """
    collected = CollectedEntries()
    specs = plan(suite, seeds=sorted({record.seed for record in stored.records})) if stored.records else []
    present = find_present_versions(specs, (), stored, results)
    for (task, model), runs in _by_place(specs, stored.records).items():
        here = present.get((task, model), UNKNOWN_VERSION)
        kinds = dict.fromkeys(record.hardware for record in runs)
        if any_hardware and len(kinds) > 1:
            collected.left_out.append(f"{task} · {model}: runs on {', '.join(kinds)} are no one class")
            continue
        for kind in kinds:
            place = (task, model, ANY if any_hardware else kind)
            seen = _seen(suite, place, [record for record in runs if record.hardware == kind], here)
            if isinstance(seen, str):
                collected.left_out.append(f"{task} · {model} · {kind or 'unknown hardware'}: {seen}")
            else:
                collected.entries[place] = seen
                collected.warnings += _warnings(place, seen, runs)
    return collected


def _warnings(place: Place, seen: BaselineEntry, runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield warnings: results that show nothing would pass, or the gate will reject the entry."""
    if problem := bound_problem(seen.mean, seen.margin, runs[0].chance):
        yield f"{' · '.join(place)}: `check` will call this entry invalid: {problem}"
        return
    rules = {**runs[0].baselines, **({} if runs[0].chance is None else {"chance": runs[0].chance})}
    rule = learned_rule(seen.mean, seen.sd, seen.n, seen.n_test, rules)
    if rule is not None:
        told = f"{seen.mean:.2%} is what {rule!r} gives ({rules[rule]:.2%})"
        yield f"{' · '.join(place)}: {told}; this entry asks for no more"


def _by_place(
    specs: Iterable[RunSpec], records: Iterable[RunRecord]
) -> dict[tuple[str, str], list[RunRecord]]:
    """Return the runs that follow the protocol, by task and model, in the suite's order."""
    # Two tasks may have the same settings, and so the same digest.
    digests = {(spec.task, spec.model_name, spec.digest) for spec in specs}
    found: dict[tuple[str, str], list[RunRecord]] = {(spec.task, spec.model_name): [] for spec in specs}
    for record in records:
        if (record.task, record.model, record.spec_digest) in digests:
            found[record.task, record.model].append(record)
    return found


def _seen(
    suite: Suite, place: Place, runs: Sequence[RunRecord], present: PresentVersion
) -> BaselineEntry | str:
    """Return the entry of these runs on one class of hardware, or why there is none."""
    found = select_runs(runs, choose_data(runs, present.data), present)
    broken = sorted(record.seed for record in found.unfinished if record.status == "diverged")
    done = [record for record in found.finished if record.result is not None]
    if broken:
        return f"seed {', '.join(map(str, broken))} diverged"
    if found.newer:
        listed = ", ".join(f"{record.run_id} {record.status}" for record in found.newer)
        others = f"runs of the present code, or newer ones, are not among these ({listed})"
        return f"{others}; train them again, or delete them"
    if present.unread:
        return "; ".join(present.unread)
    if not place[2]:
        return "the records do not say on what they ran"
    if not done:
        return "no run has a result"
    sizes = {record.n_test for record in done}
    if len(sizes) > 1 or None in sizes:
        return "the records do not agree on the number of test examples"
    try:
        return _entry(suite, place, done)
    except ValidationError as error:
        wrong = error.errors()[0]
        said = wrong["msg"].removeprefix("Value error, ")
        return f"the records cannot be meant: {wrong['loc'][0]}: {said}; train these runs again"


def _entry(suite: Suite, place: Place, runs: Sequence[RunRecord]) -> BaselineEntry:
    task, model, _ = place
    values = tuple(record.result for record in runs if record.result is not None)
    layer = suite.gate.of(task, model)
    return signed(
        place,
        {
            "metric": runs[0].metric,
            "values": values,
            "seeds": tuple(record.seed for record in runs),
            "n": len(values),
            "mean": statistics.fmean(values),
            "sd": spread(values),
            "n_test": runs[0].n_test,
            "data": runs[0].data_digest,
            "source": runs[0].source_digest,
            "margin": layer.margin or DEFAULT_MARGIN,
            "reason": layer.reason or DEFAULT_REASON,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "msbench": __version__,
        },
    )


def merged(
    suite: Suite, old: Baseline | None, new: CollectedEntries
) -> tuple[Baseline, list[BaselineChange]]:
    """Return the old baseline updated with the new entries, and the changes.

    Entries with the same content keep their date; those of other hardware, tasks or models are kept.
    """
    before = dict(places(old.cells)) if old else {}
    changes = [
        BaselineChange(place, before.get(place), seen)
        for place, seen in new.entries.items()
        if place not in before or _differs(before[place], seen)
    ]
    after = before | {change.place: change.new for change in changes}
    cells: dict[str, dict[str, dict[str, BaselineEntry]]] = defaultdict(lambda: defaultdict(dict))
    order = {name: index for index, name in enumerate((*suite.tasks, *suite.models))}
    for task, model, kind in sorted(after, key=lambda place: (order[place[0]], order[place[1]], place[2])):
        cells[task][model][kind] = after[task, model, kind]
    return Baseline(suite=suite.name, cells={task: dict(models) for task, models in cells.items()}), changes


def places(cells: Cells) -> Iterator[tuple[Place, BaselineEntry]]:
    """Yield every entry of a baseline with its place."""
    for task, models in cells.items():
        for model, classes in models.items():
            for kind, seen in classes.items():
                yield (task, model, kind), seen


def _differs(old: BaselineEntry, new: BaselineEntry) -> bool:
    return old.model_dump(exclude=UNCOMPARED) != new.model_dump(exclude=UNCOMPARED)
