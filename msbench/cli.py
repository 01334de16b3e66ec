"""The verbs: parse, call, print, exit. Nothing heavy is imported before a verb needs it."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from msbench import __version__, console
from msbench.errors import ExitCode, MsbenchError, Undecided

if TYPE_CHECKING:
    from msbench.specs import RunSpec

P = ParamSpec("P")

app = typer.Typer(
    name="msbench",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: boxes drawn by rich take as long as all the rest of --help
    help="Benchmark suite and reproducibility harness for MS-SSM.",
    epilog=(
        "Exit codes: 0 done · 2 usage or configuration · 3 a run failed · 4 the gate failed · "
        "5 undecided or nothing measured · 6 data missing or damaged · 130/143 interrupted"
    ),
)

Results = Annotated[Path, typer.Option("--results", help="Folder that runs are kept in.")]
Json = Annotated[bool, typer.Option("--json/--no-json", help="One JSON document on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only results and errors.")]
Models = Annotated[list[str] | None, typer.Option("--model", help="Only this model; repeatable.")]
Tasks = Annotated[list[str] | None, typer.Option("--task", help="Only this task; repeatable.")]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", help="This seed instead of the suite's; repeatable.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override, such as train.lr=1e-3; repeatable."),
]
Scan = Annotated[
    str | None,
    typer.Option("--scan", help="Scan kernel: auto, triton, cpp, torch, mamba-ssm or reference."),
]
RESULTS = Path("results")


def verb(function: Callable[P, None]) -> Callable[P, None]:
    """End in one message and the documented exit code wherever msbench knows what went wrong."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except MsbenchError as error:
            console.say(f"msbench: {error}")
            raise typer.Exit(error.exit_code) from None
        except BrokenPipeError:
            # The reader has what it wanted (`| head`); the interpreter must not complain at its own exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.OK) from None
        except KeyboardInterrupt:
            console.say("msbench: interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return guarded


def main() -> None:
    """Entry point of the ``msbench`` command."""
    console.prepare()
    app()


def _version(wanted: bool) -> None:
    if wanted:
        console.out(f"msbench {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options that stand before the verb."""


@app.command("list")
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


@app.command()
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


@app.command()
@verb
def run(
    suite: Annotated[str, typer.Argument(help="A suite's name or the path of its YAML file.")],
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
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
    results: Results = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train, evaluate, record. What is finished is kept, what was stopped goes on."""
    specs = _plan(suite, model, task, seed, sets)
    from msbench.environment import accelerator

    on = accelerator(device)
    if scan is not None:
        from msbench.ops.scan_kernels import force

        force(scan, on)
    from msbench import agenda

    agenda.check_kernels(specs, on)
    if dry_run:
        _print_agenda(specs, results, as_json, estimate=True, fresh=fresh)
        return
    from msbench import data, launch
    from msbench.execute import Place
    from msbench.training.signals import SignalFlag

    with SignalFlag() as signals:
        place = Place(results, data.data_root(), device, signals)
        outcome = launch.run_here(specs, place, fresh=fresh, quiet=quiet)
    if as_json:
        console.out_json([record.model_dump(mode="json") for record in outcome.records])
    elif outcome.records:
        console.out_rows(*launch.summary(outcome.records))
    raise typer.Exit(outcome.exit_code)


@app.command()
@verb
def explain(
    suite: Annotated[str, typer.Argument(help="A suite's name or the path of its YAML file.")],
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Why each run of a suite would, or would not, be trained."""
    specs = _plan(suite, model, task, seed, sets)
    _print_agenda(specs, results, as_json, estimate=False)


@app.command()
@verb
def show(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or its first characters.")],
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """One record: settings, result, environment."""
    from msbench import catalogue

    record = catalogue.find_run(results, run_id)
    if as_json:
        console.out_json(record.model_dump(mode="json"))
    else:
        console.out_rows(("key", "value"), catalogue.details(record))


@app.command()
@verb
def report(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites; none means all that have runs.")] = None,
    latex: Annotated[bool, typer.Option("--latex/--no-latex", help="Write LaTeX tables.")] = False,
    csv: Annotated[bool, typer.Option("--csv/--no-csv", help="Write CSV, long and wide.")] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for files; made where it is absent.")] = Path(
        "reports"
    ),
    modified: Annotated[
        bool, typer.Option("--modified/--no-modified", help="Show runs under overrides, marked.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """The paper's tables, reported beside measured."""
    from msbench import report as reports

    tables = reports.load_tables(suites or [], results, include_modified=modified)
    # Files first: a reader of the table that goes away must not cost them.
    written = reports.write_all(tables, out, csv=csv, latex=latex)
    if as_json:
        console.out_json([table.as_dict() for table in tables])
    else:
        for table in tables:
            reports.print_table(table)
    for path in written:
        console.say(str(path))
    if not any(table.measured for table in tables):
        raise Undecided(
            "nothing was measured under the protocol; `msbench list runs` shows what became of runs"
        )


@app.command()
@verb
def mixing(
    suite: Annotated[str, typer.Argument(help="A suite's name or the path of its YAML file.")],
    model: Models = None,
    task: Tasks = None,
    seed: Seeds = None,
    sets: Sets = None,
    untrained: Annotated[
        bool, typer.Option("--untrained/--trained", help="Models as they start, instead of finished runs.")
    ] = False,
    examples: Annotated[int, typer.Option(help="Test examples, always the same.")] = 64,
    channels: Annotated[
        int | None, typer.Option(help="Output channels, always the same; all if unset.")
    ] = None,
    scope: Annotated[str, typer.Option(help="layers, each by itself, or the whole network")] = "layers",
    entries: Annotated[str, typer.Option(help="Weight of a position: l1, l2 or same-channel.")] = "l1",
    normaliser: Annotated[str, typer.Option(help="absolute, or printed as in the paper")] = "absolute",
    residual: Annotated[
        bool, typer.Option("--residual/--no-residual", help="Layers with their residual.")
    ] = False,
    position: Annotated[str, typer.Option(help="Output position: last, or a number from 0.")] = "last",
    dtype: Annotated[str, typer.Option(help="float32 or float64")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    fresh: Annotated[
        bool, typer.Option("--fresh/--no-fresh", help="Measure again what was measured before.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv/--no-csv", help="Write CSV: a row a layer and sequence.")
    ] = False,
    figure: Annotated[
        bool, typer.Option("--figure/--no-figure", help="Write figures: SVG, PDF, PNG.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for files; made where it is absent.")] = Path(
        "reports"
    ),
    results: Results = RESULTS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Mean mixing distance of each layer: how far back its last output draws."""
    from msbench.mixing.options import from_command_line

    options = from_command_line(
        position,
        examples=examples,
        channels=channels,
        scope=scope,
        entries=entries,
        normaliser=normaliser,
        residual=residual,
        dtype=dtype,
    )
    specs = _plan(suite, model, task, seed, sets)
    from msbench.mixing import command, files, table

    again = " ".join([suite, *(f"--set {text}" for text in sets or ())])
    request = command.Request(results, options, not untrained, device, fresh, quiet, again)
    found = command.carry_out(specs, request)
    stem = specs[0].suite + ("-untrained" if untrained else "")
    written = files.write(found.documents, out, stem, csv=csv, figure=figure) if found.documents else []
    if as_json:
        console.out_json(found.documents)
    else:
        table.print_documents(found.documents)
    for path in written:
        console.say(str(path))
    if found.missing:
        raise Undecided("not measured, for want of a trained model:\n" + "\n".join(found.missing))


@app.command()
@verb
def bench(
    what: Annotated[str, typer.Argument(help="scan, step (whole training steps) or data")] = "scan",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    threads: Annotated[
        int | None, typer.Option(help="Threads of the CPU; PyTorch's number if unset.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(help="Turns of each; 5, quick 3.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this scan, model or dataset; repeatable.")
    ] = None,
    b: Annotated[int | None, typer.Option("--b", help="scan: examples.")] = None,
    length: Annotated[int | None, typer.Option("--l", help="scan: steps.")] = None,
    m: Annotated[int | None, typer.Option("--m", help="scan: streams.")] = None,
    d: Annotated[int | None, typer.Option("--d", help="scan: channels.")] = None,
    n: Annotated[int | None, typer.Option("--n", help="scan: states of a stream.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="step: quick, deep or listops (large); repeatable.")
    ] = None,
    scaling: Annotated[
        bool, typer.Option("--scaling/--no-scaling", help="scan: time over length and states.")
    ] = True,
    quick: Annotated[bool, typer.Option("--quick/--no-quick", help="Smaller: below a minute.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="File for the JSON document.")] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", help="An older document; ratios to it.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Speed and memory beside public implementations, checked in the same run."""
    from msbench.bench import command, document, terminal

    sizes, names, shapes = (b, length, m, d, n), tuple(only or ()), tuple(shape or ())
    request = command.Request(
        what, device, threads, repeats, names, sizes, shapes, scaling, quick, out, compare, quiet
    )
    found = command.carry_out(request)
    if as_json:
        console.out_json(found)
    else:
        terminal.print_document(found)
    if not document.measured_rows(found):
        raise Undecided("nothing could be measured: the reasons stand with the rows")


@app.command()
@verb
def doctor(as_json: Json = False) -> None:
    """What this machine can do, and which kernels are in use."""
    from msbench import examine

    findings = examine.findings()
    if as_json:
        console.out_json(dict(findings))
    else:
        console.out_rows(("what", "found"), findings)


def _plan(
    name: str,
    models: list[str] | None,
    tasks: list[str] | None,
    seeds: list[int] | None,
    overrides: list[str] | None,
) -> "list[RunSpec]":
    from msbench.suite import load, plan, strangers

    suite = load(name)
    specs = plan(suite, models or (), tasks or (), seeds or (), overrides or ())
    for text in strangers(suite, specs):
        console.say(f"msbench: {text}")
    return specs


def _print_agenda(
    specs: "list[RunSpec]", results: Path, as_json: bool, *, estimate: bool, fresh: bool = False
) -> None:
    from msbench import agenda, data

    entries = agenda.agenda(specs, results, data.data_root(), fresh=fresh)
    rows: list[dict[str, Any]] = [agenda.describe(entry, estimate=estimate) for entry in entries]
    if not rows:
        raise Undecided("nothing is planned")
    if as_json:
        console.out_json(rows)
    else:
        console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows])


if __name__ == "__main__":
    main()
