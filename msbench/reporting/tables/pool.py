"""The runs of the suites and tasks that a table shows, sorted by plan and data."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from msbench.reporting.tables.cells import Place
from msbench.reporting.tables.collect import NOWHERE, CellRuns, Present, chosen_data, outcome
from msbench.reporting.tables.contracts import Planned, SuiteFacts
from msbench.results.mixing_documents import Distances
from msbench.results.record import RunRecord

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

    suite: SuiteFacts
    specs: Sequence[Planned]
    records: Sequence[RunRecord]
    distances: Mapping[str, Sequence[Distances]] = field(default_factory=dict)
    more_seeds: Mapping[SpecKey, Planned] = field(default_factory=dict)
    present: Mapping[tuple[str, str], Present] = field(default_factory=dict)

    @cached_property
    def digests(self) -> Mapping[tuple[str, str], set[str]]:
        """The digests of all specs that count, by task and model; cached, as every table uses them."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        keys = ((spec.task, spec.model_name, spec.digest) for spec in self.specs)
        for task, model, digest in (*keys, *self.more_seeds):
            found[task, model].add(digest)
        return found


class Pool:
    """The runs of some `places`, sorted.

    `plan`, `more`, `planned` and `modified` are by suite, task and model; `more` has the seeds beyond the
    plan, whose runs are in `planned` too. `data` has the digest of the data that count there. Modified runs
    are those on `own_places`, and those of their suites on tasks outside them. `notes` concern the whole
    table.
    """

    def __init__(
        self, material: Iterable[SuiteRuns], places: Collection[Place], own_places: Collection[Place]
    ) -> None:
        self.material = [each for each in material if any(suite == each.suite.name for suite, _ in places)]
        self.places, self.own_places = places, own_places
        self.plan: dict[Key, list[Planned]] = defaultdict(list)
        self.more: dict[Key, set[int]] = defaultdict(set)
        self.planned: dict[Key, list[RunRecord]] = defaultdict(list)
        self.modified: dict[Key, list[RunRecord]] = defaultdict(list)
        self.notes: list[str] = []
        for each in self.material:
            self._sort(each)
        self.models = list(dict.fromkeys(model for _, _, model in self.plan))
        self.data = self._newest_data()

    def listed(self, suites: Collection[str]) -> set[str]:
        """Return the models that one of these suites lists."""
        return {model for each in self.material if each.suite.name in suites for model in each.suite.models}

    @property
    def distances(self) -> Mapping[str, Sequence[Distances]]:
        """All measured mixing distances, by run id."""
        return {identity: found for each in self.material for identity, found in each.distances.items()}

    def strangers(self) -> dict[str, list[str]]:
        """Return by suite the models that it does not list but that have planned runs."""
        found = {
            each.suite.name: [model for model in self.models if model not in each.suite.models]
            for each in self.material
        }
        ran = {(suite, model) for (suite, _, model), records in self.planned.items() if records}
        return {suite: [each for each in models if (suite, each) in ran] for suite, models in found.items()}

    def outcome(self, place: Place, model: str) -> CellRuns:
        """Return the planned runs of this model, by outcome."""
        key = (*place, model)
        return outcome(self.planned.get(key, ()), self.data.get(key, ""), self._present(key))

    def n_planned(self, place: Place, model: str) -> int:
        """Return the number of planned seeds, plus those that ran beyond the plan."""
        key = (*place, model)
        return len(self.plan.get(key, ())) + len(self.more.get(key, ()))

    def counted(self, place: Place) -> list[RunRecord]:
        """Return the planned runs of all models, on the data that count."""
        return [
            record
            for model in self.models
            for record in self.planned.get((*place, model), ())
            if record.data_digest == self.data.get((*place, model), "")
        ]

    def _present(self, key: Key) -> Present:
        suite, *place = key
        found = (each.present.get((place[0], place[1])) for each in self.material if each.suite.name == suite)
        return next((each for each in found if each is not None), NOWHERE)

    def _sort(self, each: SuiteRuns) -> None:
        name, tasks = each.suite.name, set(each.suite.tasks)
        own = {suite for suite, _ in self.own_places}
        for place in self.places:
            if place[0] == name and place[1] not in tasks:
                self.notes.append(f"suite {name} as it is here has no task {place[1]}")
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

    def _newest_data(self) -> dict[Key, str]:
        """Return the data digest of every key: one per task, unless the suite sets data for single models."""
        groups: dict[tuple[Place, str], list[Key]] = defaultdict(list)
        for key, specs in self.plan.items():
            groups[key[:2], str(specs[0].model_dump(mode="json").get("data"))].append(key)
        digests: dict[Key, str] = {}
        for keys in groups.values():
            runs = [record for key in keys for record in self.planned.get(key, ())]
            present = next((data for key in keys if (data := self._present(key).data)), "")
            digests |= dict.fromkeys(keys, chosen_data(runs, present) if runs else "")
        for place in dict.fromkeys(key[:2] for key in digests):
            if len({digest for key, digest in digests.items() if key[:2] == place and digest}) > 1:
                self.notes.append(f"{place[1]}: not all models have the same data, as the suite asks")
        return digests
