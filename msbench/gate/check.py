"""Checks of suites against a reference; their verdicts are returned, and printed by the caller."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from msbench.errors import ConfigError, ExitCode, MsbenchError, Undecided, UnknownName, suggest_name
from msbench.gate.baseline_file import find_baselines, read_baseline, read_suite_name
from msbench.gate.baselines import list_hidden_baselines
from msbench.gate.expectations import Answer, FindExpectation, expect_baseline, expect_paper
from msbench.gate.verdicts import (
    JudgedCell,
    choose_exit_code,
    find_exit_code,
    judge_table,
    list_judged_cells,
)
from msbench.reporting.tables.cells import Cell, Column, Evidence, Row, Table
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.results import store
from msbench.runs.suite import Suite, list_suite_names, load_suite

REFERENCES = ("paper", "baseline")
Warn = Callable[[str], object]
"""A function that is called with each message about what is left out."""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """Options of ``msbench check``.

    `suites` are names or files; none means all with a run or baseline in `results`. `against` is ``paper``,
    ``baseline`` or the path of a baseline file. With `strict`, undecided, missing, stale and improved results
    fail the gate, too.
    """

    suites: Sequence[str] = ()
    against: str = "baseline"
    results: Path
    strict: bool = False


@dataclass(frozen=True)
class SuiteVerdicts:
    """The verdicts on one suite, or the `problem` that prevented them.

    `against` names the reference; `warnings` are about the reference.
    """

    suite: str
    against: str
    cells: tuple[JudgedCell, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: MsbenchError | None = None

    @property
    def stale(self) -> tuple[str, ...]:
        """Return a line for each cell whose results are of other source code than the present one."""
        return tuple(cell.retraining_hint for cell in self.cells if cell.stale)

    def find_exit_code(self, *, strict: bool) -> ExitCode:
        """Return the most fundamental exit code of the cells; a suite without a cell is undecided."""
        if self.problem is not None:
            is_undecided = self.problem.exit_code is ExitCode.UNDECIDED
            return ExitCode.GATE_FAILED if strict and is_undecided else self.problem.exit_code
        return find_exit_code(
            [cell.verdict for cell in self.cells],
            crashed=any(cell.crashed for cell in self.cells),
            stale=any(cell.stale for cell in self.cells),
            strict=strict,
        )


@dataclass(frozen=True)
class GateResult:
    """The verdicts on all checked suites."""

    suites: tuple[SuiteVerdicts, ...]
    strict: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """Return the most fundamental exit code of the suites."""
        if not self.suites:
            return find_exit_code([], strict=self.strict)
        return choose_exit_code([each.find_exit_code(strict=self.strict) for each in self.suites])

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return {
            "exit_code": int(self.exit_code),
            "strict": self.strict,
            "suites": [
                {
                    "suite": each.suite,
                    "against": each.against,
                    "stale": list(each.stale),
                    "warnings": list(each.warnings),
                    "problem": None if each.problem is None else str(each.problem),
                    "cells": [
                        {
                            "task": cell.task,
                            "model": cell.model,
                            "crashed": cell.crashed,
                            "stale": cell.stale,
                            "outcome": cell.find_outcome(strict=self.strict),
                            **asdict(cell.judgement),
                        }
                        for cell in each.cells
                    ],
                }
                for each in self.suites
            ],
        }


def check_suites(options: CheckOptions, warn: Warn) -> GateResult:
    """Return the verdicts on the suites.

    A suite that cannot be read or compared has a problem in place of verdicts: a gate must not pass because
    of what it left out. Raises ConfigError for another `against`, and Undecided if there is no suite to
    check.
    """
    against, results, names = options.against, options.results, options.suites
    check_reference(against)
    if not names and against not in REFERENCES:
        names = [read_suite_name(_require_file(against))]
    checked: dict[str, tuple[Suite | None, SuiteVerdicts]] = {}
    for name in dict.fromkeys(names or _list_names(results, against)):
        found = _check_suite(name, options, warn, is_requested=bool(names))
        if found is None:
            continue
        suite, verdicts = found
        if checked.setdefault(verdicts.suite, found)[0] != suite:
            raise ConfigError(f"two suites are called {verdicts.suite}; check them one by one")
    if not checked:
        raise Undecided(f"{results}: no run of a suite to compare with {against}; nothing was checked")
    return GateResult(tuple(verdicts for _, verdicts in checked.values()), options.strict)


def _check_suite(
    name: str, options: CheckOptions, warn: Warn, *, is_requested: bool
) -> tuple[Suite | None, SuiteVerdicts] | None:
    """Return a suite with its verdicts; None if it was not requested and the paper does not cover it."""
    against, results = options.against, options.results
    try:
        suite = load_suite(name)
    except ConfigError as error:
        problem: MsbenchError = error
        if not is_requested and name not in list_suite_names():
            problem = _explain_unknown_suite(name, results)
        elif name in REFERENCES:
            problem = ConfigError(f"{error}; the reference is an option: --against {name}")
        return None, SuiteVerdicts(name, against, problem=problem)
    if not is_requested and against == "paper" and (reason := _explain_not_in_paper(suite)):
        warn(f"skipped: {reason}")
        return None
    try:
        find_expectation, reference = _find_expectations(suite, against, results)
        table = judge_table(_load_table(name, suite, results), find_expectation)
    except ConfigError as error:
        return suite, SuiteVerdicts(suite.name, against, problem=error)
    cells = tuple(cell for cell in list_judged_cells(table) if cell.suite == suite.name)
    warnings = [*list_hidden_baselines(suite, results)] if against == "baseline" else []
    warnings += _describe_unjudged(suite, table)
    return suite, SuiteVerdicts(suite.name, reference, cells, tuple(warnings))


def _describe_unjudged(suite: Suite, table: Table) -> Iterator[str]:
    """Yield a line for each model with results that has no verdict because the suite does not list it."""
    tasks: dict[str, list[str]] = {}
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            is_result = column.suite == suite.name and column.source == "run"
            if row.model and is_result and cell.unlisted:
                tasks.setdefault(row.model, []).append(column.task)
    for model, found in tasks.items():
        yield (
            f"{model} on {', '.join(dict.fromkeys(found))} is not judged: {suite.name} does not list it, so"
            " no result is expected at its settings"
        )


def _explain_unknown_suite(name: str, results: Path) -> Undecided:
    """Return the problem of results or a baseline that belong to no suite."""
    renamed = Path("suites") / f"{name}.yml"
    hint = f"; is it {renamed}? Suites end in .yaml" if renamed.is_file() else ""
    return Undecided(
        f"{results / name}: no suite of this name; name its file to check it, or move its results{hint}"
    )


def _list_names(results: Path, against: str) -> list[str]:
    """Return the suites with something to check here: runs, a baseline, or an unreadable folder."""
    listing = store.list_suites_with_runs(results)
    names = {folder.name for folder in listing.folders}
    for path, error in listing.unreadable.items():
        if path == results:
            raise error
        names.add(path.relative_to(results).parts[0])
    if against == "baseline":
        names |= {path.stem for path in (results / "baseline").glob("[!.]*.yaml")}
    return sorted(names)


def build_judge(names: Sequence[str], against: str, results: Path, warn: Warn) -> Callable[[Table], Table]:
    """Return a function that fills the verdicts into a table whose columns may be of several suites.

    `names` are the names or files of the requested tables; suites known only by their file are found by them.
    Unlike in `check_suites`, cells of a suite that cannot be compared stay without a verdict.
    """
    check_reference(against)
    requested = _load_suites(names)
    only = None if against in REFERENCES else read_suite_name(Path(against))

    @cache
    def find_expectations(name: str) -> FindExpectation | None:
        suite = requested.get(name) or load_suite(name)
        if against == "paper" and (problem := _explain_not_in_paper(suite)):
            warn(f"without verdicts: {problem}")
            return None
        return _find_expectations(suite, against, results)[0] if only in (None, name) else None

    def find_expectation(column: Column, model: str, cell: Cell) -> Answer:
        find = find_expectations(column.suite)
        return find(column, model, cell) if find else None

    return lambda table: judge_table(table, find_expectation)


def _load_suites(names: Sequence[str]) -> Mapping[str, Suite]:
    """Return the suites among names of tables, by their own name."""
    found = {}
    for name in names:
        # Other names are tables of the paper, or rejected when the tables are loaded.
        with contextlib.suppress(UnknownName):
            suite = load_suite(name)
            found[suite.name] = suite
    return found


def check_reference(against: str) -> None:
    """Raise ConfigError for an invalid reference."""
    if against not in REFERENCES:
        _require_file(against)


def _require_file(against: str) -> Path:
    path = Path(against)
    if path.is_file():
        return path
    near = suggest_name(against, REFERENCES)
    raise ConfigError(
        f"--against {against}: no such file{near}; must be paper, baseline, or a file of 'msbench baseline'"
    )


def _find_expectations(suite: Suite, against: str, results: Path) -> tuple[FindExpectation, str]:
    """Return the expectations for a suite's cells, and the name of their source."""
    if against == "paper":
        if problem := _explain_not_in_paper(suite):
            raise ConfigError(problem)
        return partial(expect_paper, suite), "the paper"
    paths = find_baselines(results, suite.name) if against == "baseline" else [_require_file(against)]
    baseline, file = (read_baseline(paths[0], suite), str(paths[0])) if paths else (None, "no baseline")
    return partial(expect_baseline, baseline, file, suite), file


