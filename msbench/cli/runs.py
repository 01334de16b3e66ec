"""The verbs that make runs: what there is, data, training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msbench import console
from msbench.cli.app import (
    RESULTS,
    Device,
    Json,
    Models,
    Name,
    Quiet,
    Results,
    Scan,
    Seeds,
    Sets,
    Tasks,
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
    suite: Name,
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    device: Device = "auto",
    scan: Scan = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--no-dry-run", help="Print the plan and touch nothing.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh/--no-fresh", help="Train again what has ended (kept beside); what was stopped goes on."
        ),
    ] = False,
    container: Annotated[
        str | None, typer.Option("--container", help="Run inside a container: docker, podman or apptainer.")
    ] = None,
    image: Annotated[
        str | None, typer.Option("--image", help="Its image, instead of msbench:cpu or msbench:cuda.")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, record. What is finished is kept, what was stopped goes on."""
    specs = plan(suite, model, task, seed, sets)
    if container is not None or image is not None:
        from msbench.cli.inside import enter

        enter(container, image, specs, suite, results, device, dry_run=dry_run, quiet=quiet)
    from msbench.environment import accelerator

    on = accelerator(device)
    if scan is not None:
        from msbench.ops.scan_kernels import force

        force(scan, on)
    from msbench import agenda

    agenda.check_kernels(specs, on)
    if dry_run:
        _print_agenda(_agenda(specs, results, fresh=fresh), as_json, estimate=True)
        return
    from msbench import data
    from msbench.execute import Place
    from msbench.launch.here import run_here
    from msbench.launch.outcome import summary
    from msbench.training.signals import SignalFlag

    with SignalFlag() as signals:
        place = Place(results, data.data_root(), device, signals)
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


def _agenda(specs: "list[RunSpec]", results: Path, *, fresh: bool = False) -> "list[Entry]":
    from msbench import agenda, data

    entries = agenda.agenda(specs, results, data.data_root(), fresh=fresh)
    if not entries:
        raise Undecided("nothing is planned")
    return entries


def _print_agenda(entries: "list[Entry]", as_json: bool, *, estimate: bool) -> None:
    from msbench import agenda

    rows: list[dict[str, Any]] = [agenda.describe(entry, estimate=estimate) for entry in entries]
    if as_json:
        console.out_json(rows)
    else:
        # Why may be a sentence; what an estimate has after it cannot be read away from its heading.
        console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], below=0 if estimate else 1)
