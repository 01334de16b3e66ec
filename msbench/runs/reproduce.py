"""The command that makes a run again, tried before it is shown: its plan has the digest of the run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.config import RunSpec
from msbench.config import differences as changes
from msbench.config.differences import Change
from msbench.config.layers import Located
from msbench.config.run import LABEL, SECTIONS
from msbench.console import command_line
from msbench.errors import ConfigError
from msbench.results.store import RunRecord
from msbench.runs import suite
from msbench.runs.suite import Suite

RESULTS = Path("results")
"""Where runs are kept unless ``--results`` says otherwise."""
KEPT = "it is kept where it is; --fresh trains it anew"
"""What the command does of a run that has ended."""
Executed = tuple[tuple[str, ...], tuple[str, ...]]
"""How a run was executed: overrides and options that are no part of its id, but of its digits."""


@dataclass(frozen=True)
class Again:
    """How a run is made again.

    `command` has the words of the command line, or none where there is no such command: `reason` then says
    why. `departures` are the settings in which the run is not as its suite plans it.
    """

    command: tuple[str, ...] = ()
    reason: str = ""
    departures: tuple[Change, ...] = ()

    @property
    def line(self) -> str:
        """The command as a shell takes it; empty where there is none."""
        return command_line(self.command)


def again(record: RunRecord, where: str | Path | None = None, results: Path = RESULTS) -> Again:
    """The command for the settings of `record`; `where` is its suite's file, if its name does not find it."""
    name = str(where or record.suite)
    return _again(_load(name) if where else _named(name), name, record, results)


class Commands:
    """Record -> how it is made again, for many of them: each suite is read once.

    `typed` are names and files of suites as a user gave them, which is how the commands call these suites.
    """

    def __init__(self, typed: Iterable[str] = ()) -> None:
        self._suites: dict[str, tuple[str, Suite | ConfigError]] = {}
        for name in typed:
            found = _load(name)
            # A name may be that of a table of the paper, which is no suite.
            if isinstance(found, Suite):
                self._suites[found.name] = (name, found)

    def __call__(self, record: RunRecord) -> Again:
        """The command, or why there is none."""
        if record.suite not in self._suites:
            self._suites[record.suite] = (record.suite, _named(record.suite))
        name, found = self._suites[record.suite]
        return _again(found, name, record, RESULTS)


def _load(name: str) -> Suite | ConfigError:
    try:
        return suite.load(name)
    except ConfigError as error:
        return error


def _named(name: str) -> Suite | ConfigError:
    """The suite that a record names; it may hold anything, and no file is opened for that."""
    return _load(name) if LABEL.fullmatch(name) else ConfigError(f"{name!r} is no suite's name")


def _again(found: Suite | ConfigError, name: str, record: RunRecord, results: Path) -> Again:
    if isinstance(found, ConfigError):
        return Again(reason=_unknown(record, found, name))
    try:
        planned = _plan(found, record)
    except ConfigError as error:
        return Again(reason=_unknown(record, error, name))
    differing = changes.settings(record_spec(planned), record.spec)
    departures = tuple(change for change in differing if not _label(change))
    overrides = [f"{change.name}={changes.spelled(change.now)}" for change in departures if change.sides[1]]
    pieces, options = how(record.environment)
    overrides += pieces
    try:
        made = _plan(found, record, overrides)
    except ConfigError as error:
        return Again(reason=f"these settings cannot be asked for now: {error}", departures=departures)
    if made.digest != record.spec_digest:
        return Again(reason=_not_these(made, record), departures=departures)
    words = words_of("run", name, record.model, record.task, [record.seed], overrides, results)
    return Again((*words, *options), "", departures)


def how(environment: Mapping[str, Any]) -> Executed:
    """How a run with this environment was executed."""
    pieces = environment.get("micro_batch")
    overrides = () if pieces is None else (f"train.micro_batch={changes.spelled(pieces)}",)
    return overrides, tuple(_options(environment))


def _options(environment: Mapping[str, Any]) -> Iterator[str]:
    if (devices := environment.get("devices", 1)) != 1:
        yield from ("--devices", str(devices))
    if environment.get("threads_given") is True:
        yield from ("--threads", str(environment.get("threads")))
    if environment.get("deterministic") is True:
        yield "--deterministic"


def _plan(found: Suite, record: RunRecord, overrides: Sequence[str] = ()) -> RunSpec:
    """What the suite plans for task, model and seed of a record."""
    listed = found.planned.get((record.task, record.model))
    if listed is not None and not overrides:
        return listed.model_copy(update={"seed": record.seed})
    return suite.plan(found, [record.model], [record.task], [record.seed], overrides)[0]


def words_of(
    verb: str,
    name: str,
    model: str,
    task: str,
    seeds: Iterable[int],
    overrides: Iterable[str] = (),
    results: Path = RESULTS,
) -> tuple[str, ...]:
    """The words of a command for a model on a task of the suite that is called `name`, or is in this file."""
    words = ["msbench", verb, name, "--model", model, "--task", task]
    words += [word for seed in seeds for word in ("--seed", str(seed))]
    words += [word for text in overrides for word in ("--set", text)]
    return (*words, *(() if results == RESULTS else ("--results", str(results))))


def resolved(record: RunRecord) -> RunSpec:
    """The run's settings as they are understood now; ConfigError where they no longer are."""
    return RunSpec.resolve(Located(record.spec, {}, f"run {record.run_id}"))


def record_spec(spec: RunSpec) -> dict[str, object]:
    """A spec as records have it."""
    return spec.model_dump(mode="json")


def _label(change: Change) -> bool:
    return change.name.split(".")[0] not in SECTIONS


def _unknown(record: RunRecord, error: ConfigError, name: str) -> str:
    another = f"; where suite {record.suite!r} has another file, name it with --suite FILE"
    return f"{error}{another if name == record.suite else ''}"


def _not_these(made: RunSpec, record: RunRecord) -> str:
    left = changes.settings(record.spec, record_spec(made))
    named = ", ".join(str(change) for change in left if not _label(change))
    return f"no --set gives these settings now: {named or 'they were described in another way then'}"
