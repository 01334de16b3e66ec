"""The Python API: what the verbs do, as functions for notebooks and programs (``docs/python.md``).

Each calls what its verb calls. Functions raise the exceptions of `msbench.errors` and never exit; what can be
repaired or left out is a warning. Names of suites, folders and options mean what they do on the command line.
"""

import signal
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msbench.cli.app import collect, expand_suites
from msbench.cli.display import show_pool, show_progress
from msbench.config.differences import format_yaml
from msbench.console import can_move
from msbench.environment import choose_accelerator
from msbench.errors import DamagedRecord, DataError, Interrupted, RunError
from msbench.reporting.tables.cells import Table, find_run_folder
from msbench.results.record import RunRecord
from msbench.runs.launchers import RunOptions, check_options
from msbench.runs.plan import PlannedRun, describe_run, plan_runs
from msbench.runs.suite import Suite, describe_unlisted_models, load_suite, load_suites, resolve_all

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import nn

__all__ = ["Plan", "Records", "ReportTable", "load_model", "load_suite", "plan", "report", "run"]

Overrides = Mapping[str, Any] | Iterable[str]
"""Settings such as ``{"train.lr": 1e-3}``, or texts such as ``train.lr=1e-3``, as after ``--set``."""


class Shown(ABC):
    """A result that a notebook shows as a table, and a terminal as text."""

    @abstractmethod
    def to_frame(self) -> "DataFrame":
        """Return the rows as a data frame."""

    def _summarise(self) -> "DataFrame":
        return self.to_frame()

    def _repr_html_(self) -> str:
        return self._summarise().to_html(index=False, max_rows=60, na_rep="")

    def __repr__(self) -> str:
        return self._summarise().to_string(index=False, max_rows=60, na_rep="")


class Plan(Shown, list[PlannedRun]):
    """The planned runs of some suites, with what `run` would do with each and why."""

    def __init__(self, entries: Iterable[PlannedRun], options: RunOptions) -> None:
        super().__init__(entries)
        self.options = options

    def to_frame(self) -> "DataFrame":
        """Return a row for each run: task, model, seed, run id, action and reason."""
        from pandas import DataFrame

        return DataFrame([{"suite": entry.spec.suite, **describe_run(entry)} for entry in self])


class Records(Shown, list[RunRecord]):
    """Records of runs, as their ``run.json`` has them."""

    def to_frame(self) -> "DataFrame":
        """Return a row for each run, with the columns of `results`."""
        from msbench.results.frame import build_frame

        return build_frame(self)

    def _summarise(self) -> "DataFrame":
        names = ["task", "model", "seed", "status", "metric", "result", "run_id"]
        return self.to_frame()[[*names, *(["failure"] if any(each.failure for each in self) else [])]]


@dataclass(frozen=True, repr=False)
class ReportTable(Shown):
    """A table of the report: reported next to measured numbers."""

    table: Table

    def to_frame(self) -> "DataFrame":
        """Return a row for each cell, with the columns of ``msbench report --csv``; numbers as numbers.

        `measured`, `sd` and `reported` are in `unit`; `expected`, `margin`, `low` and `high` are fractions.
        """
        from pandas import DataFrame, to_numeric

        from msbench.reporting.render.csv import NUMBERS, OF_BINS, list_cells, list_fields

        frame = DataFrame(list_cells(self.table), columns=list(list_fields(self.table)))
        for name in frame.columns.intersection([*NUMBERS, *OF_BINS]):
            frame[name] = to_numeric(frame[name])
        return frame.assign(best=frame["best"] == "yes")

    def to_latex(self) -> str:
        r"""Return the table for ``\input`` in a paper, as ``msbench report --latex`` writes it."""
        from msbench.reporting.render.latex import render_fragment

        return render_fragment(self.table)

    def _repr_html_(self) -> str:
        from msbench.reporting.render.html.page import render_notebook_table

        return render_notebook_table(self.table)

    def __repr__(self) -> str:
        from msbench.reporting.render.terminal import render_table

        return render_table(self.table)


def plan(
    *suites: str | Path | Suite,
    models: str | Iterable[str] = (),
    tasks: str | Iterable[str] = (),
    seeds: int | Iterable[int] = (),
    overrides: Overrides = (),
    results: str | Path = "results",
    fresh: bool = False,
) -> Plan:
    """Return the runs of suites, given by name, file or as loaded, as ``msbench run --dry-run`` plans them.

    `models`, `tasks` and `seeds` are one or several; none mean the suites' own. `fresh` trains completed runs
    anew. Writes nothing. Raises ConfigError for names and settings that are invalid.
    """
    from msbench import datasets

    names = _list_names(suites)
    found = load_suites(expand_suites(names))
    texts = _list_overrides(overrides)
    models, tasks = ([each] if isinstance(each, str) else each for each in (models, tasks))
    specs = resolve_all(found, models, tasks, [seeds] if isinstance(seeds, int) else seeds, texts)
    for each in found:
        for text in describe_unlisted_models(each, [spec for spec in specs if spec.suite == each.name]):
            _warn(text)
    entries = plan_runs(specs, Path(results), datasets.data_root(), fresh=fresh)
    options = RunOptions(suites=tuple(names), overrides=texts, results=Path(results), fresh=fresh)
    return Plan(entries, options)


