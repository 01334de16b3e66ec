"""Recording of results as a baseline: every seed under the suite's protocol, for each class of hardware."""

import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from msbench import __version__
from msbench.config import RunSpec
from msbench.config.messages import describe_first_fault
from msbench.errors import ConfigError, Undecided
from msbench.gate.baseline_file import (
    ANY,
    Baseline,
    BaselineEntry,
    Place,
    find_baselines,
    format_baseline,
    list_entries,
    read_baseline,
    sign_entry,
)
from msbench.gate.expectations import explain_bound
from msbench.reporting.tables.load import find_present_versions
from msbench.reporting.tables.selection import UNKNOWN_VERSION, PresentVersion, choose_data, select_runs
from msbench.results import store
from msbench.results.files import update_file
from msbench.results.record import RunRecord
from msbench.results.store import StoredRuns
from msbench.runs.suite import Suite, load_suite, resolve_specs
from msbench.runs.suite_file import DEFAULT_MARGIN, DEFAULT_REASON
from msbench.stats.proportion import find_unbeaten_rule
from msbench.stats.summary import compute_sd

HEADER = ("task", "model", "hardware", "before", "now", "change", "margin")
UNCOMPARED = {"date", "msbench", "checksum"}
"""Fields that are not updated if the numbers are the same."""


