"""Checks of suites against a reference, with their verdicts."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench import console
from msbench.config.layers import load_yaml
from msbench.errors import ConfigError, MsbenchError, Undecided, UnknownName, suggest_name
from msbench.gate import baseline_file, words
from msbench.gate.baselines import find_baseline, hidden_baselines
from msbench.gate.expectations import (
    Answer,
    BaselineExpectations,
    Expectations,
    NoExpectations,
    PaperExpectations,
    Question,
)
from msbench.gate.judged import Judged, judged, judgements
from msbench.reporting.tables.cells import Cell, Column, Evidence, Row, Table
from msbench.reporting.tables.load import ReportOptions, load_report
from msbench.results import store
from msbench.runs import suite
from msbench.runs.suite import Suite

REFERENCES = ("paper", "baseline")


@dataclass(frozen=True)
class Checked:
    """The verdicts on one suite, or the `problem` that prevented them.

    `against` names the reference; `warnings` are about the reference.
    """

    suite: str
    against: str
    cells: tuple[Judged, ...] = ()
    warnings: tuple[str, ...] = ()
    problem: MsbenchError | None = None

    @property
    def stale(self) -> tuple[str, ...]:
        """Return a line for each cell whose results are of other source code than the present one."""
        return tuple(words.stale(cell) for cell in self.cells if cell.stale)


def check(names: Sequence[str], against: str, results: Path) -> list[Checked]:
    """Return the verdicts on these suites (names or files), or on all with a run or baseline in `results`.

    `against` is ``paper``, ``baseline`` or the path of a baseline file. A suite that cannot be read or
    compared has a problem in place of verdicts: a gate must not pass because of what it left out. Raises
    ConfigError for another `against`, and Undecided if there is no suite to check.
    """
    check_reference(against)
    if not names and against not in REFERENCES:
        names = [baseline_file.suite_name(load_yaml(_file(against)))]
    asked = list(dict.fromkeys(names)) or _names_in(results, against)
    found = [_check(name, against, results, asked=bool(names)) for name in asked]
    checked = _distinct([each for each in found if each is not None])
    if not checked:
        raise Undecided(
            f"{results}: no run of a suite that can be held against {against}; nothing was checked"
        )
    return [one for _, one in checked]


def _check(name: str, against: str, results: Path, *, asked: bool) -> tuple[Suite | None, Checked] | None:
    """Return a suite with its verdicts; None if it was not `asked` for and the paper does not cover it."""
    try:
        chosen = suite.load(name)
    except ConfigError as error:
        absent = not asked and name not in suite.names()
        return None, Checked(
            name, against, problem=_no_suite(name, results) if absent else _hinted(error, name)
        )
    if not asked and against == "paper" and (reason := _not_the_papers(chosen)) is not None:
        console.say(f"msbench: passed over: {reason}")
        return None
    try:
        expectations, told = expectations_of(chosen, against, results)
        table = judged(_table(name, chosen, results), expectations)
    except ConfigError as error:
        return chosen, Checked(chosen.name, against, problem=error)
    cells = tuple(cell for cell in judgements(table) if cell.suite == chosen.name)
    warnings = tuple(hidden_baselines(chosen, results)) if against == "baseline" else ()
    return chosen, Checked(chosen.name, told, cells, warnings)


def _hinted(error: ConfigError, name: str) -> ConfigError:
    """Add a hint to the error for a suite whose name is a value of ``--against``."""
    option = f"; what results are held against is an option: --against {name}"
    return ConfigError(f"{error}{option}") if name in REFERENCES else error


def _no_suite(name: str, results: Path) -> Undecided:
    """Return the problem of results or a baseline that belong to no suite."""
    renamed = Path("suites") / f"{name}.yml"
    hint = f"; is it {renamed}? Suites end in .yaml" if renamed.is_file() else ""
    return Undecided(
        f"{results / name}: no suite of this name here; name its file to check it, or move these results"
        f" away{hint}"
    )


def _distinct(checked: Sequence[tuple[Suite | None, Checked]]) -> list[tuple[Suite | None, Checked]]:
    """Return each suite once; ConfigError if two have the same name."""
    found: dict[str, tuple[Suite | None, Checked]] = {}
    for chosen, one in checked:
        if found.setdefault(one.suite, (chosen, one))[0] != chosen:
            raise ConfigError(f"two suites are called {one.suite}; check them one by one")
    return list(found.values())


def _names_in(results: Path, against: str) -> list[str]:
    """Return the suites with something to check here: runs, a baseline, or an unreadable folder."""
    listing = store.list_suites_with_runs(results)
    names = [folder.name for folder in listing.folders]
    for path, line in zip(listing.unreadable, listing.warnings, strict=True):
        if path == results:
            raise ConfigError(line)
        names.append(path.relative_to(results).parts[0])
    if against == "baseline":
        names += [path.stem for path in (results / "baseline").glob("*.yaml")]
    return sorted(set(names))


def verdicts(names: Sequence[str], against: str, results: Path) -> Callable[[Table], Table]:
    """Return a function that fills the verdicts into a table whose columns may be of several suites.

    `names` are the names or files of the requested tables; suites known only by their file are found by them.
    Unlike in `check`, cells of a suite that cannot be compared with the reference stay without a verdict.
    """
    references = _References(against, results, _by_name(names))
    return lambda table: judged(table, references)


class _References:
    """The expectations of every requested suite, looked up once."""

    def __init__(self, against: str, results: Path, suites: Mapping[str, Suite]) -> None:
        self.against, self.results, self.suites = against, results, suites
        self.only = None if against in REFERENCES else baseline_file.suite_name(load_yaml(_file(against)))
        self.found: dict[str, Expectations | None] = {}

    def of(self, cell: Question) -> Answer:
        """Return the expectation of the cell's suite for it."""
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
    """Return the suites among names of tables, by their own name."""
    found = {}
    for name in names:
        # Other names are tables of the paper, or rejected when the tables are loaded.
        with contextlib.suppress(UnknownName):
            chosen = suite.load(name)
            found[chosen.name] = chosen
    return found


