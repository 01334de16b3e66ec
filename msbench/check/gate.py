"""Which suites are checked against what, and what came of it."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench import console, report, store, suite
from msbench.check.baseline import find_baseline
from msbench.check.stale import stale
from msbench.config import load_yaml
from msbench.errors import ConfigError, Undecided, UnknownName, did_you_mean
from msbench.gate import baseline_file
from msbench.gate.expectations import (
    Answer,
    BaselineExpectations,
    Expectations,
    NoExpectations,
    PaperExpectations,
    Question,
)
from msbench.gate.judgement import Evidence
from msbench.report.cells import Table
from msbench.report.judged import Judged, judged, judgements
from msbench.suite import Suite

REFERENCES = ("paper", "baseline")


@dataclass(frozen=True)
class Checked:
    """The verdicts on one suite.

    `against` says in words what it was held against, `stale` which results are of other source code.
    """

    suite: str
    against: str
    cells: tuple[Judged, ...]
    stale: tuple[str, ...] = ()


def check(names: Sequence[str], against: str, results: Path) -> list[Checked]:
    """The verdicts on these suites (names or files), or on every suite that has a run in `results`.

    `against` is ``paper``, ``baseline`` or the path of a baseline file. Raises ConfigError where a suite
    cannot be held against it, and Undecided where there is no suite to check.
    """
    checked = []
    for name, chosen in _chosen(names, against, results):
        expectations, words = expectations_of(chosen, against, results)
        found = _report(name, chosen, results)
        table = judged(found.tables[0], expectations)
        cells = tuple(cell for cell in judgements(table) if cell.suite == chosen.name)
        checked.append(Checked(chosen.name, words, cells, stale(found, table)))
    return checked


def verdicts(names: Sequence[str], against: str, results: Path) -> Callable[[Table], Table]:
    """What fills the verdicts into a table whose columns may be of several suites.

    `names` are those that tables were asked for by; suites that only their files reach are found by them.
    Unlike in `check`, cells of a suite that cannot be held against the reference stay without a verdict.
    """
    references = _References(against, results, _by_name(names))
    return lambda table: judged(table, references)


class _References:
    """The expectations of every suite that is asked for, looked up once."""

    def __init__(self, against: str, results: Path, suites: Mapping[str, Suite]) -> None:
        self.against, self.results, self.suites = against, results, suites
        self.only = None if against in REFERENCES else baseline_file.suite_name(load_yaml(_file(against)))
        self.found: dict[str, Expectations | None] = {}

    def of(self, cell: Question) -> Answer:
        """What the cell's suite says of it."""
        if cell.suite not in self.found:
            self.found[cell.suite] = self._expectations(cell.suite)
        expectations = self.found[cell.suite]
        return expectations.of(cell) if expectations else None

    def _expectations(self, name: str) -> Expectations | None:
        chosen = self.suites.get(name) or suite.load(name)
        problem = _not_the_papers(chosen) if self.against == "paper" else None
        if problem is not None:
            console.say(f"msbench: without verdicts: {problem}")
        if problem is not None or self.only not in (None, name):
            return None
        return expectations_of(chosen, self.against, self.results)[0]


def _by_name(names: Sequence[str]) -> dict[str, Suite]:
    """The suites among names of tables, by their own."""
    found = {}
    for name in names:
        # What is no suite is a table of the paper, or refused by whoever loads the tables.
        with contextlib.suppress(UnknownName):
            chosen = suite.load(name)
            found[chosen.name] = chosen
    return found


def check_reference(against: str) -> None:
    """ConfigError for what results cannot be held against."""
    if against not in REFERENCES:
        _file(against)


def expectations_of(chosen: Suite, against: str, results: Path) -> tuple[Expectations, str]:
    """What the cells of a suite are held against, and that in words."""
    if against == "paper":
        if (problem := _not_the_papers(chosen)) is not None:
            raise ConfigError(problem)
        return PaperExpectations(chosen.gate), "the paper"
    path = find_baseline(results, chosen.name) if against == "baseline" else _file(against)
    if path is None:
        return NoExpectations(chosen.name, chosen.models), "no baseline"
    baseline = baseline_file.parsed(load_yaml(path), chosen)
    return BaselineExpectations(chosen.gate, chosen.models, baseline, str(path)), str(path)


def _chosen(names: Sequence[str], against: str, results: Path) -> list[tuple[str, Suite]]:
    """The suites to check, each once, with the name by which it is reached."""
    if not names and against not in REFERENCES:
        names = [baseline_file.suite_name(load_yaml(_file(against)))]
    if names:
        return _named(names)
    chosen = with_runs(results)
    if against == "paper":
        for each in chosen:
            if (problem := _not_the_papers(each)) is not None:
                console.say(f"msbench: passed over: {problem}")
        chosen = [each for each in chosen if _not_the_papers(each) is None]
    if not chosen:
        raise Undecided(
            f"{results}: no run of a suite that can be held against {against}; nothing was checked"
        )
    return [(each.name, each) for each in chosen]


def _named(names: Sequence[str]) -> list[tuple[str, Suite]]:
    found: dict[str, tuple[str, Suite]] = {}
    for name in names:
        try:
            chosen = suite.load(name)
        except UnknownName as error:
            raise ConfigError(f"{error}{_as_option(name)}") from None
        if found.setdefault(chosen.name, (name, chosen))[1] != chosen:
            raise ConfigError(f"two suites are called {chosen.name}; check them one by one")
    return list(found.values())


def _as_option(name: str) -> str:
    return f"; what results are held against is an option: --against {name}" if name in REFERENCES else ""


def with_runs(results: Path) -> list[Suite]:
    """The suites that have a run here."""
    names = store.suites_with_runs(results)
    known = {each.name: each for each in suite.available(on_error=_passed_over)}
    for name in names:
        if name not in known:
            console.say(f"msbench: {results / name}: no suite of this name here; name its file to check it")
    return [known[name] for name in names if name in known]


def _passed_over(error: ConfigError) -> None:
    console.say(f"msbench: passed over, as it is no suite: {error}")


def _not_the_papers(chosen: Suite) -> str | None:
    """Why a suite cannot be held against the paper."""
    if chosen.protocol != "paper":
        return (
            f"suite {chosen.name}: its protocol is scaled down from the paper's, whose numbers say nothing"
            f" of it; check it against a baseline"
        )
    if chosen.reported is None:
        return f"suite {chosen.name}: names no table of the paper (key reported); check it against a baseline"
    return None


def _file(text: str) -> Path:
    path = Path(text)
    if path.is_file():
        return path
    near = did_you_mean(text, REFERENCES)
    raise ConfigError(
        f"--against {text}: no such file{near}; must be paper, baseline, or a file of 'msbench baseline'"
    )


def _report(name: str, chosen: Suite, results: Path) -> report.Report:
    """The suite's table and its runs; a table without a number where nothing has been run."""
    try:
        return report.load([name], results)
    except Undecided:
        nothing = Evidence("test_accuracy", (), (), len(chosen.seeds))
        cells = tuple(report.Cell(n_planned=len(chosen.seeds), evidence=nothing) for _ in chosen.tasks)
        columns = tuple(report.Column(task, task, suite=chosen.name) for task in chosen.tasks)
        rows = tuple(report.Row(model, "", model, cells) for model in chosen.models)
        table = Table(chosen.name, chosen.title, chosen.caption, columns, rows)
        return report.Report((table,), results, {})
