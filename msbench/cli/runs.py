"""Verbs that make runs: listings, data, training."""

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msbench import console
from msbench.cli import flags
from msbench.cli.app import collect, expand_arguments, expand_suites, select_specs, verb
from msbench.cli.completion import complete_suites
from msbench.errors import ConfigError

if TYPE_CHECKING:
    from msbench.config import RunSpec
    from msbench.runs.launchers import RunOptions


@verb
def list_entries(
    what: Annotated[str, typer.Argument(help="suites, models, datasets or runs")],
    suite: Annotated[str | None, typer.Argument(metavar="[SUITE]", help="Of models: the suite's.")] = None,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """List suites, models, datasets or runs."""
    from msbench.cli.listings import build_listing, group_runs

    listing = build_listing(what, results, suite)
    for warning in listing.warnings:
        console.say(f"msbench: {warning}")
    if as_json:
        console.out_json(listing.as_dicts())
    elif what == "runs" and sys.stdout.isatty() and listing.rows:
        for number, (title, header, rows) in enumerate(group_runs(listing)):
            if number:
                console.out("")
            console.out_rows(header, rows, title=title)
    else:
        console.out_rows(listing.header, listing.cells(), below=listing.below)
    for note in listing.notes:
        console.say(note)


@verb
def set_up(
    names: Annotated[list[str], typer.Argument(help="suites or datasets", autocompletion=complete_suites)],
    source: Annotated[
        Path | None, typer.Option("--from", help="Archive or folder to import; hub, hub:NAME, hub:FOLDER.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override, such as data.size=128; repeatable."),
    ] = None,
    check: Annotated[bool, typer.Option(help="Only verify what is there.")] = False,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Fetch, generate, import and verify data."""
    from msbench.runs.setup import setup_by_name

    outcome = setup_by_name(expand_suites(names), source, sets or (), check_only=check, quiet=quiet)
    if as_json:
        console.out_json(outcome.as_dicts())
    else:
        console.out_rows(*outcome.table())
    raise typer.Exit(outcome.exit_code)


@verb
def run(
    suites: flags.Names,
    models: flags.Models = None,
    tasks: flags.Tasks = None,
    seeds: flags.Seeds = None,
    overrides: flags.Sets = None,
    device: flags.Device = "auto",
    devices: flags.Devices = 1,
    jobs: flags.Jobs = 1,
    threads: flags.Threads = None,
    scan: flags.Scan = None,
    deterministic: flags.Deterministic = False,
    dry_run: Annotated[bool, typer.Option(help="Print the plan and touch nothing.")] = False,
    estimate: Annotated[
        bool, typer.Option(help="With --dry-run: time a few steps of runs that no earlier one is like.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option(help="Train completed runs anew, archiving the old; stopped ones resume.")
    ] = False,
    loggers: flags.Loggers = None,
    launcher: flags.Launcher = "local",
    profile: flags.Profile = None,
    wait: flags.Wait = False,
    container: flags.Container = None,
    image: flags.Image = None,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Train, evaluate and record runs. Finished runs are kept, stopped ones resume."""
    given = locals()
    if not quiet:
        _announce(suites)
    from msbench.runs.launchers import RunOptions, check_options
    from msbench.runs.plan import describe_bucketed_norms

    if estimate and not dry_run:
        raise ConfigError("--estimate goes with --dry-run")
    options = collect(RunOptions, {**given, "suites": expand_suites(suites)})
    check_options(options)
    specs = select_specs(options.suites, models, tasks, seeds, overrides)
    for text in describe_bucketed_norms(specs):
        console.say(f"msbench: {text}")
    if options.launcher == "slurm":
        _submit(specs, options, as_json=as_json)
    elif options.container is not None:
        from msbench.runs.launchers.container import run_in_container

        raise typer.Exit(run_in_container(specs, options, expand_arguments(sys.argv[1:])))
    else:
        _run_locally(specs, options, estimate=estimate, as_json=as_json)


def _announce(suites: list[str]) -> None:
    """Print one line before torch is imported, which takes seconds; once, of processes that work together."""
    if console.LIFELINE not in os.environ and os.environ.get("RANK", "0") == "0":
        console.say(f"msbench: planning {', '.join(suites)}")


def _submit(specs: "list[RunSpec]", options: "RunOptions", *, as_json: bool) -> None:
    from msbench.cli.display import print_submission
    from msbench.runs.launchers import slurm

    slurm.check_jobs(options)
    if options.dry_run:
        print_submission(slurm.preview_submission(specs, options), options, as_json=as_json)
        return
    result = slurm.submit_runs(specs, options)
    print_submission(result, options, as_json=as_json)
    if options.wait:
        code = slurm.wait_for_jobs(specs, options)
    else:
        code = slurm.choose_exit_code(result.entries, waited=False)
    raise typer.Exit(result.setup_code or code)


def _run_locally(specs: "list[RunSpec]", options: "RunOptions", *, estimate: bool, as_json: bool) -> None:
    from msbench import datasets
    from msbench.cli.display import print_outcome, print_sized_plan, show_pool, show_progress
    from msbench.runs.launchers import is_placed
    from msbench.runs.launchers.distributed import build_python_command, run_processes
    from msbench.runs.launchers.local import apply_settings, run_locally
    from msbench.runs.plan import plan_runs

    if options.dry_run:
        with apply_settings(specs, options) as on:
            entries = plan_runs(specs, options.results, datasets.data_root(), fresh=options.fresh)
            print_sized_plan(entries, on, options, estimate=estimate, as_json=as_json)
    elif options.devices > 1 and not is_placed():
        with apply_settings(specs, options):
            code = run_processes(options.devices, [*build_python_command(), "-m", "msbench", *sys.argv[1:]])
        raise typer.Exit(code)  # the first of the processes has printed the results
    else:
        quiet = options.quiet
        outcome = run_locally(
            specs, options, partial(show_progress, quiet=quiet), partial(show_pool, quiet=quiet)
        )
        print_outcome(outcome, as_json=as_json)
        raise typer.Exit(outcome.exit_code)


@verb
def explain(
    suites: flags.Names,
    model: flags.Models = None,
    task: flags.Tasks = None,
    seed: flags.Seeds = None,
    sets: flags.Sets = None,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Explain why each run of suites would or would not be trained."""
    from msbench import datasets
    from msbench.cli.display import print_plan
    from msbench.reporting.compare.diff import build_plan_document, build_plan_page
    from msbench.reporting.compare.page import print_page
    from msbench.runs.plan import plan_runs

    specs = select_specs(expand_suites(suites), model, task, seed, sets)
    entries = plan_runs(specs, results, datasets.data_root())
    if as_json:
        console.out_json(build_plan_document(entries))
    else:
        print_plan(entries)
        print_page(build_plan_page(entries), after=True)
