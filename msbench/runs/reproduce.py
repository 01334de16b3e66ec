"""The command that reproduces a run, verified before it is shown: its plan has the digest of the run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msbench.config import RunSpec
from msbench.config.differences import Change, compare_settings, format_yaml
from msbench.config.layers import LocatedValues
from msbench.config.run import EXECUTION_OPTIONS, LABEL, SECTIONS
from msbench.console import command_line
from msbench.errors import ConfigError
from msbench.results.record import RunRecord
from msbench.runs.suite import Suite, load_suite, resolve_specs

RESULTS = Path("results")
"""Default folder of runs, overridden by ``--results``."""
KEPT = "it is kept where it is; --fresh trains it anew"
"""Effect of the command on a completed run."""
ExecutionOptions = tuple[tuple[str, ...], tuple[str, ...]]
"""Execution of a run: overrides and options that do not change its id, but may change its digits."""


@dataclass(frozen=True)
class Reproduction:
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


def build_reproduction(
    record: RunRecord, where: str | Path | None = None, results: Path = RESULTS
) -> Reproduction:
    """Return the command for the settings of `record`; `where` is its suite's file, if not found by name."""
    name = str(where or record.suite)
    return _find_command(_try_load(name) if where else _load_named(name), name, record, results)


class ReproductionBuilder:
    """Commands that reproduce many records: each suite is read once.

    `typed` are names and files of suites as a user gave them; the commands use them for these suites.
    """

    def __init__(self, typed: Iterable[str] = ()) -> None:
        self._suites: dict[str, tuple[str, Suite | ConfigError]] = {}
        for name in typed:
            found = _try_load(name)
            # A name may be that of a table of the paper, which is not a suite.
            if isinstance(found, Suite):
                self._suites[found.name] = (name, found)

    def __call__(self, record: RunRecord) -> Reproduction:
        """Return the command, or the reason why there is none."""
        name, found = self._find_suite(record)
        return _find_command(found, name, record, RESULTS)

    def find_planned(self, record: RunRecord) -> RunSpec | None:
        """Return the suite's spec for task, model and seed of a record; None without a suite that has one."""
        _, found = self._find_suite(record)
        if isinstance(found, Suite):
            with suppress(ConfigError):
                return _resolve_as_recorded(found, record)
        return None

    def _find_suite(self, record: RunRecord) -> tuple[str, Suite | ConfigError]:
        """Return the name for commands and the suite, or why it cannot be read."""
        if record.suite not in self._suites:
            self._suites[record.suite] = (record.suite, _load_named(record.suite))
        return self._suites[record.suite]


def _try_load(name: str) -> Suite | ConfigError:
    try:
        return load_suite(name)
    except ConfigError as error:
        return error


def _load_named(name: str) -> Suite | ConfigError:
    """Load the suite that a record names; the name may be any text, and an invalid one opens no file."""
    return _try_load(name) if LABEL.fullmatch(name) else ConfigError(f"{name!r} is no suite's name")


def _find_command(found: Suite | ConfigError, name: str, record: RunRecord, results: Path) -> Reproduction:
    if isinstance(found, ConfigError):
        return Reproduction(reason=_explain_error(record, found, name))
    try:
        planned = _resolve_as_recorded(found, record)
    except ConfigError as error:
        return Reproduction(reason=_explain_error(record, error, name))
    differing = compare_settings(dump_spec(planned), record.spec)
    departures = tuple(change for change in differing if not _is_label(change))
    overrides = [f"{change.name}={format_yaml(change.now)}" for change in departures if change.sides[1]]
    pieces, options = list_execution_options(record.environment)
    overrides += pieces
    try:
        made = _resolve_as_recorded(found, record, overrides)
    except ConfigError as error:
        return Reproduction(reason=f"these settings are not valid now: {error}", departures=departures)
    if made.digest != record.spec_digest:
        return Reproduction(reason=_explain_difference(made, record), departures=departures)
    words = build_command(
        "run",
        name,
        model=record.model,
        task=record.task,
        seeds=[record.seed],
        overrides=overrides,
        results=results,
    )
    return Reproduction((*words, *options), "", departures)


def list_execution_options(environment: Mapping[str, Any]) -> ExecutionOptions:
    """Return the overrides and options with which a run of this environment was executed."""
    given = {name: environment[name] for name in EXECUTION_OPTIONS if environment.get(name) is not None}
    overrides = tuple(f"train.{name}={format_yaml(value)}" for name, value in given.items())
    return overrides, tuple(_list_flags(environment))


def _list_flags(environment: Mapping[str, Any]) -> Iterator[str]:
    if (devices := environment.get("devices", 1)) != 1:
        yield from ("--devices", str(devices))
    if environment.get("threads_given") is True:
        yield from ("--threads", str(environment.get("threads")))
    if environment.get("deterministic") is True:
        yield "--deterministic"


def _resolve_as_recorded(found: Suite, record: RunRecord, overrides: Sequence[str] = ()) -> RunSpec:
    """Return the suite's spec for task, model and seed of a record."""
    listed = found.planned.get((record.task, record.model))
    if listed is not None and not overrides:
        return listed.model_copy(update={"seed": record.seed})
    return resolve_specs(found, [record.model], [record.task], [record.seed], overrides)[0]


def build_command(
    verb: str,
    suite: str,
    *,
    model: str,
    task: str,
    seeds: Iterable[int],
    overrides: Iterable[str] = (),
    results: Path = RESULTS,
) -> tuple[str, ...]:
    """Return the words of a command for a model on a task of a suite, given by name or file."""
    words = ["msbench", verb, suite, "--model", model, "--task", task]
    words += [word for seed in seeds for word in ("--seed", str(seed))]
    words += [word for text in overrides for word in ("--set", text)]
    return (*words, *(() if results == RESULTS else ("--results", str(results))))


def resolve_record(record: RunRecord) -> RunSpec:
    """Resolve the run's settings with the present code; ConfigError if they are no longer valid.

    The code of a user's own model or dataset is looked for where the run had it, or else in this folder.
    """
    values = dict(record.spec)
    for section, place in (record.environment.get("own_code") or {}).items():
        if Path(str(place).rpartition(":")[0]).exists():
            values[section] = {**values[section], "use": place}
    return RunSpec.resolve(LocatedValues(values, {}, f"run {record.run_id}"))


def dump_spec(spec: RunSpec) -> dict[str, object]:
    """Return a spec as records hold it."""
    return spec.model_dump(mode="json")


def _is_label(change: Change) -> bool:
    return change.name.split(".")[0] not in SECTIONS


def _explain_error(record: RunRecord, error: ConfigError, name: str) -> str:
    another = f"; where suite {record.suite!r} has another file, name it with --suite FILE"
    return f"{error}{another if name == record.suite else ''}"


def _explain_difference(made: RunSpec, record: RunRecord) -> str:
    left = compare_settings(record.spec, dump_spec(made))
    named = ", ".join(str(change) for change in left if not _is_label(change))
    return f"no --set gives these settings now: {named or 'the form of the settings has changed'}"
