"""Listings of suites, models, datasets and runs."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from msbench import datasets
from msbench.config import DATASETS, MODELS, ClassifierConfig
from msbench.config.data import ListOpsConfig, PtbXlConfig
from msbench.config.differences import compare_settings
from msbench.config.layers import LocatedValues
from msbench.config.own import find_own, list_entry_points
from msbench.config.run import SECTIONS, resolve_data, resolve_model
from msbench.datasets.dataset import TaskInfo
from msbench.environment import choose_accelerator
from msbench.errors import ConfigError, UnknownName
from msbench.results import store
from msbench.results.record import RunRecord
from msbench.runs.launchers.slurm_jobs import find_jobs
from msbench.runs.reproduce import ReproductionBuilder, dump_spec
from msbench.runs.suite import Suite, list_suite_names, list_suites, load_suite, resolve_specs


@dataclass(frozen=True)
class Listing:
    """Rows under a header, warnings on what could not be listed, and notes on the rows.

    The last columns, as many as `below`, may be joined or go under a row if there is no room for all.
    """

    header: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    below: int = 1

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows for ``--json``."""
        return [dict(zip(self.header, row, strict=True)) for row in self.rows]

    def cells(self) -> list[tuple[Any, ...]]:
        """Return the rows for a table: lists and counts as texts."""
        return [tuple(map(_format_cell, self.header, row)) for row in self.rows]


def build_listing(what: str, results: Path, suite: str | None = None) -> Listing:
    """Return the listing that ``msbench list`` prints; UnknownName for anything but the four kinds.

    Models can be those of a `suite`, with its settings. Raises ConfigError for a suite with another kind.
    """
    if what not in KINDS:
        raise UnknownName("listing", what, KINDS)
    if suite is None:
        return KINDS[what](results)
    if what != "models":
        raise ConfigError(f"msbench list {what}: takes no suite; msbench list models {suite} does")
    found = load_suite(suite)
    return _list_models(found, found.models)


def _list_suites() -> Listing:
    warnings: list[str] = []
    rows = [
        (suite.name, suite.protocol, suite.size, suite.title, suite.tasks)
        for suite in list_suites(on_error=lambda error: warnings.append(str(error)))
    ]
    return Listing(("suite", "protocol", "runs", "title", "tasks"), rows, warnings)


SIZES = "listops"
"""Suite whose settings models are counted with; models that it does not list have its common settings."""


def _list_all_models() -> Listing:
    names = (*MODELS, *list_entry_points("model"))
    try:
        return _list_models(load_suite(SIZES), names)
    except ConfigError as error:
        listing = _list_models(None, list(MODELS))
        return replace(listing, warnings=[f"{error}; models have their default size", *listing.warnings])


def _list_models(suite: Suite | None, names: Sequence[str]) -> Listing:
    warnings: list[str] = []
    rows = [_describe_model(name, suite, choose_accelerator("auto"), warnings) for name in names]
    header = ("model", "states", "causal", "cost", "parameters", "at", "kernel", "family", "summary", "rows")
    notes = [
        "states (of a channel in a layer) and parameters: as"
        f" `msbench run {suite.name if suite else SIZES} --model NAME` trains it",
        "cost: how the time of a layer grows with the length l",
    ]
    return Listing(header, rows, warnings, notes, below=3)


def _describe_model(name: str, suite: Suite | None, device: str, warnings: list[str]) -> tuple[Any, ...]:
    # Imported here: no other listing needs torch.
    from msbench import models

    config, info, size = _choose_size(name, suite)
    family = models.find_family(name, config)
    causal = "yes" if family.is_causal(config) else "no"
    parameters: int | None = None
    try:
        parameters = models.count_parameters(models.build_outline(name, config, info))
    except ConfigError as error:
        warnings.append(f"{name}: cannot be counted: {error}")
    counts = (family.count_states(config), causal, family.cost, parameters, size)
    kernel = family.name_kernel(config, device)
    if (code := find_own(config)) is not None:
        return (name, *counts, kernel, "own", f"{code.reference} of your own", ())
    entry = MODELS[name]
    return (name, *counts, kernel, entry.family, entry.summary, entry.rows)


