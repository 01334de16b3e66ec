"""Loading of tables by name: each suite and run that they need is read once."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msbench import console
from msbench import datasets as data
from msbench.config import MODELS, RunSpec
from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Row, Table
from msbench.reporting.tables.claims import standings
from msbench.reporting.tables.collect import Present
from msbench.reporting.tables.definitions import (
    PAPER_TABLES,
    TableDefinition,
    claim_tables,
    own_table,
    paper_names,
    validation_table,
)
from msbench.reporting.tables.pool import SpecKey, SuiteRuns
from msbench.results import store
from msbench.results.mixing_documents import Distances, read_distances
from msbench.results.record import RunRecord
from msbench.results.reported import find_reported, read_all_reported
from msbench.results.store import StoredRuns
from msbench.runs import plan as agenda
from msbench.runs import suite
from msbench.runs.suite import Suite

PAPER = "paper"
"""All of the paper's tables together."""
HINT = f"'msbench report {PAPER}' shows all seven tables of the paper"
Show = Literal["results", "claims", "validation"]
Judge = Callable[[Table], Table]
"""A function that sets the `judgement` of a table's cells."""


@dataclass(frozen=True)
class Report:
    """Tables, and their records by run id."""

    tables: tuple[Table, ...]
    results: Path
    records: Mapping[str, tuple[RunRecord, ...]]

    def behind(self, table: Table, row: Row, column: int) -> tuple[RunRecord, ...]:
        """Return the runs behind a cell, in the order of its run ids."""
        places = table.columns[column].places
        return tuple(
            record
            for identity in row.cells[column].run_ids
            for record in self.records.get(identity, ())
            if record.model == row.model and (record.suite, record.task) in places
        )

    def folder(self, record: RunRecord) -> Path:
        """Return the folder with the files of a run."""
        return run_folder(self.results, record)


def run_folder(results: Path, record: RunRecord) -> Path:
    """Return the folder with the files of a run."""
    return results / record.suite / record.task / record.model / record.run_id


def load(
    names: Sequence[str],
    results: Path,
    *,
    include_modified: bool = False,
    judge: Judge | None = None,
    show: Show = "results",
) -> Report:
    """Load the tables of these names, each judged by `judge` if given.

    A name is that of a suite or its file, of a table of the paper (its id, ``table-5`` or ``5``), or
    ``paper`` for all seven. Without names, the tables are those of the suites that have runs in `results`,
    and those of the paper with a measured cell. `show` selects for a suite its results, its results and the
    tables of its claims, or its validation split, for which the paper has no table.

    Records that cannot be read are named on stderr and left out. Raises UnknownName, ConfigError where two
    tables would have one name, and Undecided where a named suite has no runs or, without names, there are no
    runs at all.
    """
    library = _Library(results, show)
    reported = read_all_reported(find_reported(results))

    def build(definition: TableDefinition) -> Table:
        material = [library.runs(name) for name in definition.suites]
        table = build_table(definition, material, reported, include_modified=include_modified)
        if definition.claim is not None:
            return standings(table, definition.claim, reported, results)
        return judge(table) if judge else table

    if names:
        tables = [build(definition) for definition in library.named(names)]
    else:
        own, papers = library.with_runs()
        tables = [table for table in map(build, papers) if table.measured or table.id in library.found]
        tables += map(build, own)
    return Report(tuple(tables), results, library.by_id())


