"""Selection of the runs that a table shows: planned ones, of the newest data and source, one per seed."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeGuard

from msbench.config import RunSpec
from msbench.config.differences import compare_settings
from msbench.reporting.tables.cells import Place
from msbench.reporting.tables.definitions import TableDefinition
from msbench.results.mixing_documents import Distances
from msbench.results.record import RunRecord
from msbench.runs.suite import Suite

DECIDED = ("finished", "diverged")
"""Final statuses, which another attempt of the run would not change."""


@dataclass(frozen=True)
class PresentVersion:
    """The present code and data for runs of one model on one task.

    `source` is the digest of the present code and `data` that of the present data; they are empty where
    unknown. `chance` is the task's chance level. `unread` has a line for each run of the present code without
    a readable record.
    """

    source: str = ""
    data: str = ""
    chance: float | None = None
    unread: tuple[str, ...] = ()

    def made(self, record: RunRecord) -> bool:
        """Return True for a run of the present code and, where the present data are known, on them."""
        return (
            bool(self.source)
            and record.source_digest == self.source
            and self.data in ("", record.data_digest)
        )


UNKNOWN_VERSION = PresentVersion()
"""The `PresentVersion` with code and data unknown."""


@dataclass(frozen=True)
class CellRuns:
    """The runs of one model on one task, by outcome.

    `finished` has one run per seed, `unfinished` the newest run of every seed without a result, and
    `left_out` those on other data or from other source code than those that count.
    """

    finished: tuple[RunRecord, ...] = ()
    unfinished: tuple[RunRecord, ...] = ()
    left_out: tuple[RunRecord, ...] = ()
    present: PresentVersion = UNKNOWN_VERSION

    @property
    def newer(self) -> tuple[RunRecord, ...]:
        """The runs left out because of which the counted ones may not represent the present code.

        They are of the present code and data, or ended without a result after all that count.
        """
        counted = [parse_end_time(record) for record in (*self.finished, *self.unfinished)]
        return tuple(
            each
            for each in self.left_out
            if self.present.made(each)
            or (counted and not each.finished and parse_end_time(each) > max(counted))
        )

    @property
    def stale(self) -> bool:
        """True where the results are of other source code than the present one."""
        return any(
            record.source_digest != self.present.source for record in self.finished if self.present.source
        )


def parse_end_time(record: RunRecord) -> datetime:
    """Return the end time of the run, in UTC; the minimum `datetime` where the record has none."""
    try:
        moment = datetime.fromisoformat(record.ended)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def find_newest(records: Iterable[RunRecord]) -> RunRecord:
    """Return the run that ended last among those that finished or diverged, else among all.

    An interrupted rerun is no evidence about the code or data that it ran with.
    """
    pool = list(records)
    decided = [record for record in pool if record.status in DECIDED]
    return max(decided or pool, key=lambda record: (parse_end_time(record), record.run_id))


def choose_data(records: Iterable[RunRecord], present: str = "") -> str:
    """Return the digest of the data whose runs count: the `present` data, or those of the newest run."""
    pool = list(records)
    return present if any(each.data_digest == present for each in pool) else find_newest(pool).data_digest


def select_runs(
    records: Iterable[RunRecord], data_digest: str, present: PresentVersion = UNKNOWN_VERSION
) -> CellRuns:
    """Sort the runs of one model on one task, of which those on the data `data_digest` count.

    Of these, runs of the present code count once one has finished or diverged, whatever their timestamps;
    without such a run, those of the code of the newest run.
    """
    pool = list(records)
    current = [record for record in pool if record.data_digest == data_digest]
    if current:
        decided = {record.source_digest for record in current if record.status in DECIDED}
        source = present.source if present.source in decided else find_newest(current).source_digest
        current = [record for record in current if record.source_digest == source]
    kept = {id(record) for record in current}
    by_seed: dict[int, list[RunRecord]] = {}
    for record in current:
        by_seed.setdefault(record.seed, []).append(record)
    finished: list[RunRecord] = []
    unfinished: list[RunRecord] = []
    for _, runs in sorted(by_seed.items()):
        done = [record for record in runs if record.finished]
        (finished if done else unfinished).append(find_newest(done or runs))
    left_out = tuple(record for record in pool if id(record) not in kept)
    return CellRuns(tuple(finished), tuple(unfinished), left_out, present)


def is_usable(value: float | None) -> TypeGuard[float]:
    """Return True for a value that may enter a mean."""
    return value is not None and math.isfinite(value)


def describe_difference(record: RunRecord, planned: RunSpec | None) -> str:
    """Return how a run's spec differs from the planned one, such as ``modified: train.max_steps 20``."""
    if planned is None:
        return "modified: not in the suite"
    asked, done = (
        {key: part for key, part in values.items() if key not in ("suite", "task", "seed")}
        for values in (planned.model_dump(mode="json"), record.spec)
    )
    # Most differ only in the seed; flattening thousands of them one by one would be slow.
    found = () if asked == done else compare_settings(asked, done)
    changed = [f"{change.name} {change.now_text}" for change in found]
    if not changed and record.seed != planned.seed:
        changed = [f"seed {record.seed}"]
    return f"modified: {', '.join(changed) or 'another version of the spec'}"


Key = tuple[str, str, str]
"""Suite, task and model."""
SpecKey = tuple[str, str, str]
"""Task, model and the digest of a spec: two tasks may have the same settings, and so the same digest."""


