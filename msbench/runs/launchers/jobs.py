"""States of runs submitted to a cluster, from submissions, records and the queue."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msbench.results.record import RunRecord
from msbench.runs.launchers.slurm_queue import WAITING, WORKING, States, ask
from msbench.runs.launchers.submission import Element, Submission, submissions

State = Literal["pending", "running", "submitted", "stopped"]
"""`submitted` if Slurm cannot be queried, `stopped` if it has no such job and the run no record."""


@dataclass(frozen=True)
class Job:
    """One run that was submitted and has not ended since, according to its record."""

    submission: Submission
    index: int
    state: State

    @property
    def run(self) -> Element:
        """The submitted run."""
        return self.submission.runs[self.index]

    @property
    def active(self) -> bool:
        """True if it may still be trained without further action."""
        return self.state != "stopped"


def jobs(results: Path, records: Iterable[RunRecord]) -> tuple[dict[str, Job], list[str]]:
    """Return the jobs of runs that have not ended, by run id, and warnings; Slurm is queried at most once."""
    known, warnings = submissions(results)
    if not known:
        return {}, warnings
    newest = {
        element.run_id: (submission, index)
        for submission in known
        for index, element in enumerate(submission.runs)
    }
    ended = _Ended(records)
    left = {run: place for run, place in newest.items() if not ended.since(*place)}
    states = ask(sorted({submission.name for submission, _ in left.values()}))
    found = {run: Job(*place, _state(states, *place)) for run, place in left.items()}
    return {run: job for run, job in found.items() if job.active or not ended.otherwise(job)}, warnings


class _Ended:
    """The submitted runs that have ended, according to their records."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._by_id: dict[str, str] = {}
        self._by_name: dict[tuple[str, str, str, int], str] = {}
        for record in records:
            if record.status != "interrupted":  # may be waiting to be resumed
                self._by_id[record.run_id] = record.ended
            name = (record.suite, record.task, record.model, record.seed)
            self._by_name[name] = max(record.ended, self._by_name.get(name, ""))

    def since(self, submission: Submission, index: int) -> bool:
        """Return True if this very run has ended since it was submitted."""
        return self._by_id.get(submission.runs[index].run_id, "") > submission.submitted

    def otherwise(self, job: Job) -> bool:
        """Return True if a run of this name has a newer record: of other source, or interrupted for good."""
        run = job.run
        name = (job.submission.suite, run.task, run.model, run.seed)
        return self._by_name.get(name, "") > job.submission.submitted


def _state(states: States | None, submission: Submission, index: int) -> State:
    if states is None:
        return "submitted"
    state = states.get((submission.name, index), "")
    if state in WAITING:
        return "pending"
    return "running" if state in WORKING else "stopped"


def count(found: Sequence[Job]) -> str:
    """Return the number of jobs in each state, as text."""
    states = [job.state for job in found]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