class _Library:
    """Suites, and the runs of each, read on first use."""

    def __init__(self, results: Path, show: Show) -> None:
        self.results, self.show = results, show
        self.suites: dict[str, Suite] = {}
        self.found: list[str] = []
        self.read: dict[str, SuiteRuns] = {}

    def named(self, names: Iterable[str]) -> list[TableDefinition]:
        """Return the tables of these names, each once and in the given order."""
        chosen: dict[str, TableDefinition] = {}
        for definition in (each for name in names for each in self._named(name)):
            if chosen.setdefault(definition.id, definition) != definition:
                raise ConfigError(f"two tables are called {definition.id}; report them one by one")
        for definition in chosen.values():
            if definition.number is not None:
                self._refuse_validation(definition)
                self._refuse_scaled(definition)
            elif not self.runs(definition.suites[0]).records:
                (name,) = definition.suites
                raise Undecided(f"suite {name}: nothing has been run; 'msbench run {name}' makes its runs")
        return list(chosen.values())

    def with_runs(self) -> tuple[list[TableDefinition], list[TableDefinition]]:
        """Return the tables of the suites that have runs, and the tables of the paper that may show some."""
        listing = store.list_suites_with_runs(self.results)
        for warning in listing.warnings:
            console.say(f"msbench: {warning}")
        self.found = [folder.name for folder in listing.folders]
        if not self.found:
            raise Undecided(f"{self.results}: nothing has been run; 'msbench run SUITE' makes runs; {HINT}")
        self.suites |= {each.name: each for each in suite.available(on_error=_passed_over)}
        for name in self.found:
            if name not in self.suites:
                console.say(
                    f"msbench: {self.results / name}: no suite of this name here; name its file to report it"
                )
        known = [self.suites[name] for name in self.found if name in self.suites]
        if not known:
            raise Undecided(f"{self.results}: no run of a suite that is known here")
        usable = {name for name, each in self.suites.items() if each.protocol == "paper"}
        papers = [
            each for each in PAPER_TABLES if set(each.suites) & set(self.found) and set(each.suites) <= usable
        ]
        papers = [] if self.show == "validation" else papers
        ids = {each.id for each in papers}
        return [own for each in known if each.name not in ids for own in self._own(each)], papers

    def runs(self, name: str) -> SuiteRuns:
        """Return the stored runs of this suite."""
        if name not in self.read:
            self.read[name] = self._read(self._suite(name))
        return self.read[name]

    def by_id(self) -> dict[str, tuple[RunRecord, ...]]:
        """Return all records that were read, by run id; one id may occur in several suites."""
        grouped: dict[str, tuple[RunRecord, ...]] = {}
        for record in (record for each in self.read.values() for record in each.records):
            grouped[record.run_id] = (*grouped.get(record.run_id, ()), record)
        return grouped

    def _named(self, name: str) -> Sequence[TableDefinition]:
        if name == PAPER:
            return PAPER_TABLES
        for definition in PAPER_TABLES:
            if name in paper_names(definition):
                return [definition]
        return self._own(self._suite(name))

    def _refuse_validation(self, definition: TableDefinition) -> None:
        if self.show == "validation":
            raise ConfigError(f"{definition.where}: --validation is of suites: name {definition.suites[0]}")

    def _refuse_scaled(self, definition: TableDefinition) -> None:
        """Raise ConfigError if a local suite replaces a paper suite of its name under another protocol."""
        for each in map(self._suite, definition.suites):
            if each.protocol != "paper":
                raise ConfigError(
                    f"{definition.where}: {each.source.name}: protocol {each.protocol!r} never stands beside"
                    f" the paper's numbers; give the suite another name than {each.name}"
                )

    def _suite(self, name: str) -> Suite:
        if name not in self.suites:
            found = _load(name)
            if self.suites.setdefault(found.name, found) != found:
                raise ConfigError(f"two suites are called {found.name}; report them one by one")
            self.suites[name] = found
        return self.suites[name]

    def _read(self, each: Suite) -> SuiteRuns:
        stored = store.read_runs(self.results, each.name)
        records, warnings = stored.records, stored.warnings
        distances = self._distances(records, warnings)
        for warning in warnings:
            console.say(f"msbench: {warning}")
        strangers = dict.fromkeys(r.model for r in records if r.model not in each.models)
        specs = [*suite.plan(each), *(spec for model in strangers for spec in _planned(each, model))]
        more = more_seeds(specs, records)
        present = find_present(specs, more, stored, self.results)
        return SuiteRuns(each, specs, records, distances, more, present)

    def _own(self, each: Suite) -> list[TableDefinition]:
        """Return the table of a suite, with the mixing distances of its runs that count, then its claims."""
        if self.show == "validation":
            return [validation_table(each)]
        runs = self.runs(each.name)
        mixed = {
            record.task
            for record in runs.records
            if any(measured.counts for measured in runs.distances.get(record.run_id, ()))
        }
        return [own_table(each, mixed), *(claim_tables(each) if self.show == "claims" else ())]

    def _distances(self, records: Iterable[RunRecord], warnings: list[str]) -> dict[str, list[Distances]]:
        """Return the mixing distances stored with these runs."""
        found: dict[str, list[Distances]] = {}
        for record in records:
            folder = run_folder(self.results, record)
            # A cheap check, as thousands of runs may have none.
            if record.finished and os.path.isdir(folder / "mixing"):
                found[record.run_id], bad = read_distances(folder)
                warnings += bad
        return found


