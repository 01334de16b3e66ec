"""Runs in parallel on this machine: a process each, so that none shares threads, memory or signals.

Their outcome is read from the records that they wrote.
"""

import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import ExitCode, Interrupted
from msbench.runs import reproduce as again
from msbench.runs import suite
from msbench.runs.launchers.crowd import Crowd, Slot, noted, worst
from msbench.runs.launchers.devices import python
from msbench.runs.launchers.outcome import RunOutcome
from msbench.runs.launchers.ready import ready
from msbench.runs.plan import TO_TRAIN, PlannedRun, agenda
from msbench.runs.progress import name_of


@dataclass(frozen=True)
class Work:
    """Settings shared by all runs: the suite by name or path, overrides and options as typed."""

    suite: str
    sets: Sequence[str]
    options: Sequence[str]
    results: Path
    data_root: Path
    fresh: bool
    quiet: bool

    def command(self, entry: PlannedRun, suite_file: Path, *, later: bool) -> list[str]:
        """Return the command that trains one run; if `later`, one that another process has trained counts."""
        spec, where, results = entry.spec, str(suite_file), self.results.absolute()
        _, *words = again.words_of("run", where, spec.model_name, spec.task, [spec.seed], self.sets, results)
        more = [
            option
            for option, on in {"--fresh": self.fresh and not later, "--quiet": self.quiet}.items()
            if on
        ]
        return [*python(), "-m", "msbench", *words, *self.options, *more]


def run_beside(specs: Sequence[RunSpec], work: Work, places: Sequence[Slot]) -> RunOutcome:
    """Train missing runs, as many at a time as there are places; otherwise as `run_here`.

    Raises Interrupted, once all have saved and ended, if a signal has arrived: then nothing more starts.
    """
    # Edits in the hours that this takes change no waiting run.
    frozen = Path(suite.load(work.suite).source.name).read_bytes()
    entries, code = ready(specs, work.results, work.data_root, fresh=work.fresh, quiet=work.quiet)
    if wanted := [entry for entry in entries if entry.action in TO_TRAIN]:
        with tempfile.TemporaryDirectory(prefix="msbench-") as folder:
            file = Path(folder) / "suite.yaml"
            file.write_bytes(frozen)
            code = code or _train(wanted, work, file, places)
    return _outcome(agenda(specs, work.results, work.data_root), code)


def _train(entries: Sequence[PlannedRun], work: Work, suite_file: Path, places: Sequence[Slot]) -> ExitCode:
    """Train these runs; return the exit code of failures that no record shows."""
    codes: list[int] = []

    def told(index: int, code: int) -> None:
        codes.append(code)
        name = name_of(entries[index].spec)
        if code < 0 and not received:  # a signal that was passed on may arrive after everything is saved
            killer = signal.Signals(-code).name
            say(f"{name}: ended by {killer}; the same command goes on from its checkpoint")
        elif not work.quiet:
            say(f"{name}: ended, {len(codes)} of {len(entries)}")

    def command(index: int, later: bool) -> list[str]:
        return work.command(entries[index], suite_file, later=later)

    with noted() as received:
        Crowd(len(entries), command, places, told).work(received)
    if received:
        raise Interrupted(received[0])
    return worst(codes)


def _outcome(entries: Sequence[PlannedRun], code: ExitCode) -> RunOutcome:
    outcome = RunOutcome([entry.record for entry in entries if entry.record is not None], code=code)
    for entry in entries:
        if entry.action == "damaged":
            say(f"msbench: {entry.reason}")
            outcome.damaged += 1
        elif entry.record is None and entry.action in TO_TRAIN:
            say(f"{name_of(entry.spec)}: left no record of run {entry.run_id}; the same command goes on")
            outcome.code = outcome.code or ExitCode.RUN_FAILED
    return outcome