@dataclass(frozen=True, kw_only=True)
class BaselineOptions:
    """Options of ``msbench baseline``.

    `suite` is a name or a file. `out` is the file to write; ``baseline/<suite>.yaml`` in `results` if unset.
    Without `replace`, entries with other numbers are kept. With `any_hardware` entries apply to all hardware.
    """

    suite: str
    results: Path
    out: Path | None = None
    replace: bool = False
    any_hardware: bool = False


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

    @property
    def row(self) -> tuple[str, ...]:
        """Return the row under `HEADER`."""
        difference = "new" if self.old is None else _describe_difference(self.old, self.new)
        texts = (format_entry(self.old), format_entry(self.new), difference, f"{self.new.margin:.2%}")
        return (*self.place, *texts)

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain values for JSON."""
        return {
            **dict(zip(("task", "model", "hardware"), self.place, strict=True)),
            "before": self.old.model_dump(mode="json") if self.old else None,
            "now": self.new.model_dump(mode="json"),
        }


def write_baseline(
    options: BaselineOptions, warn: Callable[[str], object]
) -> tuple[Path, list[BaselineChange]]:
    """Write the baseline of a suite from its runs, and return the file and the changes.

    New entries are added to those of the file, or of the committed or installed baseline that it would hide.
    `warn` is called for results that are left out. Raises ConfigError, with the differences, where entries
    have other numbers and `replace` is off, and Undecided if no run gives an entry.
    """
    suite, results = load_suite(options.suite), options.results
    path = options.out or results / "baseline" / f"{suite.name}.yaml"
    stored = store.read_runs(results, suite.name)
    new = collect_entries(suite, stored, results, any_hardware=options.any_hardware)
    for text in (*stored.warnings, *new.left_out, *new.warnings):
        warn(text)
    if not new.entries:
        raise Undecided(f"{results}: no run under the protocol of {suite.name} has a result to record")
    with update_file(path, "--out") as write:
        used = [path] if path.exists() else [] if options.out else find_baselines(results, suite.name)[:1]
        old = read_baseline(used[0], suite) if used else None
        baseline, changes = merge_entries(suite, old, new)
        if (replaced := [change for change in changes if change.old]) and not options.replace:
            has = "has" if path in used else f"would hide {used[0]}, which has"
            lines = [f"{path}: {has} other numbers; --replace writes the new ones. Nothing was written:"]
            rows = (change.row for change in replaced)
            lines += [f"{' · '.join(row[:3])}: {row[3]} -> {row[4]}: {row[5]}" for row in rows]
            raise ConfigError("\n  ".join(lines))
        if changes:
            write(format_baseline(baseline).encode())
    return path, changes


def collect_entries(
    suite: Suite, stored: StoredRuns, results: Path, *, any_hardware: bool = False
) -> CollectedEntries:
    """Return entries of every task and model, from their runs under the suite's protocol, for all seeds.

    With `any_hardware` an entry applies to all classes; its runs must be on one class. Places with a seed
    that diverged, or without the number of test examples, have no entry: the remaining seeds prove nothing.
    """
    collected = CollectedEntries()
    seeds = sorted({record.seed for record in stored.records})
    specs = resolve_specs(suite, seeds=seeds) if seeds else []
    present = find_present_versions(specs, (), stored, results)
    for (task, model), runs in _group_by_cell(specs, stored.records).items():
        version = present.get((task, model), UNKNOWN_VERSION)
        classes = sorted({record.hardware for record in runs})
        if any_hardware and len(classes) > 1:
            text = f"{task} · {model}: runs are on several classes of hardware: {', '.join(classes)}"
            collected.left_out.append(text)
            continue
        for hardware in classes:
            place = (task, model, ANY if any_hardware else hardware)
            entry = _collect_entry(
                suite, place, [record for record in runs if record.hardware == hardware], version
            )
            if isinstance(entry, str):
                collected.left_out.append(f"{task} · {model} · {hardware or 'unknown hardware'}: {entry}")
            else:
                collected.entries[place] = entry
                collected.warnings += _warn_of_weak_entry(place, entry, runs[0])
    return collected


def _warn_of_weak_entry(place: Place, entry: BaselineEntry, run: RunRecord) -> Iterator[str]:
    """Yield a warning if results that show nothing would pass, or the gate will reject the entry."""
    if problem := explain_bound(entry.mean, entry.margin, run.chance):
        yield f"{' · '.join(place)}: `check` will call this entry invalid: {problem}"
        return
    rules = {**run.baselines, **({} if run.chance is None else {"chance": run.chance})}
    rule = find_unbeaten_rule(entry.mean, entry.sd, entry.n, entry.n_test, rules)
    if rule is not None:
        given = f"{entry.mean:.2%} is no more than {rule!r} gives ({rules[rule]:.2%})"
        yield f"{' · '.join(place)}: {given}; a model that learns only this rule passes"


def _group_by_cell(
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


def _collect_entry(
    suite: Suite, place: Place, runs: Sequence[RunRecord], present: PresentVersion
) -> BaselineEntry | str:
    """Return the entry of these runs on one class of hardware, or why there is none."""
    found = select_runs(runs, choose_data(runs, present.data), present)
    diverged = sorted(record.seed for record in found.unfinished if record.status == "diverged")
    done = [record for record in found.finished if record.result is not None]
    if diverged:
        return f"seed {', '.join(map(str, diverged))} diverged"
    if found.newer:
        listed = ", ".join(f"{record.run_id} {record.status}" for record in found.newer)
        others = f"runs of the present code, or newer ones, are not among these ({listed})"
        return f"{others}; train them again, or delete them"
    if present.unread:
        return "; ".join(present.unread)
    if not place[2]:
        return "the records do not name their hardware"
    if not done:
        return "no run has a result"
    sizes = {record.n_test for record in done}
    if len(sizes) > 1 or None in sizes:
        return "the records disagree on the number of test examples"
    layer = suite.gate.for_cell(*place[:2])
    values = tuple(record.result for record in done if record.result is not None)
    try:
        return sign_entry(
            place,
            {
                "metric": done[0].metric,
                "values": values,
                "seeds": tuple(record.seed for record in done),
                "n": len(values),
                "mean": statistics.fmean(values),
                "sd": compute_sd(values),
                "n_test": done[0].n_test,
                "data": done[0].data_digest,
                "source": done[0].source_digest,
                "margin": layer.margin or DEFAULT_MARGIN,
                "reason": layer.reason or DEFAULT_REASON,
                "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
                "msbench": __version__,
            },
        )
    except ValidationError as error:
        return f"the records are invalid: {describe_first_fault(error)}; train these runs again"


def merge_entries(
    suite: Suite, old: Baseline | None, new: CollectedEntries
) -> tuple[Baseline, list[BaselineChange]]:
    """Return the old baseline updated with the new entries, and the changes.

    Entries with the same content keep their date; those of other hardware, tasks or models are kept.
    """
    before = dict(list_entries(old.cells)) if old else {}
    changes = [
        BaselineChange(place, before.get(place), entry)
        for place, entry in new.entries.items()
        if place not in before or _differs(before[place], entry)
    ]
    after = before | {change.place: change.new for change in changes}
    cells: dict[str, dict[str, dict[str, BaselineEntry]]] = defaultdict(lambda: defaultdict(dict))
    order = {name: index for index, name in enumerate((*suite.tasks, *suite.models))}
    for task, model, hardware in sorted(
        after, key=lambda place: (order[place[0]], order[place[1]], place[2])
    ):
        cells[task][model][hardware] = after[task, model, hardware]
    return Baseline(suite=suite.name, cells={task: dict(models) for task, models in cells.items()}), changes


def _differs(old: BaselineEntry, new: BaselineEntry) -> bool:
    return old.model_dump(exclude=UNCOMPARED) != new.model_dump(exclude=UNCOMPARED)


def list_hidden_baselines(suite: Suite, results: Path) -> Iterator[str]:
    """Yield a line for each baseline that the used one hides, if their expectations differ."""
    paths = find_baselines(results, suite.name)
    for path in paths[1:]:
        used = dict(list_entries(read_baseline(paths[0], suite).cells))
        try:
            hidden = read_baseline(path, suite)
        except ConfigError as error:  # possibly of another version of the suite
            yield f"{paths[0]} hides {path}, which cannot be compared: {error}"
            continue
        differing = [
            f"{' · '.join(place)}: {format_entry(used.get(place))} here, {format_entry(entry)} there"
            for place, entry in list_entries(hidden.cells)
            if place not in used or used[place].values != entry.values
        ]
        if differing:
            yield f"{paths[0]} hides {path}, which expects other results: {'; '.join(differing)}"


def format_entry(entry: BaselineEntry | None) -> str:
    """Return mean, spread and number of seeds as ``60.20% ± 0.20% (3)``, or ``--``."""
    if entry is None:
        return "--"
    sd = "" if entry.sd is None else f" ± {entry.sd:.2%}"
    return f"{entry.mean:.2%}{sd} ({entry.n})"


def _describe_difference(old: BaselineEntry, new: BaselineEntry) -> str:
    found = [] if math.isclose(old.mean, new.mean) else [f"{100 * (new.mean - old.mean):+.2f} points"]
    found += ["other data"] if old.data != new.data else []
    found += ["other code"] if old.source != new.source else []
    found += [f"margin was {old.margin:.2%}"] if old.margin != new.margin else []
    return ", ".join(found) or "other seeds or reason"
