"""``msbench run --launcher slurm``: its output and exit codes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from msbench import console
from msbench.cli.app import RESULTS
from msbench.console import command_line
from msbench.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from msbench.config import RunSpec
    from msbench.runs.launchers.jobs import Job
    from msbench.runs.launchers.slurm import Order
    from msbench.runs.launchers.slurm_profile import Profile
    from msbench.runs.launchers.submission import Submission
    from msbench.runs.plan import PlannedRun

LAUNCHERS = ("local", "slurm")
POLL = 10.0
"""Seconds between two queries of ``--wait``."""


def check_launcher(name: str, profile: Path | None, *, wait: bool) -> None:
    """Raise UnknownName for an unknown launcher, ConfigError for options that do not apply to it."""
    from msbench.runs.launchers.devices import check_single

    if name not in LAUNCHERS:
        raise UnknownName("launcher", name, LAUNCHERS, "--launcher")
    if name == "local" and (profile is not None or wait):
        raise ConfigError(f"{'--wait' if wait else '--profile'} goes with --launcher slurm")
    if name == "slurm":
        check_single("--launcher slurm")


def order(
    suite: str, sets: Sequence[str], options: Sequence[str], results: Path, profile: Path | None
) -> "Order":
    """Return the settings shared by the runs of a submission; `options` are passed on to each."""
    from msbench import datasets as data
    from msbench.runs import suite as suites
    from msbench.runs.launchers import slurm_profile
    from msbench.runs.launchers.slurm import Order

    source = Path(suites.load(suite).source.name)
    chosen = slurm_profile.load(profile)
    return Order(source, tuple(sets), tuple(options), results, data.data_root().absolute(), chosen)


def check_jobs(profile: "Profile", device: str, devices: int, scan: str | None, engine: str | None) -> None:
    """Raise for options that would end every job in its first seconds, after hours in the queue."""
    from msbench.environment import check_device
    from msbench.runs.launchers import container, slurm_profile

    check_device(device)
    slurm_profile.check_devices(profile, device, devices)
    if scan is not None:
        from msbench.ops.scan.dispatch import check_kernel_name

        check_kernel_name(scan)
    if engine is not None:
        container.check_engine(engine)


@dataclass(frozen=True)
class Show:
    """Output options of a submission; with `dry_run` nothing is submitted."""

    dry_run: bool
    wait: bool
    as_json: bool
    quiet: bool


def run(specs: "Sequence[RunSpec]", order: "Order", show: Show, *, fresh: bool) -> None:
    """Submit these runs, or show what would be submitted."""
    if show.dry_run:
        _preview(specs, order, fresh=fresh, as_json=show.as_json)
    else:
        _submit(specs, order, show, fresh=fresh)


def _preview(specs: "Sequence[RunSpec]", order: "Order", *, fresh: bool, as_json: bool) -> None:
    """Print what would be submitted: the plan, and the batch script. Changes nothing."""
    from msbench.runs import plan as agenda
    from msbench.runs.launchers import slurm

    entries = slurm.planned(specs, order, fresh=fresh)
    busy = slurm.active(order.results, specs[0].suite)
    rows = [_row(agenda.describe(entry, estimate=False), entry, busy) for entry in entries]
    # Runs without data would be set up first, and then be in the array.
    waiting = [entry for entry in entries if entry.action == "set up"]
    text = slurm.preview([*slurm.to_submit(entries, busy), *waiting], order)
    if as_json:
        console.out_json({"runs": rows, "script": text})
    else:
        console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows])
        console.out(f"\n{text}" if text else "\nnothing to submit")


def _submit(specs: "Sequence[RunSpec]", order: "Order", show: Show, *, fresh: bool) -> None:
    """Submit the runs to be trained, and print how to watch and cancel them."""
    from msbench.runs.launchers import slurm

    handed = slurm.hand_over(specs, order, fresh=fresh, quiet=show.quiet)
    entries = handed.entries
    for entry in entries:
        if entry.action == "damaged":
            console.say(f"msbench: {entry.reason}")
    _print(entries, handed.busy, handed.made, show.as_json)
    _how_to(handed.made, order.results)
    if show.wait:
        _wait(order.results, specs[0].suite, quiet=show.quiet)
        entries = slurm.planned(specs, order)
    raise typer.Exit(handed.data or slurm.exit_code(entries, waited=show.wait))


def _row(row: dict[str, Any], entry: "PlannedRun", busy: "dict[str, Job]") -> dict[str, Any]:
    job = busy.get(entry.run_id or "")
    if job is None:
        return row
    return row | {"action": "keep", "why": f"{job.state} as job {job.submission.job(job.index)}"}


def _print(
    entries: "Sequence[PlannedRun]", busy: "dict[str, Job]", made: "Submission | None", as_json: bool
) -> None:
    from msbench.runs import plan as agenda

    runs = made.runs if made else ()
    jobs = {element.run_id: made.job(index) for index, element in enumerate(runs) if made}
    rows = []
    for entry in entries:
        row = _row(agenda.describe(entry, estimate=False), entry, busy)
        if job := jobs.get(entry.run_id or ""):
            row |= {"action": "submit", "why": f"{entry.reason}; job {job}"}
        rows.append(row)
    if as_json:
        console.out_json({"submission": made.model_dump(mode="json") if made else None, "runs": rows})
    else:
        console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], below=1)


def _how_to(made: "Submission | None", results: Path) -> None:
    from msbench.runs.launchers.submission import folder_of

    if made is None:
        console.say("nothing to submit")
        return
    where = "" if results == RESULTS else f" --results {command_line([str(results)])}"
    console.say(f"submitted {len(made.runs)} runs as job {made.job_id}, {made.name}")
    console.say(f"watch:  msbench list runs{where}   or   squeue --name={made.name}")
    console.say(f"logs:   {command_line([str(folder_of(results, made.name))])}")
    console.say(f"cancel: scancel {made.job_id}")


def _wait(results: Path, suite: str, *, quiet: bool) -> None:
    """Return when no job of this suite is waiting or running; an interruption does not stop them."""
    from msbench.runs.launchers import jobs, slurm

    said = ""
    while found := list(slurm.active(results, suite).values()):
        if not quiet and (text := jobs.count(found)) != said:
            console.say(said := text)
        time.sleep(POLL)
