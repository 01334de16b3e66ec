"""One batch script for one array, written and submitted through submitit without its pickles.

submitit pickles the functions that it is given; a command needs none. It only provides the header, the
quoting and the submission, and the command starts `msbench.cli.element`, which reads JSON.
"""

import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msbench.errors import ConfigError
from msbench.runs.launchers import slurm_profile, submission
from msbench.runs.launchers.devices import python
from msbench.runs.launchers.slurm_profile import Profile

KEPT = frozenset({"SLURM_CONF", "SLURM_CLUSTERS"})
OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_")
OF_SBATCH = frozenset(
    f"SBATCH_{name}"
    for name in ("ARRAY_INX", "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "REQUEUE", "SIGNAL", "TIMELIMIT", "WAIT")
)
"""A user's defaults for sbatch that would override the script; they are removed, so the script decides."""
OF_A_RANK = frozenset({"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})


def script(folder: Path, size: int, profile: Profile, data_root: Path) -> str:
    """Return the batch script of an array of `size` runs whose submission is in `folder`."""
    values = _parameters(folder, size, profile, data_root)
    make = submitit_slurm()._make_sbatch_string
    return str(make(command=_command(folder), folder=folder, map_count=size, **values))


def submit(folder: Path, size: int, profile: Profile, data_root: Path) -> str:
    """Submit the array and return its number; ConfigError with sbatch's message if it is refused."""
    executor = submitit_slurm().SlurmExecutor(folder)
    executor.update_parameters(**_parameters(folder, size, profile, data_root))
    executor.parameters["map_count"] = size
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    with _outside_of_jobs():
        try:
            return str(executor._submit_command(_command(folder)).job_id)
        except (FailedJobError, FailedSubmissionError, OSError) as error:
            raise ConfigError(f"--launcher slurm: not submitted: {' '.join(str(error).split())}") from None


def check_commands() -> None:
    """Raise ConfigError if jobs cannot be submitted from here, before any work is done for them."""
    submitit_slurm()
    for name in ("sbatch", "srun"):
        if shutil.which(name) is None:
            raise ConfigError(f"--launcher slurm: no {name} on PATH: submit where Slurm's commands are")


def submitit_slurm() -> Any:
    """Return submitit's module that writes batch scripts; ConfigError if it is not installed."""
    try:
        from submitit.slurm import slurm
    except ImportError:
        raise ConfigError(
            "--launcher slurm: submitit is not installed: pip install 'msbench[slurm]'"
        ) from None
    return slurm


def _command(folder: Path) -> str:
    """Return the command that replaces an element's shell: the signal goes to that process alone."""
    words = [*python(), "-u", "-m", "msbench.cli.element", str(folder / submission.FILE)]
    return f"exec {shlex.join(words)}"


def _parameters(folder: Path, size: int, profile: Profile, data_root: Path) -> dict[str, Any]:
    # Compute nodes often have no network: the data have been set up before.
    exports = {"MSBENCH_OFFLINE": "1", "MSBENCH_DATA": str(data_root)}
    if profile.cpus is not None:
        exports["OMP_NUM_THREADS"] = str(profile.cpus)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
    return {
        **slurm_profile.parameters(profile),
        "job_name": folder.name,
        "array_parallelism": profile.max_parallel or size,
        "setup": [*lines, *profile.setup],
    }


@contextmanager
def _outside_of_jobs() -> Iterator[None]:
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
