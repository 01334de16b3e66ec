"""Resources that a cluster grants a run: ``slurm.yaml``, strict like every file, so that typos are errors."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from msbench.config.base import LARGEST_COUNT, Config, NonNegativeInt, PositiveInt
from msbench.config.layers import load_yaml, validate
from msbench.config.messages import format_value
from msbench.environment import expand_home
from msbench.errors import ConfigError

FILE = "slurm.yaml"
OWN = {
    "account": "account",
    "array": "max_parallel",
    "cpus-per-task": "cpus",
    "gpus-per-node": "gpus",
    "mem": "memory",
    "partition": "partition",
    "qos": "qos",
    "signal": "grace_seconds",
    "time": "time",
}
"""Options of sbatch that have their own key here."""
FIXED = frozenset(
    {"error", "export", "job-name", "no-requeue", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output"}
    | {"parsable", "quiet", "requeue", "test-only", "wait"}
)
"""Options of sbatch for submission, start, logs and requeueing, which a profile cannot set."""
TIME = re.compile(r"(?:(\d+)-(\d{1,2})(?::(\d{1,2}))?(?::(\d{1,2}))?)|(?:(\d+):)?(\d+):(\d{1,2})")
SLACK = 60
"""Seconds by which Slurm may send the signal early: it checks limits about once a minute."""


def _check_line(text: str) -> str:
    """Return `text` if it stays within its line of the batch script; else raise ValueError."""
    if not text or not text.isprintable():
        raise ValueError(f"{format_value(text)}: must be printable text in one line")
    return text


Line = Annotated[str, AfterValidator(_check_line)]
Whole = Annotated[int, Field(gt=-LARGEST_COUNT, lt=LARGEST_COUNT)]


def _check_option(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(
            f"{format_value(name)} is no long option of sbatch; write it without the two hyphens"
        )
    if name in OWN:
        raise ValueError(f"{name} is the key {OWN[name]} of the profile")
    if name in FIXED:
        raise ValueError(f"{name} is set by msbench: one process a run, logged and requeued by it")
    return name


def _check_duration(value: int | str) -> int | str:
    if parse_time(value) <= 0:
        raise ValueError(
            "must be more than nothing; leave no limit open: 0 is none to some versions of Slurm"
        )
    return value


class SlurmProfile(Config):
    """Keys of a profile: `time` in minutes or as ``HH:MM:SS`` or ``D-HH:MM:SS``, `memory` such as 16G.

    `grace_seconds` before the limit, a run is signalled to save and is requeued; after `max_requeues`
    restarts, for whatever reason, it is not started again.
    """

    time: Annotated[NonNegativeInt | Line, AfterValidator(_check_duration)]
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    cpus: PositiveInt | None = None
    memory: Annotated[str, Field(pattern=r"^[0-9]+[KMGT]?B?$")] | None = None
    gpus: NonNegativeInt | Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]+$")] | None = None
    max_parallel: PositiveInt | None = None
    grace_seconds: Annotated[int, Field(ge=10, le=65535)] = 120
    max_requeues: NonNegativeInt = 50
    sbatch: dict[Annotated[str, AfterValidator(_check_option)], Line | Whole | bool] = {}  # noqa: RUF012
    setup: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _leaves_time_to_work(self) -> "SlurmProfile":
        if parse_time(self.time) <= self.grace_seconds + SLACK:
            raise ValueError(
                f"time: {self.time} leaves no time to work: grace_seconds is {self.grace_seconds}, and Slurm "
                f"may send the signal {SLACK} s earlier"
            )
        return self

    def submitit_parameters(self) -> dict[str, Any]:
        """Return submitit's parameters for the header of the batch script."""
        # submitit's own defaults are five minutes, 256 at once and a wckey that no site has.
        values = {
            option.replace("-", "_"): getattr(self, key)
            for option, key in OWN.items()
            if option not in ("array", "signal")
        }
        own = {"signal": f"B:USR1@{self.grace_seconds}", "requeue": True}
        chosen = {key: value for key, value in self.sbatch.items() if value is not False}
        return {key: value for key, value in values.items() if value is not None} | {
            "wckey": None,
            "stderr_to_stdout": True,
            "use_srun": False,
            "additional_parameters": {**chosen, **own},
        }


def parse_time(time: int | str) -> int:
    """Return the seconds of a time limit; a plain number is minutes. Raises ValueError."""
    if isinstance(time, int):
        return time * 60
    if (match := TIME.fullmatch(time)) is None:
        raise ValueError(f"{format_value(time)} is no time limit: minutes, HH:MM:SS or D-HH:MM:SS")
    days, *parts = (int(part or 0) for part in match.groups())
    hours, minutes, secs = map(max, parts[:3], parts[3:])
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def check_devices(profile: SlurmProfile, device: str, devices: int) -> None:
    """Raise ConfigError if each job would fail once started, for lack of GPUs."""
    count = str(profile.gpus or "").rpartition(":")[2]
    granted = int(count) if count.isdecimal() else 1
    if profile.gpus and device != "cpu" and granted < devices:
        given = "1 GPU" if granted == 1 else f"{granted} GPUs"
        raise ConfigError(
            f"--devices {devices}: the profile gives a run {given}; raise gpus in it, or lower --devices"
        )


def load_profile(given: Path | None) -> SlurmProfile:
    """Load the profile in this file, or else in ``slurm.yaml`` here or in the user's settings for msbench.

    Raises ConfigError naming file, line and key, or the places searched if there is none.
    """
    path = given or Path(FILE)
    if given is None and not path.is_file() and not (path := _settings() / FILE).is_file():
        raise ConfigError(
            f"--launcher slurm: no profile, neither {FILE} nor {path}: one with `time: 4:00:00` is enough; "
            "or name a file with --profile"
        )
    return validate(SlurmProfile, load_yaml(path, may_wait=True), "a Slurm profile")


def _settings() -> Path:
    return expand_home(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "--profile") / "msbench"
