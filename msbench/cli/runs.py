"""Verbs that make runs: listings, data, training."""

from pathlib import Path
from typing import Annotated

import typer

from msbench import console
from msbench.cli import cluster, inside, local
from msbench.cli.app import (
    RESULTS,
    Container,
    Deterministic,
    Device,
    Devices,
    Image,
    Jobs,
    Json,
    Launcher,
    Models,
    Name,
    Profile,
    Quiet,
    Results,
    Scan,
    Seeds,
    Sets,
    Tasks,
    Threads,
    Wait,
    verb,
)
from msbench.cli.plans import agenda_of, plan, print_agenda


@verb
def list_(
    what: Annotated[str, typer.Argument(help="suites, models, datasets or runs")],
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """What there is."""
    from msbench.cli import listings as catalogue

    listing = catalogue.listing(what, results)
    for warning in listing.warnings:
        console.say(f"msbench: {warning}")
    if as_json:
        console.out_json(listing.as_dicts())
    else:
        console.out_rows(listing.header, listing.cells(), below=listing.below)
    for note in listing.notes:
        console.say(note)


@verb
def setup(
    names: Annotated[list[str], typer.Argument(help="suites or datasets")],
    source: Annotated[Path | None, typer.Option("--from", help="Archive or folder that you brought.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override, such as data.size=128; repeatable."),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Only verify what is there.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fetch, generate, import and verify data."""
    from msbench.runs import setup as provision

    outcome = provision.provision(names, source, sets or (), check_only=check, quiet=quiet)
    if as_json:
        console.out_json(outcome.as_dicts())
    else:
        console.out_rows(*outcome.table())
    raise typer.Exit(outcome.exit_code)


@verb
def run(
    context: typer.Context,
    suite: Name,
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    device: Device = "auto",
    devices: Devices = 1,
    jobs: Jobs = 1,
    threads: Threads = None,
    scan: Scan = None,
    deterministic: Deterministic = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Print the plan and touch nothing.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh/--no-fresh", help="Train again what has ended (kept beside); what was stopped goes on."
        ),
    ] = False,
    launcher: Launcher = "local",
    profile: Profile = None,
    wait: Wait = False,
    container: Container = None,
    image: Image = None,
    results: Results = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, record. What is finished is kept, what was stopped goes on."""
    cluster.check_launcher(launcher, profile, wait=wait)
    inside.check_options(container, image)
    local.check_jobs(jobs, launcher, devices)
    specs = plan(suite, model, task, seed, sets)
    # Options that the command of a single run shares, in addition to those that select the run.
    options = [
        *_given("--device", device),
        *_given("--devices", devices if devices > 1 else None),
        *_given("--threads", threads),
        *_given("--scan", scan),
        *_flags({"--deterministic": deterministic}),
    ]
    if launcher == "slurm":
        options += [
            *_flags({"--fresh": fresh}),
            *_given("--container", container),
            *_given("--image", image),
        ]
        order = cluster.order(suite, sets or (), options, results, profile)
        cluster.check_jobs(order.profile, device, devices, scan, container)
        cluster.run(specs, order, cluster.Show(dry_run, wait, as_json, quiet), fresh=fresh)
    elif container is not None:
        inside.enter(container, image, specs, suite, results, device, dry_run=dry_run, quiet=quiet)
    else:
        how = local.How(
            results, device, devices, jobs, threads, scan, deterministic, dry_run, fresh, as_json, quiet
        )
        local.run(specs, how, local.Asked(suite, sets or (), options), context)


@verb
def explain(
    suite: Name,
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Why each run of a suite would, or would not, be trained."""
    specs = plan(suite, model, task, seed, sets)
    entries = agenda_of(specs, results)
    from msbench.reporting.compare.diff import build_plan_document, build_plan_page
    from msbench.reporting.compare.page import print_page

    if as_json:
        console.out_json(build_plan_document(entries))
    else:
        print_agenda(entries, as_json, estimate=False)
        print_page(build_plan_page(entries), after=True)


def _given(option: str, value: str | int | None) -> list[str]:
    return [] if value is None else [option, str(value)]


def _flags(given: dict[str, bool]) -> list[str]:
    return [option for option, on in given.items() if on]
