"""The verbs that make runs: what there is, data, training."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msbench import console
from msbench.cli import cluster
from msbench.cli.app import (
    RESULTS,
    Deterministic,
    Device,
    Devices,
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
    Wait,
    verb,
)
from msbench.cli.plans import plan
from msbench.errors import Undecided

if TYPE_CHECKING:
    from msbench.agenda import Entry
    from msbench.specs import RunSpec


@verb
def list_(
    what: Annotated[str, typer.Argument(help="suites, models, datasets or runs")],
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """What there is."""
    from msbench import catalogue

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
    from msbench import provision

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
    results: Results = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, record. What is finished is kept, what was stopped goes on."""
    cluster.check_launcher(launcher, profile, wait=wait)
    specs = plan(suite, model, task, seed, sets)
    if launcher == "slurm":
        # What a job's own command is to have of this one's options, beside what chooses its run.
        options = [
            *_given("--device", device),
            *_given("--devices", devices if devices > 1 else None),
            *_given("--scan", scan),
        ]
        options += _flags({"--deterministic": deterministic, "--fresh": fresh})
        order = cluster.order(suite, sets or (), options, results, profile)
        cluster.run(specs, order, cluster.Show(dry_run, wait, as_json, quiet), fresh=fresh)
        return
    from msbench.environment import accelerator

    on = accelerator(device)
    if deterministic:  # before a kernel's check starts CUDA
        from msbench import numerics

        context.with_resource(numerics.deterministic(on))
    if scan is not None:
        from msbench.ops.scan_kernels import force

        force(scan, on)
    from msbench import agenda
    from msbench.launch import devices as several

    agenda.check_kernels(specs, on)
    if deterministic:
        numerics.refuse(specs, on)
    several.prepare(devices, on)
    if dry_run:
        _print_agenda(
            _agenda(specs, results, fresh=fresh), as_json, estimate=True, device=on, devices=devices
        )
        return
    if devices > 1 and not several.placed():
        raise typer.Exit(several.run_on(devices, [sys.executable, "-m", "msbench.cli", *sys.argv[1:]]))
    from msbench import data
    from msbench.execute import Place
    from msbench.launch.here import run_here
    from msbench.launch.joined import joined, signal_flag
    from msbench.launch.outcome import summary

    with signal_flag() as signals, joined(on, signals) as processes:
        place = Place(results, data.data_root(), device, signals, processes)
        outcome = run_here(specs, place, fresh=fresh, quiet=quiet)
    if as_json:
        console.out_json([record.model_dump(mode="json") for record in outcome.records])
    elif outcome.records:
        console.out_rows(*summary(outcome.records))
    raise typer.Exit(outcome.exit_code)


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
    entries = _agenda(specs, results)
    from msbench.comparison import explanation, page

    if as_json:
        console.out_json(explanation.document(entries))
    else:
        _print_agenda(entries, as_json, estimate=False)
        page.print_page(explanation.pages(entries), after=True)


def _given(option: str, value: str | int | None) -> list[str]:
    return [] if value is None else [option, str(value)]


def _flags(given: dict[str, bool]) -> list[str]:
    return [option for option, on in given.items() if on]


def _agenda(specs: "list[RunSpec]", results: Path, *, fresh: bool = False) -> "list[Entry]":
    from msbench import agenda, data

    entries = agenda.agenda(specs, results, data.data_root(), fresh=fresh)
    if not entries:
        raise Undecided("nothing is planned")
    return entries


def _print_agenda(
    entries: "list[Entry]", as_json: bool, *, estimate: bool, device: str = "cpu", devices: int = 1
) -> None:
    from msbench import agenda

    rows: list[dict[str, Any]] = [
        agenda.describe(entry, estimate=estimate, device=device, devices=devices) for entry in entries
    ]
    if as_json:
        console.out_json(rows)
        return
    if estimate:
        rows = [_brief(row) for row in rows]
    # Why may be a sentence: it goes under its row where there is no room beside it, as a run's id may.
    console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], below=2 if estimate else 1)


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its sizes, for 80 columns: in short words, and first what has to stay beside its heading."""
    from msbench.budget import readable_bytes

    last = {"run": row["run"], "why": row["why"]}
    short = {"parameters": "params", "states per channel": "states"}
    sizes = {short.get(name, name): value for name, value in row.items() if name not in last}
    return sizes | {"memory": readable_bytes(row["memory"])} | last
