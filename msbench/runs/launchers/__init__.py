"""Launchers: the ways in which the runs of one command are executed.

::

    local        one after another in this process
    pool         in parallel on this machine, a process each
    distributed  one run on several devices, a process each
    slurm        as one array of Slurm jobs
    container    the same command inside a container
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from msbench.config import RunSpec
from msbench.console import say
from msbench.errors import ConfigError, ExitCode, UnknownName
from msbench.results.record import RunRecord
from msbench.runs.reproduce import RESULTS, build_command
from msbench.training.loggers import check_loggers

LAUNCHERS = ("local", "slurm")
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
RANK_REMEDY = "unset it, or start the processes with torchrun"
NO_WAIT = "MSBENCH_NO_WAIT"
"""Variable that is set if a process must not wait for runs that others train: its parent retries later."""
BUSY = 75
"""Its exit code then; sysexits' EX_TEMPFAIL, which no user's command ends with."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of ``msbench run``: the runs of some suites that are wanted, and how to execute them.

    `suites` are names or paths of files. Empty `models`, `tasks` or `seeds` mean all of the suites'.
    `overrides` are texts such as ``train.lr=1e-3``; `device` is auto, cpu or cuda; `loggers` are keys of
    `msbench.training.loggers.REQUIREMENTS`.
    """

    suites: tuple[str, ...]
    models: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    overrides: tuple[str, ...] = ()
    device: str = "auto"
    devices: int = 1
    jobs: int = 1
    threads: int | None = None
    scan: str | None = None
    deterministic: bool = False
    fresh: bool = False
    dry_run: bool = False
    loggers: tuple[str, ...] = ()
    launcher: str = "local"
    profile: Path | None = None
    wait: bool = False
    container: str | None = None
    image: str | None = None
    results: Path = RESULTS
    quiet: bool = False

    def build_run_command(self, spec: RunSpec, suite_file: Path) -> tuple[str, ...]:
        """Return the words, after ``msbench``, that train one of the runs as this file describes it."""
        words = build_command(
            "run",
            str(suite_file),
            model=spec.model_name,
            task=spec.task,
            seeds=[spec.seed],
            overrides=self.overrides,
            results=self.results.absolute(),
        )
        options = {
            "--device": self.device,
            "--devices": self.devices if self.devices > 1 else None,
            "--threads": self.threads,
            "--scan": self.scan,
            "--deterministic": self.deterministic or None,
            "--fresh": self.fresh or None,
            "--container": self.container,
            "--image": self.image,
        }
        more = [word for name in self.loggers for word in ("--log", name)]
        for name, value in options.items():
            if value is not None:
                more += [name] if value is True else [name, str(value)]
        return (*words[1:], *more)


@dataclass
class RunOutcome:
    """The records and errors of a command's runs."""

    records: list[RunRecord] = field(default_factory=list)
    data_errors: list[str] = field(default_factory=list)
    damaged: int = 0
    code: int = ExitCode.OK
    """Exit code of failures that no record shows."""

    @property
    def exit_code(self) -> int:
        """Exit code of the most fundamental failure."""
        if self.code:
            return self.code
        if self.data_errors:
            return ExitCode.DATA
        if self.damaged or any(not record.finished for record in self.records):
            return ExitCode.RUN_FAILED
        return ExitCode.OK


class PoolProgress:
    """Receiver of reports on runs in parallel, and a context around them; this one prints lines.

    One that is `live` draws at a terminal: what processes print there would spoil it.
    """

    live = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def note(self, text: str) -> None:
        """Receive a message of one line."""
        say(text)

    def move(self, ended: int, count: int, left: str, training: Sequence[RunSpec]) -> None:
        """Receive again and again how many of all runs have ended, the time left, and which are training."""


def check_options(options: RunOptions) -> None:
    """Raise ConfigError for options that are incompatible with one another or with this process."""
    if options.launcher not in LAUNCHERS:
        raise UnknownName("launcher", options.launcher, LAUNCHERS, "--launcher")
    if options.container is None:  # else the packages are those of the image, and are looked for inside
        check_loggers(options.loggers)
    slurm = options.launcher == "slurm"
    if not slurm and (options.profile is not None or options.wait):
        raise ConfigError(f"{'--wait' if options.wait else '--profile'} goes with --launcher slurm")
    if options.image is not None and options.container is None:
        raise ConfigError("--image goes with --container docker, podman or apptainer")
    if options.jobs > 1 and slurm:
        raise ConfigError("--jobs goes with the local launcher; Slurm has max_parallel, in its profile")
    if options.jobs > 1 and options.devices > 1:
        raise ConfigError("--jobs trains runs in parallel on a device each; leave --devices out")
    single = {
        "--launcher slurm": slurm,
        "--container": options.container is not None,
        "--jobs": options.jobs > 1,
    }
    for option, given in single.items():
        if given and is_placed():
            raise ConfigError(
                f"{option}: not within torchrun: there, each process would do it; use --devices"
            )


def is_placed() -> bool:
    """Return True if the environment makes this one of several processes that train together."""
    return all(name in os.environ for name in RANK_VARIABLES) and read_rank()[1] != 1


def read_rank() -> tuple[int, int, int]:
    """Return the number of this process, the count of all and that on this machine, from the environment.

    Raises ConfigError, naming the variable, if they are no numbers or do not fit together.
    """
    count = read_number("WORLD_SIZE", 1)
    rank, local = read_number("RANK", 0), read_number("LOCAL_WORLD_SIZE", 1, count)
    read_number("LOCAL_RANK", 0)
    if rank >= count or count % local:
        raise ConfigError(
            f"RANK={rank}, WORLD_SIZE={count} and LOCAL_WORLD_SIZE={local} do not fit together; {RANK_REMEDY}"
        )
    return rank, count, local


def read_number(
    name: str, least: int, default: int | None = None, most: int = 10**9 - 1, remedy: str = RANK_REMEDY
) -> int:
    """Return the whole number in a variable of the environment. Raises ConfigError if there is none."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or not least <= int(text) <= most:
        raise ConfigError(f"{name}={text[:40]}: must be a whole number from {least} to {most:,}; {remedy}")
    return int(text)