def _load(name: str) -> Suite:
    try:
        return suite.load(name)
    except UnknownName as error:
        names = suite.names()
        if Path(name).name != name or name in names or name.endswith((".yaml", ".yml")):
            raise
        known = {*names, PAPER, *(each for table in PAPER_TABLES for each in paper_names(table))}
        raise UnknownName("suite or table", name, known) from error


def _planned(each: Suite, model: str) -> list[RunSpec]:
    """Return the planned runs of a model that the suite does not list; none if it cannot run the model."""
    if model not in MODELS:
        return []
    try:
        return suite.plan(each, models=[model])
    except ConfigError:
        return []


def more_seeds(specs: Sequence[RunSpec], records: Iterable[RunRecord]) -> dict[SpecKey, RunSpec]:
    """Return the specs of those records that differ from one of `specs` only in the seed."""
    known = {(spec.task, spec.model_name, spec.seed) for spec in specs}
    first = {(spec.task, spec.model_name): spec for spec in reversed(specs)}
    plain = {place: spec.model_dump(mode="json") for place, spec in first.items()}
    found: dict[SpecKey, RunSpec] = {}
    for record in records:
        place, key = (record.task, record.model), (record.task, record.model, record.spec_digest)
        if (*place, record.seed) in known or key in found or place not in first:
            continue
        # Compare plain values: digests would take a second for ten thousand runs.
        if record.spec == {**plain[place], "seed": record.seed}:
            found[key] = first[place].model_copy(update={"seed": record.seed})
    return found


def find_present(
    specs: Sequence[RunSpec], more: Iterable[SpecKey], stored: StoredRuns, results: Path
) -> dict[tuple[str, str], Present]:
    """Return the present code and data, by task and model, for runs of `specs` and of `more` seeds.

    Tasks and models that cannot have any runs are left out.
    """
    groups: dict[tuple[str, str], dict[str, RunSpec]] = defaultdict(dict)
    for spec in specs:
        groups[spec.task, spec.model_name][spec.digest] = spec
    others: dict[tuple[str, str], list[str]] = defaultdict(list)
    for task, model, digest in more:
        others[task, model].append(digest)
    ran = {(record.task, record.model) for record in stored.records}
    ran |= {(path.parts[-3], path.parts[-2]) for path in stored.incomplete}
    digests: dict[str, str | None] = {}
    found: dict[tuple[str, str], Present] = {}
    for place, planned in groups.items():
        if place not in ran and not stored.unreadable:
            continue
        spec = next(iter(planned.values()))
        key = spec.data.model_dump_json()
        if key not in digests:
            digests[key] = data.stored_digest(spec.data, data.data_root())
        source, here = agenda.identify(spec, "").source_digest, digests[key]
        unread = agenda.describe_unread_runs(spec, [*planned, *others[place]], stored, results, here)
        found[place] = Present(source, here or "", data.outline(spec.data).chance, unread)
    return found


def _passed_over(error: ConfigError) -> None:
    console.say(f"msbench: passed over, as it is no suite: {error}")
