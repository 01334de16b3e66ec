"""Runs submitted to Slurm: one small file per submission, next to the results, and the states of their jobs.

::

    results/.slurm/<name>/          named as its jobs are; only its owner can read or write it
        submission.json             its runs, in the order of the array; written before they are submitted
        suite.yaml                  the suite as it was then: later edits change no waiting run
        <job>_submission.sh         the batch script
        <job>_<element>_0_log.out   the output of a run
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msbench.config.messages import describe_first_fault
from msbench.errors import ConfigError
from msbench.results.files import list_lines, read_bytes, write_atomically
from msbench.results.record import RunId, RunRecord

FOLDER = ".slurm"
FILE = "submission.json"
SUITE = "suite.yaml"
QUERY_SECONDS = 5.0
"""Timeout of a query: without a reachable controller, squeue tries for minutes."""
PENDING = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
RUNNING = frozenset({"RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SUSPENDED"})
State = Literal["pending", "running", "submitted", "stopped"]
"""`submitted` if Slurm cannot be queried, `stopped` if it has no such job and the run no record."""


class SubmittedRun(BaseModel):
    """One run of an array; `words` are the arguments of its command, after ``msbench``."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: RunId
    task: str
    model: str
    seed: int
    words: tuple[str, ...]


class Submission(BaseModel):
    """One array of jobs. `job_id` is absent if the process died between writing this and receiving it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, Field(pattern=r"^msbench-[a-z0-9._-]+$")]
    suite: str
    submitted: str
    host: str
    max_requeues: int
    runs: tuple[SubmittedRun, ...]
    job_id: str | None = None

    def get_job_id(self, index: int) -> str:
        """Return the id of one element, as Slurm's commands take it."""
        return f"{self.job_id or '?'}_{index}"


@dataclass(frozen=True)
class Job:
    """One run that was submitted and has not ended since, according to its record."""

    submission: Submission
    index: int
    state: State

    @property
    def run(self) -> SubmittedRun:
        """The submitted run."""
        return self.submission.runs[self.index]

    @property
    def active(self) -> bool:
        """True if it may still be trained without further action."""
        return self.state != "stopped"


def locate_submission(results: Path, name: str) -> Path:
    """Return the folder of the submission of this name."""
    return results / FOLDER / name


def write_submission(folder: Path, submission: Submission) -> None:
    """Write ``submission.json`` atomically."""
    text = json.dumps(submission.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    write_atomically(folder / FILE, (text + "\n").encode())


def read_submission(path: Path) -> Submission:
    """Read the submission in this file; ConfigError if it cannot be read or is not one."""
    try:
        return Submission.model_validate_json(read_bytes(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = describe_first_fault(error)
        raise ConfigError(f"{path}: not a submission: {fault}; delete its folder") from None


def list_submissions(results: Path) -> tuple[list[Submission], list[str]]:
    """Return all submissions, oldest first, and a warning for each that could not be read.

    Those of other users, which nobody else may read, are skipped.
    """
    folder = results / FOLDER
    found: list[Submission] = []
    warnings: list[str] = []
    try:
        files = sorted(path for path in folder.glob(f"*/{FILE}") if path.is_file())
    except PermissionError:
        files = []
    except OSError as error:  # otherwise runs that wait in the queue would be submitted once more
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}; choose another --results") from None
    for path in files:
        try:
            found.append(read_submission(path))
        except ConfigError as error:
            warnings.append(str(error))
    return sorted(found, key=lambda each: (each.submitted, each.name)), warnings


def find_jobs(results: Path, records: Iterable[RunRecord]) -> tuple[dict[str, Job], list[str]]:
    """Return the jobs of runs that have not ended, by run id, and warnings; Slurm is queried at most once."""
    known, warnings = list_submissions(results)
    if not known:
        return {}, warnings
    newest = {
        run.run_id: (submission, index) for submission in known for index, run in enumerate(submission.runs)
    }
    ended_runs: dict[str, str] = {}
    ended_names: dict[tuple[str, str, str, int], str] = {}
    for record in records:
        if record.status != "interrupted":  # may be waiting to be resumed
            ended_runs[record.run_id] = record.ended
        name = (record.suite, record.task, record.model, record.seed)
        ended_names[name] = max(record.ended, ended_names.get(name, ""))
    left = {
        run_id: (submission, index)
        for run_id, (submission, index) in newest.items()
        if ended_runs.get(run_id, "") <= submission.submitted
    }
    states = query_states(sorted({submission.name for submission, _ in left.values()}))
    jobs = {run_id: Job(*place, _classify(states, *place)) for run_id, place in left.items()}

    def is_replaced(job: Job) -> bool:
        """Return True if a run of this name has a newer record: of other source, or interrupted for good."""
        name = (job.submission.suite, job.run.task, job.run.model, job.run.seed)
        return ended_names.get(name, "") > job.submission.submitted

    return {run_id: job for run_id, job in jobs.items() if job.active or not is_replaced(job)}, warnings


def query_states(names: Sequence[str]) -> dict[tuple[str, int], str] | None:
    """Return Slurm's states of the jobs of these names that it still knows, by name and array element.

    None if Slurm cannot be queried. Jobs are queried by name, not by number: another cluster may have a job
    of the same number.
    """
    if not names:
        return {}
    command = ["squeue", "--noheader", "--array", "--states=all", "--format=%j|%K|%T"]
    # A user's own filters would hide jobs.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SQUEUE_")}
    try:
        done = subprocess.run(
            [*command, f"--name={','.join(names)}"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = {}
    for line in list_lines(done.stdout):
        name, _, rest = line.strip().partition("|")
        index, _, state = rest.partition("|")
        if index.isdecimal() and state:  # else it is not an element of an array
            found[name, int(index)] = state
    return found


def _classify(states: dict[tuple[str, int], str] | None, submission: Submission, index: int) -> State:
    if states is None:
        return "submitted"
    state = states.get((submission.name, index), "")
    if state in PENDING:
        return "pending"
    return "running" if state in RUNNING else "stopped"


def count_states(jobs: Iterable[Job]) -> str:
    """Return the number of jobs in each state, as text."""
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]} {state}" for state in sorted(counts))
