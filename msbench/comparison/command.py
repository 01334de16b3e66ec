"""The command that makes a run again, tried before it is shown: its plan has the digest of the run."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from msbench import changes, suite
from msbench.changes import Change
from msbench.config import Located
from msbench.errors import ConfigError
from msbench.specs import RunSpec
from msbench.specs.run import SECTIONS
from msbench.store import RunRecord

RESULTS = Path("results")
"""Where runs are kept unless ``--results`` says otherwise."""


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
        return shlex.join(self.command)


def again(record: RunRecord, where: str | Path | None = None, results: Path = RESULTS) -> Again:
    """The command for the settings of `record`; `where` is its suite's file, if its name does not find it."""
    name = str(where or record.suite)
    try:
        found = suite.load(name)
        planned = suite.plan(found, [record.model], [record.task], [record.seed])[0]
    except ConfigError as error:
        return Again(reason=_unknown(record, error, where))
    departures = tuple(
        change for change in changes.settings(record_spec(planned), record.spec) if not _label(change)
    )
    overrides = [f"{change.name}={changes.spelled(change.now)}" for change in departures if change.sides[1]]
    try:
        made = suite.plan(found, [record.model], [record.task], [record.seed], overrides)[0]
    except ConfigError as error:
        return Again(reason=f"these settings cannot be asked for now: {error}", departures=departures)
    if made.digest != record.spec_digest:
        return Again(reason=_not_these(made, record), departures=departures)
    words = words_of("run", name, record.model, record.task, [record.seed], overrides, results)
    return Again(words, "", departures)


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


def _unknown(record: RunRecord, error: ConfigError, where: str | Path | None) -> str:
    hint = "" if where else f"; where suite {record.suite!r} has another file, name it with --suite FILE"
    return f"{error}{hint}"


def _not_these(made: RunSpec, record: RunRecord) -> str:
    left = changes.settings(record.spec, record_spec(made))
    named = ", ".join(str(change) for change in left if not _label(change))
    return f"no --set gives these settings now: {named or 'they were described in another way then'}"