def _explain_not_in_paper(suite: Suite) -> str:
    """Return why a suite cannot be compared with the paper; empty if it can."""
    if suite.protocol != "paper":
        kind = "scaled down from" if suite.protocol == "scaled" else "not"
        return (
            f"suite {suite.name}: its protocol is {kind} the paper's, so the paper's numbers do not apply;"
            " check it against a baseline"
        )
    if suite.reported is None:
        return f"suite {suite.name}: names no table of the paper (key reported); check it against a baseline"
    return ""


def _load_table(name: str, suite: Suite, results: Path) -> Table:
    """Return the suite's table with all models that it lists; without numbers if nothing has been run."""
    try:
        options = ReportOptions(names=[name], results=results, claims=False, planned=True)
        return load_report(options).tables[0]
    except Undecided:
        nothing = Evidence("test_accuracy", (), (), len(suite.seeds))
        absent = Cell(n_planned=len(suite.seeds), evidence=nothing)
        columns = tuple(Column(task, task, suite=suite.name) for task in suite.tasks)
        rows = tuple(
            Row(
                model,
                "",
                model,
                tuple(absent if (task, model) in suite.cells else Cell() for task in suite.tasks),
            )
            for model in suite.models
        )
        return Table(suite.name, suite.title, suite.caption, columns, rows)