@dataclass(frozen=True)
class SuiteRuns:
    """The data that tables use of one suite: its planned runs, records and mixing distances.

    `specs` may have models that the suite does not list. `distances` are by run id. `more_seeds` are specs of
    runs that differ from a planned one only in the seed: they follow the protocol, and count. `present` has
    the present code and data by task and model.
    """

    suite: Suite
    specs: Sequence[RunSpec]
    records: Sequence[RunRecord]
    distances: Mapping[str, Sequence[Distances]] = field(default_factory=dict)
    more_seeds: Mapping[SpecKey, RunSpec] = field(default_factory=dict)
    present: Mapping[tuple[str, str], PresentVersion] = field(default_factory=dict)

    @cached_property
    def digests(self) -> Mapping[tuple[str, str], set[str]]:
        """The digests of all specs that count, by task and model; cached, as every table uses them."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        keys = ((spec.task, spec.model_name, spec.digest) for spec in self.specs)
        for task, model, digest in (*keys, *self.more_seeds):
            found[task, model].add(digest)
        return found


class RunPool:
    """The runs of the `places` of a table, sorted.

    `plan`, `more`, `planned` and `modified` are by suite, task and model; `more` has the seeds beyond the
    plan, whose runs are in `planned` too. `data` has the digest of the data that count there. Modified runs
    are those on `own_places`, and those of their suites on tasks outside them. `notes` concern the whole
    table.
    """

    def __init__(self, material: Iterable[SuiteRuns], definition: TableDefinition) -> None:
        self.places, self.own_places = definition.places, definition.own_places
        self.material = [each for each in material if each.suite.name in definition.suites]
        self.plan: dict[Key, list[RunSpec]] = defaultdict(list)
        self.more: dict[Key, set[int]] = defaultdict(set)
        self.planned: dict[Key, list[RunRecord]] = defaultdict(list)
        self.modified: dict[Key, list[RunRecord]] = defaultdict(list)
        self.present: dict[Key, PresentVersion] = {}
        self.notes: list[str] = []
        for each in self.material:
            self._sort(each)
        self.models = list(dict.fromkeys(model for _, _, model in self.plan))
        self.data = self._choose_data()

    @property
    def distances(self) -> Mapping[str, Sequence[Distances]]:
        """All measured mixing distances, by run id."""
        return {identity: found for each in self.material for identity, found in each.distances.items()}

    def select(self, place: Place, model: str) -> CellRuns:
        """Return the planned runs of this model, by outcome."""
        key = (*place, model)
        return select_runs(
            self.planned.get(key, ()), self.data.get(key, ""), self.present.get(key, UNKNOWN_VERSION)
        )

    def count_planned(self, place: Place, model: str) -> int:
        """Return the number of planned seeds, plus those that ran beyond the plan."""
        key = (*place, model)
        return len(self.plan.get(key, ())) + len(self.more.get(key, ()))

    def lists(self, place: Place, model: str) -> bool:
        """Return True if the suite lists the model for this task."""
        return any(
            each.suite.name == place[0] and (place[1], model) in each.suite.cells for each in self.material
        )

    def list_runs(self, place: Place) -> list[RunRecord]:
        """Return the planned runs of all models, on the data that count."""
        return [
            record
            for model in self.models
            for record in self.planned.get((*place, model), ())
            if record.data_digest == self.data.get((*place, model), "")
        ]

    def _sort(self, each: SuiteRuns) -> None:
        name, tasks = each.suite.name, set(each.suite.tasks)
        self.present |= {(name, *place): version for place, version in each.present.items()}
        own = {suite for suite, _ in self.own_places}
        for place in self.places:
            if place[0] == name and place[1] not in tasks:
                self.notes.append(f"suite {name} here has no task {place[1]}")
        for spec in each.specs:
            if (name, spec.task) in self.places:
                self.plan[name, spec.task, spec.model_name].append(spec)
        for spec in each.more_seeds.values():
            if (name, spec.task) in self.places:
                self.more[name, spec.task, spec.model_name].add(spec.seed)
        for record in each.records:
            key = (name, record.task, record.model)
            if record.suite != name:
                continue
            if key[:2] in self.places and record.spec_digest in each.digests.get(key[1:], ()):
                self.planned[key].append(record)
            elif key[:2] in self.own_places or (name in own and record.task not in tasks):
                self.modified[key].append(record)

    def _choose_data(self) -> dict[Key, str]:
        """Return the data digest of every key: one per task, unless the suite sets data for single models."""
        groups: dict[tuple[Place, str], list[Key]] = defaultdict(list)
        for key, specs in self.plan.items():
            groups[key[:2], str(specs[0].model_dump(mode="json").get("data"))].append(key)
        digests: dict[Key, str] = {}
        for keys in groups.values():
            runs = [record for key in keys for record in self.planned.get(key, ())]
            present = next(
                (self.present[key].data for key in keys if key in self.present and self.present[key].data), ""
            )
            digests |= dict.fromkeys(keys, choose_data(runs, present) if runs else "")
        for place in dict.fromkeys(key[:2] for key in digests):
            if len({digest for key, digest in digests.items() if key[:2] == place and digest}) > 1:
                self.notes.append(f"{place[1]}: not all models have the same data, as the suite sets")
        return digests