def check_reference(against: str) -> None:
    """Raise ConfigError for an invalid reference."""
    if against not in REFERENCES:
        _file(against)


def expectations_of(chosen: Suite, against: str, results: Path) -> tuple[Expectations, str]:
    """Return the expectations for a suite's cells, and the name of their source."""
    if against == "paper":
        if (problem := _not_the_papers(chosen)) is not None:
            raise ConfigError(problem)
        return PaperExpectations(chosen.gate), "the paper"
    path = find_baseline(results, chosen.name) if against == "baseline" else _file(against)
    if path is None:
        return NoExpectations(chosen.name, chosen.models), "no baseline"
    baseline = baseline_file.parsed(load_yaml(path), chosen)
    return BaselineExpectations(chosen.gate, chosen.models, baseline, str(path)), str(path)


def with_runs(results: Path) -> list[Suite]:
    """Return the suites that have a run here; for other folders a warning is printed."""
    found = []
    for folder in store.list_suites_with_runs(results).folders:
        try:
            found.append(suite.load(folder.name))
        except ConfigError as error:
            console.say(f"msbench: passed over {folder}: {error}")
    return found


def _not_the_papers(chosen: Suite) -> str | None:
    """Return why a suite cannot be compared with the paper; None if it can."""
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
    near = suggest_name(text, REFERENCES)
    raise ConfigError(
        f"--against {text}: no such file{near}; must be paper, baseline, or a file of 'msbench baseline'"
    )


def _table(name: str, chosen: Suite, results: Path) -> Table:
    """Return the suite's table; without numbers if nothing has been run."""
    try:
        return load_report(ReportOptions(names=[name], results=results, claims=False)).tables[0]
    except Undecided:
        nothing = Evidence("test_accuracy", (), (), len(chosen.seeds))
        cells = tuple(Cell(n_planned=len(chosen.seeds), evidence=nothing) for _ in chosen.tasks)
        columns = tuple(Column(task, task, suite=chosen.name) for task in chosen.tasks)
        rows = tuple(Row(model, "", model, cells) for model in chosen.models)
        return Table(chosen.name, chosen.title, chosen.caption, columns, rows)
