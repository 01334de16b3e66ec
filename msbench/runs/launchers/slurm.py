"""Runs as one array of Slurm jobs, submitted through submitit without its pickles.

submitit's public interface pickles functions into the folder of the logs, submits a single function as no
array, cannot show a script without submitting it, and ignores SIGTERM in its jobs. So only its header, its
quoting and its call of sbatch are used. The script starts `msbench.cli.array_job`, which reads JSON.
"""

import os
import platform
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from msbench import datasets
from msbench.config import RunSpec
from msbench.console import encodable, say
from msbench.environment import check_device
from msbench.errors import ConfigError, ExitCode, explain_extra, explain_unwritable
from msbench.results import store
from msbench.results.locks import hold_file
from msbench.runs.launchers import RunOptions, container, slurm_jobs
from msbench.runs.launchers.distributed import build_python_command
from msbench.runs.launchers.slurm_jobs import Job, Submission, SubmittedRun
from msbench.runs.launchers.slurm_profile import SlurmProfile, check_devices, load_profile
from msbench.runs.plan import TO_TRAIN, PlannedRun, plan_runs
from msbench.runs.setup import plan_with_data
from msbench.runs.suite import load_suite

POLL = 10.0
"""Seconds between two queries of ``--wait``."""
KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_")
OF_SBATCH = frozenset(
    f"SBATCH_{name}"
    for name in ("ARRAY_INX", "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "REQUEUE", "SIGNAL", "TIMELIMIT", "WAIT")
)
"""A user's defaults for sbatch that would override the script; they are removed, so the script decides."""
OF_A_RANK = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})


@dataclass(frozen=True)
class SubmissionResult:
    """Runs of a command that submits: as planned, those already active in the queue, and the submission.

    `script` is the batch script if it was only previewed; `setup_code` is the exit code of the data set-up.
    """

    entries: list[PlannedRun]
    active: dict[str, Job]
    submission: Submission | None = None
    script: str = ""
    setup_code: ExitCode = ExitCode.OK


def check_jobs(options: RunOptions) -> None:
    """Raise ConfigError for several suites, and for options that would end every job in its first seconds."""
    if len(options.suites) > 1:
        raise ConfigError("--launcher slurm submits the runs of one suite; submit them suite by suite")
    check_device(options.device)
    check_devices(load_profile(options.profile), options.device, options.devices)
    if options.scan is not None:
        # Imported here: nothing else of a submission needs torch.
        from msbench.ops.scan.dispatch import check_kernel_name

        check_kernel_name(options.scan)
    if options.container is not None:
        container.check_engine(options.container)


def preview_submission(specs: Sequence[RunSpec], options: RunOptions) -> SubmissionResult:
    """Return what would be submitted; its script is empty if nothing would be. Changes nothing."""
    entries = plan_runs(specs, options.results, datasets.data_root(), fresh=options.fresh)
    active = find_active_jobs(options.results, specs[0].suite)
    # Runs without data would be set up first, and then be in the array.
    waiting = [entry for entry in entries if entry.action == "set up"]
    count = len(_select(entries, active)) + len(waiting)
    if count == 0:
        return SubmissionResult(entries, active)
    _check_paths(options)
    return SubmissionResult(entries, active, script=_plan_array(options, specs[0].suite, count).script)


def submit_runs(specs: Sequence[RunSpec], options: RunOptions) -> SubmissionResult:
    """Set up data, and submit the runs to be trained that no job is training already."""
    _check_paths(options)
    _check_commands()
    with lock_submissions(options.results):
        entries, code = plan_with_data(specs, options.results, fresh=options.fresh, quiet=options.quiet)
        active = find_active_jobs(options.results, specs[0].suite)
        chosen = _select(entries, active)
        submission = _submit(chosen, options) if chosen else None
    return SubmissionResult(entries, active, submission, setup_code=code)


def choose_exit_code(entries: Sequence[PlannedRun], *, waited: bool) -> ExitCode:
    """Return a local run's exit code for completed runs; submitted ones are completed if `waited`."""
    for entry in entries:
        failed = entry.record is not None and not entry.record.finished
        if (
            entry.action == "damaged"
            or (failed and entry.action == "keep")
            or (waited and entry.action != "keep")
        ):
            return ExitCode.RUN_FAILED
    return ExitCode.OK


def wait_for_jobs(specs: Sequence[RunSpec], options: RunOptions) -> ExitCode:
    """Return the exit code of these runs when no job of their suite is waiting or running.

    An interruption does not stop the jobs.
    """
    last = ""
    while active := find_active_jobs(options.results, specs[0].suite):
        if not options.quiet and (text := slurm_jobs.count_states(active.values())) != last:
            say(last := text)
        time.sleep(POLL)
    entries = plan_runs(specs, options.results, datasets.data_root())
    return choose_exit_code(entries, waited=True)


def find_active_jobs(results: Path, suite: str) -> dict[str, Job]:
    """Return the jobs that may still train a run of this suite, by run id."""
    found, _ = slurm_jobs.find_jobs(results, store.read_records(results, suite)[0])
    return {run: job for run, job in found.items() if job.active and job.submission.suite == suite}


def _select(entries: Sequence[PlannedRun], active: dict[str, Job]) -> list[PlannedRun]:
    """Return the runs to be trained that no job is training already."""
    return [entry for entry in entries if entry.action in TO_TRAIN and entry.run_id not in active]


def _check_paths(options: RunOptions) -> None:
    """Raise ConfigError for paths that are not UTF-8: Slurm takes no other batch script."""
    given = {
        "--results": str(options.results.absolute()),
        "MSBENCH_DATA": str(datasets.data_root().absolute()),
        "Python": sys.executable,
        "--image": options.image or "",
    }
    for name, text in given.items():
        if text != encodable(text):
            raise ConfigError(
                f"{name} {text}: a batch script holds no path that is not UTF-8; choose another"
            )


