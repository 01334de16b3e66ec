"""The command that reproduces a run, verified before it is shown: its plan has the digest of the run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.config import RunSpec
from msbench.config.differences import Change, compare_settings, format_yaml
from msbench.config.layers import Located
from msbench.config.run import LABEL, SECTIONS
from msbench.console import command_line
from msbench.errors import ConfigError
from msbench.results.record import RunRecord
from msbench.runs import suite
from msbench.runs.suite import Suite

RESULTS = Path("results")
"""Default folder of runs, overridden by ``--results``."""
KEPT = "it is kept where it is; --fresh trains it anew"
"""Effect of the command on a completed run."""
Executed = tuple[tuple[str, ...], tuple[str, ...]]
"""Execution of a run: overrides and options that do not change its id, but may change its digits."""


@dataclass(frozen=True)
class Again:
    """The command that reproduces a run.

    `command` has the words of the command line, or none if there is no such command: `reason` then gives the
    cause. `departures` are the settings in which the run differs from its suite's plan.
    """

    command: tuple[str, ...] = ()
    reason: str = ""
    departures: tuple[Change, ...] = ()

    @property
    def line(self) -> str:
        """The command as a shell takes it; empty if there is none."""
        return command_line(self.command)


def again(record: RunRecord, where: str | Path | None = None, results: Path = RESULTS) -> Again:
    """Return the command for the settings of `record`; `where` is its suite's file, if not found by name."""
    name = str(where or record.suite)
    return _again(_load(name) if where else _named(name), name, record, results)


class Commands:
    """Commands that reproduce many records: each suite is read once.

    `typed` are names and files of suites as a user gave them; the commands use them for these suites.
    """

    def __init__(self, typed: Iterable[str] = ()) -> None:
        self._suites: dict[str, tuple[str, Suite | ConfigError]] = {}
        for name in typed:
            found = _load(name)
            # A name may be that of a table of the paper, which is not a suite.
            if isinstance(found, Suite):
                self._suites[found.name] = (name, found)

    def __call__(self, record: RunRecord) -> Again:
        """Return the command, or the reason why there is none."""
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
    """Load the suite that a record names; the name may be any text, and an invalid one opens no file."""
    return _load(name) if LABEL.fullmatch(name) else ConfigError(f"{name!r} is no suite's name")


def _again(found: Suite | ConfigError, name: str, record: RunRecord, results: Path) -> Again:
    if isinstance(found, ConfigError):
        return Again(reason=_unknown(record, found, name))
    try:
        planned = _plan(found, record)
    except ConfigError as error:
        return Again(reason=_unknown(record, error, name))
    differing = compare_settings(record_spec(planned), record.spec)
    departures = tuple(change for change in differing if not _label(change))
    overrides = [f"{change.name}={format_yaml(change.now)}" for change in departures if change.sides[1]]
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
    """Return the overrides and options with which a run of this environment was executed."""
    pieces = environment.get("micro_batch")
    overrides = () if pieces is None else (f"train.micro_batch={format_yaml(pieces)}",)
    return overrides, tuple(_options(environment))


def _options(environment: Mapping[str, Any]) -> Iterator[str]:
    if (devices := environment.get("devices", 1)) != 1:
        yield from ("--devices", str(devices))
    if environment.get("threads_given") is True:
        yield from ("--threads", str(environment.get("threads")))
    if environment.get("deterministic") is True:
        yield "--deterministic"


def _plan(found: Suite, record: RunRecord, overrides: Sequence[str] = ()) -> RunSpec:
    """Return the suite's spec for task, model and seed of a record."""
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
    """Return the words of a command for a model on a task of the suite `name`, or of the file `name`."""
    words = ["msbench", verb, name, "--model", model, "--task", task]
    words += [word for seed in seeds for word in ("--seed", str(seed))]
    words += [word for text in overrides for word in ("--set", text)]
    return (*words, *(() if results == RESULTS else ("--results", str(results))))


def resolved(record: RunRecord) -> RunSpec:
    """Resolve the run's settings with the present code; ConfigError if they are no longer valid."""
    return RunSpec.resolve(Located(record.spec, {}, f"run {record.run_id}"))


def record_spec(spec: RunSpec) -> dict[str, object]:
    """Return a spec as records hold it."""
    return spec.model_dump(mode="json")


def _label(change: Change) -> bool:
    return change.name.split(".")[0] not in SECTIONS


def _unknown(record: RunRecord, error: ConfigError, name: str) -> str:
    another = f"; where suite {record.suite!r} has another file, name it with --suite FILE"
    return f"{error}{another if name == record.suite else ''}"


def _not_these(made: RunSpec, record: RunRecord) -> str:
    left = compare_settings(record.spec, record_spec(made))
    named = ", ".join(str(change) for change in left if not _label(change))
    return f"no --set gives these settings now: {named or 'they were described in another way then'}"