def _list_names(given: Iterable[str | Path | Suite]) -> list[str]:
    return [str(each.source.name if isinstance(each, Suite) else each) for each in given]


def _list_overrides(overrides: Overrides) -> tuple[str, ...]:
    if isinstance(overrides, Mapping):
        return tuple(f"{key}={format_yaml(value)}" for key, value in overrides.items())
    return (overrides,) if isinstance(overrides, str) else tuple(overrides)


def run(
    planned: Plan | str | Path | Suite,
    *,
    device: str = "auto",
    jobs: int = 1,
    threads: int | None = None,
    deterministic: bool = False,
) -> Records:
    """Train, evaluate and record planned runs, or all of a suite; return their records in order.

    Finished runs are kept and stopped ones resume. A run that fails is returned with its status, and does not
    stop the others. Progress is shown where stderr is a terminal. Raises KeyboardInterrupt for Ctrl-C or the
    stop button, and Interrupted for other signals, after the state is saved: the same call resumes. Raises
    ConfigError for options that do not fit, DataError and DamagedRecord, after all other runs, for data that
    are missing and records that cannot be read.
    """
    from msbench.runs.launchers.local import run_locally

    if not isinstance(planned, Plan):
        planned = plan(planned)
    quiet = not can_move()
    options = replace(planned.options, device=device, jobs=jobs, threads=threads, quiet=quiet)
    options = replace(options, deterministic=deterministic)
    check_options(options)
    specs = [entry.spec for entry in planned]
    progress, pool = partial(show_progress, quiet=quiet), partial(show_pool, quiet=quiet)
    try:
        outcome = run_locally(specs, options, progress, pool)
    except Interrupted as error:
        if error.number == signal.SIGINT:
            raise KeyboardInterrupt(str(error)) from None
        raise
    if outcome.data_errors:
        raise DataError("\n".join(outcome.data_errors))
    if outcome.damaged:
        raise DamagedRecord(f"{options.results}: {outcome.damaged} of these runs have a damaged record")
    if outcome.code:
        raise RunError(f"a process that trained ended with exit code {int(outcome.code)}")
    return Records(outcome.records)


def report(
    *names: str | Path | Suite,
    results: str | Path = "results",
    against: str | None = None,
    versus: str | None = None,
    by: str | None = None,
    modified: bool = False,
    validation: bool = False,
) -> list[ReportTable]:
    """Return the tables that ``msbench report`` prints, for suites and tables of the paper, or for all.

    A suite is given by name, file or as loaded. Raises UnknownName for names that do not exist, and Undecided
    where nothing has been run.
    """
    from msbench.reporting.tables.load import ReportOptions, load_report

    texts, judge = _list_names(names), None
    if against is not None:
        from msbench.gate.check import build_judge

        judge = build_judge(texts, against, Path(results), _warn)
    given = {"names": texts, "judge": judge, "versus": versus, "by": by, "modified": modified}
    options = collect(ReportOptions, {**given, "results": Path(results), "validation": validation})
    return [ReportTable(table) for table in load_report(options, _warn).tables]


def load_model(
    run: str | Path | RunRecord, *, results: str | Path = "results", device: str = "cpu"
) -> "nn.Module":
    """Return the trained model of a run, in evaluation mode, with the weights that its result is of.

    These are the weights of the epoch with the best validation score, in ``checkpoint/best-<epoch>``. `run`
    is a record, the start of a run's id, ``suite:task:model[:seed]``, or its folder. Calling the model with
    inputs and lengths, as `msbench.datasets.dataset.Batch` has them, gives logits (b, classes). Raises
    ConfigError where there is no such run or it has no result, and CheckpointError where its weights are
    missing or damaged.
    """
    from msbench.reporting.compare.lookup import find_run
    from msbench.runs.identity import identify
    from msbench.runs.reproduce import resolve_record
    from msbench.runs.trained import find_task_info, load_trained_model

    if isinstance(run, RunRecord):
        record, folder = run, find_run_folder(Path(results), run)
    else:
        found = find_run(Path(results), str(run))
        record, folder = found.record, found.folder
        if found.note:
            _warn(found.note)
    spec = resolve_record(record)
    if identify(spec, record.data_digest).source_digest != record.source_digest:
        _warn(f"run {record.run_id} was trained by another version of the code: predictions may differ")
    model = load_trained_model(spec, find_task_info(spec), record, folder)
    return model.to(choose_accelerator(device)).eval()


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)
