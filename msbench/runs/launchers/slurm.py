"""Runs as one array of Slurm jobs: selection, submission and exit code."""

import platform
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path

from msbench.config import RunSpec
from msbench.console import encodable, say
from msbench.errors import ConfigError, ExitCode, explain_unwritable
from msbench.results import files, store
from msbench.results.locks import hold_file
from msbench.runs import reproduce as again
from msbench.runs.launchers import slurm_array, submission
from msbench.runs.launchers.jobs import Job, jobs
from msbench.runs.launchers.ready import ready
from msbench.runs.launchers.slurm_profile import Profile
from msbench.runs.launchers.submission import Element, Submission
from msbench.runs.plan import TO_TRAIN, PlannedRun, agenda


@dataclass(frozen=True)
class Order:
    """Settings shared by all runs of a submission.

    `suite_file` is frozen with it, `sets` and `options` are passed on as typed, such as
    ``("--device", "cuda")``.
    """

    suite_file: Path
    sets: tuple[str, ...]
    options: tuple[str, ...]
    results: Path
    data_root: Path
    profile: Profile

    def words(self, entry: PlannedRun, folder: Path) -> tuple[str, ...]:
        """Return the command of one run, after ``msbench``."""
        spec, suite = entry.spec, str(folder / submission.SUITE)
        _, *words = again.words_of(
            "run", suite, spec.model_name, spec.task, [spec.seed], self.sets, self.results.absolute()
        )
        return (*words, *self.options)


@dataclass(frozen=True)
class Handed:
    """Result of a command that submits: its runs as planned, those already busy, and the submission.

    `data` is the exit code of the data set-up.
    """

    entries: list[PlannedRun]
    busy: dict[str, Job]
    made: Submission | None
    data: ExitCode


def planned(specs: Sequence[RunSpec], order: Order, *, fresh: bool = False) -> list[PlannedRun]:
    """Return what is to be done with each of these runs."""
    return agenda(specs, order.results, order.data_root, fresh=fresh)


def hand_over(specs: Sequence[RunSpec], order: Order, *, fresh: bool, quiet: bool) -> Handed:
    """Set up data, and submit the runs to be trained that are not being trained already."""
    _check_paths(order)
    slurm_array.check_commands()
    with alone(order.results):
        entries, provided = ready(specs, order.results, order.data_root, fresh=fresh, quiet=quiet)
        busy = active(order.results, specs[0].suite)
        chosen = to_submit(entries, busy)
        made = submit(chosen, order) if chosen else None
    return Handed(entries, busy, made, provided)


def exit_code(entries: Sequence[PlannedRun], *, waited: bool) -> ExitCode:
    """Return a local run's exit code for runs that have ended; if not `waited`, submitted ones have not."""
    for entry in entries:
        failed = entry.record is not None and not entry.record.finished
        if (
            entry.action == "damaged"
            or (failed and entry.action == "keep")
            or (waited and entry.action != "keep")
        ):
            return ExitCode.RUN_FAILED
    return ExitCode.OK


def active(results: Path, suite: str) -> dict[str, Job]:
    """Return the jobs that may still train a run of this suite, by run id."""
    found, _ = jobs(results, store.read_records(results, suite)[0])
    return {run: job for run, job in found.items() if job.active and job.submission.suite == suite}


def to_submit(entries: Sequence[PlannedRun], busy: dict[str, Job]) -> list[PlannedRun]:
    """Return the runs to be trained that are not being trained already."""
    return [entry for entry in entries if entry.action in TO_TRAIN and entry.run_id not in busy]


def preview(entries: Sequence[PlannedRun], order: Order) -> str:
    """Return the batch script that would be submitted; empty if there is nothing to submit."""
    if not entries:
        return ""
    _check_paths(order)
    folder = submission.folder_of(order.results.absolute(), _name(entries[0].spec.suite))
    return slurm_array.script(folder, len(entries), order.profile, order.data_root)


def _check_paths(order: Order) -> None:
    """Raise ConfigError for paths that are not UTF-8: Slurm takes no other batch script."""
    given = {"--results": str(order.results.absolute()), "MSBENCH_DATA": str(order.data_root)}
    given |= {"Python": sys.executable, **dict(pairwise(order.options))}
    for name, text in given.items():
        if text != encodable(text):
            raise ConfigError(
                f"{name} {text}: a batch script holds no path that is not UTF-8; choose another"
            )


@contextmanager
def alone(results: Path) -> Iterator[None]:
    """Wait until no other command submits from these results: two at once would submit the same runs.

    Raises ConfigError if nothing can be written, or if the path cannot be used in a batch script.
    """
    place = str(results.absolute())
    if "%" in place:
        raise ConfigError(f"--results {results}: Slurm gives '%' in the path of a log another meaning")
    if not place.isprintable():
        raise ConfigError(f"--results {results}: a path in a batch script ends with the line; choose another")
    folder = results / submission.FOLDER

    @cache  # printed once, however long it takes
    def say_waiting() -> None:
        say("waiting for another command that submits from these results")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_file(folder / "submit.lock", "--results", between=say_waiting):
            yield
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{folder}: cannot be used: {reason}; choose another --results") from None


def submit(entries: Sequence[PlannedRun], order: Order) -> Submission:
    """Submit these runs as one array.

    Raises ConfigError, and leaves nothing behind, if they are refused or the folder cannot be written.
    """
    suite = entries[0].spec.suite
    folder = submission.folder_of(order.results.absolute(), _name(suite))
    folder.mkdir(mode=0o700)
    written = Submission(
        name=folder.name,
        suite=suite,
        submitted=datetime.now(UTC).isoformat(timespec="microseconds"),
        host=platform.node(),
        max_requeues=order.profile.max_requeues,
        runs=tuple(_element(entry, order, folder) for entry in entries),
    )
    try:
        files.write_atomically(folder / submission.SUITE, order.suite_file.read_bytes())
        # Before its number is known: if this process is killed in between, its jobs are found by name.
        submission.write(folder, written)
        number = slurm_array.submit(folder, len(entries), order.profile, order.data_root)
    except (ConfigError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    written = written.model_copy(update={"job_id": number})
    try:
        submission.write(folder, written)
    except OSError as error:
        # The jobs exist, and are found by name.
        say(f"msbench: {explain_unwritable(folder / submission.FILE, error, '--results')}")
    return written


def _element(entry: PlannedRun, order: Order, folder: Path) -> Element:
    spec = entry.spec
    return Element(
        run_id=entry.run_id or "",
        task=spec.task,
        model=spec.model_name,
        seed=spec.seed,
        words=order.words(entry, folder),
    )


def _name(suite: str) -> str:
    """Return a unique name for the jobs of one submission."""
    return f"msbench-{suite}-{secrets.token_hex(4)}"