def _check_commands() -> None:
    """Raise ConfigError if jobs cannot be submitted from here, before any work is done for them."""
    _import_submitit()
    for name in ("sbatch", "srun"):
        if shutil.which(name) is None:
            raise ConfigError(f"--launcher slurm: no {name} on PATH: submit where Slurm's commands are")


def _import_submitit() -> Any:
    """Return submitit's module that writes batch scripts; ConfigError if it is not installed."""
    try:
        from submitit.slurm import slurm
    except ImportError:
        raise ConfigError(f"--launcher slurm: submitit is not installed: {explain_extra('slurm')}") from None
    return slurm


@contextmanager
def lock_submissions(results: Path) -> Iterator[None]:
    """Wait until no other command submits from these results: two at once would submit the same runs.

    Raises ConfigError if nothing can be written, or if the path cannot be used in a batch script.
    """
    place = str(results.absolute())
    if "%" in place or not place.isprintable():
        raise ConfigError(
            f"--results {results}: a batch script takes no path with '%' or a line break; choose another"
        )
    folder = results / slurm_jobs.FOLDER

    @cache  # printed once, however long it takes
    def say_waiting() -> None:
        say("waiting for another command that submits from these results")

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_file(folder / "submit.lock", "--results", between=say_waiting):
            yield
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{folder}: cannot work here: {reason}; choose another --results") from None


def _submit(entries: Sequence[PlannedRun], options: RunOptions) -> Submission:
    """Submit these runs as one array.

    Raises ConfigError, and leaves nothing behind, if they are refused or the folder cannot be written.
    """
    suite = entries[0].spec.suite
    array = _plan_array(options, suite, len(entries))
    folder = array.folder
    folder.mkdir(mode=0o700)
    submission = Submission(
        name=folder.name,
        suite=suite,
        submitted=datetime.now(UTC).isoformat(timespec="microseconds"),
        host=platform.node(),
        max_requeues=array.profile.max_requeues,
        runs=tuple(
            SubmittedRun(
                run_id=entry.run_id or "",
                task=entry.spec.task,
                model=entry.spec.model_name,
                seed=entry.spec.seed,
                words=options.build_run_command(entry.spec, folder / slurm_jobs.SUITE),
            )
            for entry in entries
        ),
    )
    try:
        found = load_suite(options.suites[0])
        found.copy_file(Path(found.source.name).read_bytes(), folder / slurm_jobs.SUITE)
        # Before its number is known: if this process is killed in between, its jobs are found by name.
        slurm_jobs.write_submission(folder, submission)
        job_id = array.submit()
    except (ConfigError, OSError):
        shutil.rmtree(folder, ignore_errors=True)
        raise
    submission = submission.model_copy(update={"job_id": job_id})
    try:
        slurm_jobs.write_submission(folder, submission)
    except OSError as error:
        # The jobs exist, and are found by name.
        say(f"msbench: {explain_unwritable(folder / slurm_jobs.FILE, error, '--results')}")
    return submission


@dataclass(frozen=True)
class _JobArray:
    """One array of `count` jobs; `folder` is its submission's, whose name is that of the jobs."""

    folder: Path
    count: int
    profile: SlurmProfile

    @property
    def script(self) -> str:
        """The batch script."""
        make = _import_submitit()._make_sbatch_string
        text = make(command=self._command, folder=self.folder, map_count=self.count, **self._parameters)
        return str(text)

    def submit(self) -> str:
        """Submit the array and return its number; ConfigError with sbatch's message if it is refused."""
        executor = _import_submitit().SlurmExecutor(self.folder)
        executor.update_parameters(**self._parameters)
        executor.parameters["map_count"] = self.count
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        with _hide_job_variables():
            try:
                return str(executor._submit_command(self._command).job_id)
            except (FailedJobError, FailedSubmissionError, OSError) as error:
                message = " ".join(str(error).split())
                raise ConfigError(f"--launcher slurm: not submitted: {message}") from None

    @property
    def _command(self) -> str:
        """The command that replaces an element's shell: the signal goes to that process alone."""
        words = [
            *build_python_command(),
            "-u",
            "-m",
            "msbench.cli.array_job",
            str(self.folder / slurm_jobs.FILE),
        ]
        return f"exec {shlex.join(words)}"

    @property
    def _parameters(self) -> dict[str, Any]:
        # Compute nodes often have no network: the data have been set up before.
        exports = {"MSBENCH_OFFLINE": "1", "MSBENCH_DATA": str(datasets.data_root().absolute())}
        if self.profile.cpus is not None:
            exports["OMP_NUM_THREADS"] = str(self.profile.cpus)
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        return {
            **self.profile.submitit_parameters(),
            "job_name": self.folder.name,
            "array_parallelism": self.profile.max_parallel or self.count,
            "setup": [*lines, *self.profile.setup],
        }


def _plan_array(options: RunOptions, suite: str, count: int) -> _JobArray:
    """Return an array of jobs with a name that no other has."""
    name = f"msbench-{suite}-{secrets.token_hex(4)}"
    folder = slurm_jobs.locate_submission(options.results.absolute(), name)
    return _JobArray(folder, count, load_profile(options.profile))


@contextmanager
def _hide_job_variables() -> Iterator[None]:
    """Remove variables that would change the script, or that an element would take for its own.

    The former are a user's settings, the latter are left by an enclosing job.
    """
    leaked = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(OF_A_JOB) or name in OF_A_RANK | OF_SBATCH) and name not in KEPT
    }
    for name in leaked:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(leaked)