def _choose_size(name: str, suite: Suite | None) -> tuple[ClassifierConfig, TaskInfo, str]:
    """Return a model's config in a suite, the task, and the suite's name; or the model's defaults."""
    if suite is not None:
        with suppress(ConfigError):  # its own options may be incompatible with the suite's
            tasks = [task for task in suite.tasks if (task, name) in suite.cells] or suite.tasks
            spec = resolve_specs(suite, [name], tasks[:1], suite.seeds[:1])[0]
            return spec.model, datasets.outline(spec.data), suite.name
    if name not in MODELS:
        part = LocatedValues({}, {}, f"model {name}")
        return resolve_model(name, part), datasets.outline(ListOpsConfig()), "defaults"
    entry = MODELS[name]
    data = PtbXlConfig() if entry.numbers_only else ListOpsConfig()
    return entry.config(**entry.preset), datasets.outline(data), "defaults"


def _list_datasets() -> Listing:
    root = datasets.data_root()
    rows = []
    for name in (*DATASETS, *list_entry_points("dataset")):
        default = resolve_data(LocatedValues({"dataset": name}, {}, f"dataset {name}"))
        state = "ready" if datasets.is_ready(default, root) else datasets.command(default)
        rows.append((name, state, str(root / name)))
    return Listing(("dataset", "state", "folder"), rows)


def _list_runs(results: Path) -> Listing:
    found, warnings = store.read_records(results)
    left, unread = find_jobs(results, found)
    apart = describe_differences(found)
    rows: list[tuple[Any, ...]] = []
    for record in found:
        job = left.pop(record.run_id, None)
        place = (record.run_id, record.suite, record.task, record.model, record.seed)
        status = job.state if job is not None and job.active else record.status
        rows.append((*place, status, record.metric, record.result, record.ended, apart[id(record)]))
    for job in left.values():
        place = (job.run.run_id, job.submission.suite, job.run.task, job.run.model, job.run.seed)
        rows.append((*place, job.state, None, None, None, ""))
    if left:
        rows.sort(key=lambda row: (*row[1:4], row[0]))
    unknown = sorted({record.suite for record in found} - set(list_suite_names()))
    notes = [
        f"{name}: no suite of this name is known here: 'with' compares its runs among each other"
        for name in unknown
    ]
    return Listing(RUNS_HEADER, rows, [*warnings, *unread], notes)


RUNS_HEADER = ("run", "suite", "task", "model", "seed", "status", "metric", "test", "ended", "with")


def group_runs(listing: Listing) -> Iterator[tuple[str, Sequence[str], list[tuple[Any, ...]]]]:
    """Yield the runs of each suite and task as title, header and rows that fit into a line of 80 columns.

    A run without a result has its status in the place of it.
    """
    for (suite, task), rows in groupby(listing.as_dicts(), key=lambda row: (row["suite"], row["task"])):
        runs = list(rows)
        metrics = dict.fromkeys(row["metric"] for row in runs if row["metric"])
        shown = [
            (
                row["run"],
                row["model"],
                row["seed"],
                _format_cell("test", row["test"]) or row["status"],
                row["with"],
            )
            for row in runs
        ]
        yield f"{suite} · {task}", ("run", "model", "seed", ", ".join(metrics) or "status", "with"), shown


def describe_differences(records: Sequence[RunRecord]) -> dict[int, str]:
    """Return by ``id()`` how each record differs from its suite's plan.

    Where no suite of this name is known here, it is compared with the commonest settings of its suite, task
    and model.
    """
    places: dict[tuple[str, str, str], list[RunRecord]] = {}
    for record in records:
        places.setdefault((record.suite, record.task, record.model), []).append(record)
    found: dict[int, str] = {}
    plans = ReproductionBuilder()
    for runs in places.values():
        specs = [{name: run.spec.get(name) for name in SECTIONS} for run in runs]
        planned = plans.find_planned(runs[0])
        texts = Counter(json.dumps(each, sort_keys=True) for each in specs if planned is None)
        base = json.loads(texts.most_common(1)[0][0]) if planned is None else dump_spec(planned)
        base = {name: base.get(name) for name in SECTIONS}
        for run, spec in zip(runs, specs, strict=True):
            # Usually they are the same: this avoids flattening thousands of runs.
            changes = compare_settings(base, spec) if spec != base else ()
            found[id(run)] = ", ".join(sorted(f"{each.name} {each.now_text}" for each in changes))
    return found


def _format_cell(column: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(value)
    if column == "test" and value is not None:
        return f"{value:.2%}"
    return f"{value:,}" if column == "parameters" and value is not None else value


KINDS: dict[str, Callable[[Path], Listing]] = {
    "suites": lambda _results: _list_suites(),
    "models": lambda _results: _list_all_models(),
    "datasets": lambda _results: _list_datasets(),
    "runs": _list_runs,
}
