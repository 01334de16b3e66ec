"""Submissions to a cluster: one small file each, next to the results.

::

    results/.slurm/<name>/          named as its jobs are; only its owner can read or write it
        submission.json             its runs, in the order of the array; written before they are submitted
        suite.yaml                  the suite as it was then: later edits change no waiting run
        <job>_submission.sh         the batch script
        <job>_<element>_0_log.out   the output of a run
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msbench.errors import ConfigError
from msbench.results import files
from msbench.results.files import read_bytes
from msbench.results.record import RunId

FOLDER = ".slurm"
FILE = "submission.json"
SUITE = "suite.yaml"


class Element(BaseModel):
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
    runs: tuple[Element, ...]
    job_id: str | None = None

    def job(self, index: int) -> str:
        """Return the id of one element, as Slurm's commands take it."""
        return f"{self.job_id or '?'}_{index}"


def folder_of(results: Path, name: str) -> Path:
    """Return the folder of the submission of this name."""
    return results / FOLDER / name


def write(folder: Path, submission: Submission) -> None:
    """Write ``submission.json`` atomically."""
    text = json.dumps(submission.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    files.write_atomically(folder / FILE, (text + "\n").encode())


def read(path: Path) -> Submission:
    """Read the submission in this file; ConfigError if it cannot be read or is not one."""
    try:
        return Submission.model_validate_json(read_bytes(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(map(str, detail["loc"])) or "the file"
        raise ConfigError(f"{path}: not a submission: {key}: {detail['msg']}; delete its folder") from None


def submissions(results: Path) -> tuple[list[Submission], list[str]]:
    """Return all submissions, oldest first, and a warning for each that could not be read.

    Those of other users, which nobody else may read, are skipped.
    """
    found: list[Submission] = []
    warnings: list[str] = []
    for path in _files(results / FOLDER):
        try:
            found.append(read(path))
        except ConfigError as error:
            warnings.append(str(error))
    return sorted(found, key=lambda each: (each.submitted, each.name)), warnings


def _files(folder: Path) -> Sequence[Path]:
    try:
        return sorted(path for path in folder.glob(f"*/{FILE}") if path.is_file())
    except PermissionError:
        return ()
    except OSError as error:  # otherwise runs that wait in the queue would be submitted once more
        raise ConfigError(f"{folder}: cannot be read: {error.strerror}; choose another --results") from None
