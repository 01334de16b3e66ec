"""``msbench run`` on this machine: in this process, or in one per device or per run."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from msbench import console
from msbench.cli.plans import agenda_of, print_agenda
from msbench.errors import ConfigError

if TYPE_CHECKING:
    from msbench.config import RunSpec
    from msbench.runs.launchers.outcome import RunOutcome


@dataclass(frozen=True)
class How:
    """Options of ``run`` for the execution and display of its runs."""

    results: Path
    device: str
    devices: int
    jobs: int
    threads: int | None
    scan: str | None
    deterministic: bool
    dry_run: bool
    fresh: bool
    as_json: bool
    quiet: bool


@dataclass(frozen=True)
class Asked:
    """Parts of the command for one of the runs: suite, overrides, options."""

    suite: str
    sets: Sequence[str]
    options: Sequence[str]


def check_jobs(jobs: int, launcher: str, devices: int) -> None:
    """Raise ConfigError for options that are incompatible with several runs at a time."""
    from msbench.runs.launchers.devices import check_single

    if jobs == 1:
        return
    if launcher == "slurm":
        raise ConfigError("--jobs goes with the local launcher; Slurm has max_parallel, in its profile")
    if devices > 1:
        raise ConfigError("--jobs trains runs beside each other on a device each; leave --devices out")
    check_single("--jobs")


def run(specs: "list[RunSpec]", how: How, asked: Asked, context: typer.Context) -> None:
    """Train these runs, or show what would be trained; global settings are undone with `context`."""
    on = _prepare(specs, how, context)
    from msbench.runs.launchers import devices as several

    if how.dry_run:
        entries = agenda_of(specs, how.results, fresh=how.fresh)
        print_agenda(entries, how.as_json, estimate=True, device=on, devices=how.devices)
        return
    if how.devices > 1 and not several.placed():
        command = [*several.python(), "-m", "msbench", *sys.argv[1:]]
        raise typer.Exit(several.run_on(how.devices, command))
    if how.jobs > 1:
        _beside(specs, how, asked, on)
    else:
        _train(specs, how, on)


def _prepare(specs: "list[RunSpec]", how: How, context: typer.Context) -> str:
    """Make global settings before any computation; return the device of the runs, ``cpu`` or ``cuda``."""
    from msbench.environment import choose_accelerator

    on = choose_accelerator(how.device)
    from msbench import environment, models
    from msbench.runs import plan as agenda
    from msbench.runs.launchers import devices as several

    if how.threads is not None:
        context.with_resource(environment.use_threads(how.threads))
    if how.deterministic:  # before a kernel's check starts CUDA
        context.with_resource(environment.use_deterministic(on))
    if how.scan is not None:
        from msbench.ops.scan.dispatch import force_kernel

        force_kernel(how.scan, on)
    agenda.check_kernels(specs, on)
    if how.deterministic:
        models.check_fixed_order(specs, on)
    several.prepare(how.devices, on)
    return on


def _train(specs: "list[RunSpec]", how: How, on: str) -> None:
    from msbench import datasets as data
    from msbench.runs.execution import RunContext
    from msbench.runs.launchers.here import run_here
    from msbench.runs.launchers.joined import joined, signal_flag

    with signal_flag() as signals, joined(on, signals) as processes:
        place = RunContext(how.results, data.data_root(), how.device, signals, processes)
        outcome = run_here(specs, place, fresh=how.fresh, quiet=how.quiet)
    _end(outcome, as_json=how.as_json)


def _beside(specs: "list[RunSpec]", how: How, asked: Asked, on: str) -> None:
    from msbench import datasets as data
    from msbench.runs.launchers.crowd import slots
    from msbench.runs.launchers.side_by_side import Work, run_beside

    options = [*asked.options, "--device", on]
    work = Work(asked.suite, asked.sets, options, how.results, data.data_root(), how.fresh, how.quiet)
    _end(run_beside(specs, work, slots(how.jobs, on)), as_json=how.as_json)


def _end(outcome: "RunOutcome", *, as_json: bool) -> None:
    from msbench.runs.launchers.outcome import summary

    if as_json:
        console.out_json([record.model_dump(mode="json") for record in outcome.records])
    elif outcome.records:
        console.out_rows(*summary(outcome.records))
    raise typer.Exit(outcome.exit_code)
