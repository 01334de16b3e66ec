"""Loading of tables by name: each suite and run that they need is read once."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msbench import console, datasets
from msbench.config import MODELS, RunSpec
from msbench.errors import ConfigError, Undecided, UnknownName
from msbench.reporting.tables.breakdown import add_breakdowns
from msbench.reporting.tables.build import build_table
from msbench.reporting.tables.cells import Report, Table, find_run_folder
from msbench.reporting.tables.definitions import (
    PAPER_TABLES,
    TableDefinition,
    define_claim_tables,
    define_suite_table,
    define_validation_table,
    list_paper_names,
)
from msbench.reporting.tables.selection import PresentVersion, SpecKey, SuiteRuns
from msbench.reporting.tables.versus import compare_tables, judge_claim
from msbench.results import store
from msbench.results.mixing_documents import Distances, read_distances
from msbench.results.record import RunRecord
from msbench.results.reported import find_reported, read_all_reported
from msbench.results.store import StoredRuns
from msbench.runs import plan, suite
from msbench.runs.identity import identify
from msbench.runs.suite import Suite
from msbench.runs.suite_file import PAPER

HINT = f"'msbench report {PAPER}' shows all seven tables of the paper"
Judge = Callable[[Table], Table]
"""A function that sets the `judgement` of a table's cells."""
Warn = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options of ``msbench report``.

    A name is that of a suite or its file, of a table of the paper (its id, ``table-5`` or ``5``), or
    ``paper`` for all seven. Without names, the tables are those of the suites that have runs in `results`,
    and those of the paper with a measured cell. A suite has a table of its own and, with `claims`, one for
    each claim of the paper that it tests; with `validation` it has that of its validation split instead.
    `modified` lists runs under overrides too, `planned` all models of the suites, `judge` sets verdicts, and
    `versus` is a model that all others are compared with. `by` is a property of the test examples: each task
    has a table by it too. The other options are the files to write, and their folder `out`.
    """

    names: Sequence[str] = ()
    results: Path
    claims: bool = True
    validation: bool = False
    modified: bool = False
    planned: bool = False
    judge: Judge | None = None
    versus: str | None = None
    by: str | None = None
    out: Path = Path("reports")
    csv: bool = False
    by_run: bool = False
    latex: bool = False
    html: bool = False
    figures: bool = False
    initialisation: bool = False


def print_warning(text: str) -> None:
    """Print a warning to stderr."""
    console.say(f"msbench: {text}")


def load_report(options: ReportOptions, warn: Warn = print_warning) -> Report:
    """Read the runs that the tables need, each once, and return the tables, judged and compared.

    `warn` gets a line for each record, mixing document or suite that cannot be read and is left out. Raises
    UnknownName for a table, suite, model or property that does not exist, ConfigError where two tables would
    have one name, and Undecided where a named suite has no runs or, without names, there are no runs at all.
    """
    library = _Library(options, warn)
    reported = read_all_reported(find_reported(options.results))
    definitions = library.find_tables()
    built = [
        build_table(
            each,
            map(library.read_suite, each.suites),
            reported,
            modified=options.modified,
            planned=options.planned,
        )
        for each in definitions
    ]
    report = Report(tuple(built), options.results, *library.index_runs())
    tables = []
    for definition, table in zip(definitions, built, strict=True):
        if definition.number is not None and not (
            options.names or table.measured or table.id in library.found
        ):
            continue
        if definition.claim is not None:
            table = judge_claim(report, table, definition.claim, reported)
        elif options.judge is not None:
            table = options.judge(table)
        tables.append(table)
    report = replace(report, tables=tuple(tables))
    if options.versus is not None:
        report = compare_tables(report, options.versus)
    return report if options.by is None else add_breakdowns(report, options.by, warn)


class _Library:
    """Suites, and the runs of each, read on first use."""

    def __init__(self, options: ReportOptions, warn: Warn) -> None:
        self.options, self.results, self.warn = options, options.results, warn
        self.suites: dict[str, Suite] = {}
        self.found: list[str] = []
        self.runs: dict[str, SuiteRuns] = {}

    def find_tables(self) -> list[TableDefinition]:
        """Return the tables of the names, each once and in the given order; without names, all."""
        if not self.options.names:
            return self._find_all()
        chosen: dict[str, TableDefinition] = {}
        for definition in (each for name in self.options.names for each in self._find_named(name)):
            if chosen.setdefault(definition.id, definition) != definition:
                raise ConfigError(f"two tables are called {definition.id}; report them one by one")
        for definition in chosen.values():
            if definition.number is not None:
                self._check_paper_table(definition)
            elif not self.read_suite(definition.suites[0]).records:
                (name,) = definition.suites
                raise Undecided(f"suite {name}: nothing has been run; 'msbench run {name}' makes its runs")
        return list(chosen.values())

    def index_runs(self) -> tuple[dict[str, tuple[RunRecord, ...]], dict[str, Sequence[Distances]]]:
        """Return all records and all mixing distances by run id; one id may occur in several suites."""
        records: dict[str, tuple[RunRecord, ...]] = {}
        distances: dict[str, Sequence[Distances]] = {}
        for each in self.runs.values():
            distances |= each.distances
            for record in each.records:
                records[record.run_id] = (*records.get(record.run_id, ()), record)
        return records, distances

    def _find_all(self) -> list[TableDefinition]:
        """Return the tables of the paper that may show some runs, and those of all suites that have runs."""
        listing = store.list_suites_with_runs(self.results)
        for warning in listing.warnings:
            self.warn(warning)
        self.found = [folder.name for folder in listing.folders]
        if not self.found:
            raise Undecided(f"{self.results}: nothing has been run; 'msbench run SUITE' makes runs; {HINT}")
        available = suite.list_suites(
            on_error=lambda error: self.warn(f"skipped, not a valid suite: {error}")
        )
        self.suites |= {each.name: each for each in available}
        for name in self.found:
            if name not in self.suites:
                self.warn(f"{self.results / name}: no suite of this name here; name its file to report it")
        known = [self.suites[name] for name in self.found if name in self.suites]
        if not known:
            raise Undecided(f"{self.results}: no run of a suite that is known here")
        usable = {name for name, each in self.suites.items() if each.protocol == "paper"}
        papers = [
            each
            for each in PAPER_TABLES
            if not self.options.validation
            and set(each.suites) & set(self.found)
            and set(each.suites) <= usable
        ]
        ids = {each.id for each in papers}
        return [*papers, *(own for each in known if each.name not in ids for own in self._define_own(each))]

    def _find_named(self, name: str) -> Sequence[TableDefinition]:
        if name == PAPER:
            return PAPER_TABLES
        for definition in PAPER_TABLES:
            if name in list_paper_names(definition):
                return [definition]
        return self._define_own(self._find_suite(name))

    def _check_paper_table(self, definition: TableDefinition) -> None:
        """Raise ConfigError for a validation split, or where a scaled suite has the name of a paper suite."""
        if self.options.validation:
            raise ConfigError(f"{definition.where}: --validation is of suites: name {definition.suites[0]}")
        for each in map(self._find_suite, definition.suites):
            if each.protocol != "paper":
                raise ConfigError(
                    f"{definition.where}: {each.source.name}: protocol {each.protocol!r} is never shown next"
                    f" to the paper's numbers; give the suite another name than {each.name}"
                )

    def _find_suite(self, name: str) -> Suite:
        if name not in self.suites:
            found = _load_suite(name)
            if self.suites.setdefault(found.name, found) != found:
                raise ConfigError(f"two suites are called {found.name}; report them one by one")
            self.suites[name] = found
        return self.suites[name]

    def _define_own(self, each: Suite) -> list[TableDefinition]:
        """Return the table of a suite, with the mixing distances of its runs that count, then its claims."""
        if self.options.validation:
            return [define_validation_table(each)]
        runs = self.read_suite(each.name)
        mixed = {
            record.task
            for record in runs.records
            if any(measured.is_comparable for measured in runs.distances.get(record.run_id, ()))
        }
        own = define_suite_table(each, mixed)
        return [own, *(define_claim_tables(each) if self.options.claims else ())]

    def read_suite(self, name: str) -> SuiteRuns:
        """Return the stored runs of a suite."""
        if name in self.runs:
            return self.runs[name]
        each = self._find_suite(name)
        stored = store.read_runs(self.results, each.name)
        records, distances = stored.records, self._read_distances(stored)
        ran = dict.fromkeys((record.task, record.model) for record in records)
        unlisted = [cell for cell in ran if cell not in each.cells]
        specs = [
            *suite.resolve_specs(each),
            *(spec for model in _list_models(each, unlisted) for spec in _plan(each, models=[model])),
            *(
                spec
                for task, model in unlisted
                if model in each.models
                for spec in _plan(each, models=[model], tasks=[task])
            ),
        ]
        more = find_more_seeds(specs, records)
        present = find_present_versions(specs, more, stored, self.results)
        self.runs[name] = SuiteRuns(each, specs, records, distances, more, present)
        return self.runs[name]

    def _read_distances(self, stored: StoredRuns) -> dict[str, list[Distances]]:
        """Return the mixing distances of these runs, and warn of all that cannot be read."""
        found: dict[str, list[Distances]] = {}
        warnings = stored.warnings
        for record in stored.records:
            folder = find_run_folder(self.results, record)
            # A cheap check, as thousands of runs may have none.
            if record.finished and os.path.isdir(folder / "mixing"):
                found[record.run_id], bad = read_distances(folder)
                warnings += bad
        for warning in warnings:
            self.warn(warning)
        return found


def _load_suite(name: str) -> Suite:
    try:
        return suite.load_suite(name)
    except UnknownName as error:
        names = suite.list_suite_names()
        if Path(name).name != name or name in names or name.endswith((".yaml", ".yml")):
            raise
        known = {*names, PAPER, *(each for table in PAPER_TABLES for each in list_paper_names(table))}
        raise UnknownName("suite or table", name, known) from error


def _list_models(each: Suite, cells: Iterable[tuple[str, str]]) -> list[str]:
    """Return the models of these cells that msbench knows and the suite does not list."""
    return [m for m in dict.fromkeys(model for _, model in cells) if m in MODELS and m not in each.models]


def _plan(each: Suite, models: Sequence[str], tasks: Sequence[str] = ()) -> list[RunSpec]:
    """Return the runs of a suite for cells that it does not list; none where it cannot run them."""
    try:
        return suite.resolve_specs(each, models, tasks)
    except ConfigError:
        return []


def find_more_seeds(specs: Sequence[RunSpec], records: Iterable[RunRecord]) -> dict[SpecKey, RunSpec]:
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


def find_present_versions(
    specs: Sequence[RunSpec], more: Iterable[SpecKey], stored: StoredRuns, results: Path
) -> dict[tuple[str, str], PresentVersion]:
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
    found: dict[tuple[str, str], PresentVersion] = {}
    for place, planned in groups.items():
        if place not in ran and not stored.unreadable:
            continue
        spec = next(iter(planned.values()))
        key = spec.data.model_dump_json()
        if key not in digests:
            digests[key] = datasets.stored_digest(spec.data, datasets.data_root())
        source, here = identify(spec, "").source_digest, digests[key]
        unread = plan.describe_unread_runs(spec, [*planned, *others[place]], stored, results, here)
        found[place] = PresentVersion(source, here or "", datasets.outline(spec.data).chance, unread)
    return found
