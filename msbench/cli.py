"""The verbs: parse, call, print, exit. Nothing heavy is imported before a verb needs it."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from msbench import __version__, console
from msbench.errors import ConfigError, ExitCode, GateFailed, MsbenchError, Undecided

if TYPE_CHECKING:
    from msbench.agenda import Entry
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
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="Start of a run's id, suite:task:model[:seed], or its folder.")
]
SuiteFile = Annotated[
    Path | None, typer.Option("--suite", help="The suite's file, where its name does not find it.")
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
            _leave_stdout()
            raise typer.Exit(ExitCode.OK) from None
        except KeyboardInterrupt:
            console.say("msbench: interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    return guarded


def _leave_stdout() -> None:
    """The reader has what it wanted (`| head`): the interpreter must not complain at its own exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
        _print_agenda(_agenda(specs, results, fresh=fresh), as_json, estimate=True)
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
    entries = _agenda(specs, results)
    from msbench.comparison import explanation, page

    if as_json:
        console.out_json(explanation.document(entries))
    else:
        _print_agenda(entries, as_json, estimate=False)
        page.print_page(explanation.pages(entries), after=True)


@app.command()
@verb
def show(
    run_id: Run,
    suite: SuiteFile = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """One run: its result, the command that makes it again, and all that is known of it."""
    from msbench import data
    from msbench.comparison import lookup, page
    from msbench.comparison import show as shown

    found = lookup.find(results, run_id)
    if found.note:
        console.say(f"msbench: {found.note}")
    if as_json:
        console.out_json(found.record.model_dump(mode="json"))
    else:
        page.print_page(shown.pages(shown.look_at(found, results, data.data_root(), suite)))


@app.command()
@verb
def diff(first: Run, second: Run, results: Results = RESULTS, as_json: Json = False) -> None:
    """Two runs: what differs between them, and a paired test of their results. Ends in 0 either way."""
    from msbench.comparison import diff as differences
    from msbench.comparison import lookup, page

    found = [lookup.find(results, name) for name in (first, second)]
    for note in dict.fromkeys(each.note for each in found if each.note):
        console.say(f"msbench: {note}")
    difference = differences.difference(*found)
    if as_json:
        console.out_json(differences.as_dict(difference))
    else:
        page.print_page(differences.pages(difference))


@app.command()
@verb
def trace(
    cell: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE:ROW:COLUMN", help="A cell; three words where a name has a colon in it."
        ),
    ],
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """A number of a table: where the paper has it, which runs it is made from, what makes it again."""
    from msbench import data
    from msbench.comparison import address, page, trace_page
    from msbench.comparison import trace as traces

    found = traces.trace(address.locate(cell, results), results, data.data_root())
    if as_json:
        console.out_json(trace_page.as_dict(found))
    else:
        page.print_page(trace_page.pages(found))


@app.command()
@verb
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Suites, the paper's tables (ablation, table-5, 5) or paper for all; none: what has runs.",
        ),
    ] = None,
    latex: Annotated[bool, typer.Option("--latex/--no-latex", help="Write LaTeX tables.")] = False,
    csv: Annotated[bool, typer.Option("--csv/--no-csv", help="Write CSV, long and wide.")] = False,
    html: Annotated[
        bool, typer.Option("--html/--no-html", help="Write one page with every run, to open offline.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", help="Folder for files; made where it is absent.")] = Path(
        "reports"
    ),
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Write figures, and their numbers as CSV.")
    ] = False,
    initialisation: Annotated[
        bool,
        typer.Option("--initialisation/--no-initialisation", help="Draw where MS-SSM's states start too."),
    ] = False,
    modified: Annotated[
        bool, typer.Option("--modified/--no-modified", help="Show runs under overrides, marked.")
    ] = False,
    against: Annotated[
        str | None, typer.Option("--against", help="Verdicts: paper, baseline, or a baseline file.")
    ] = None,
    versus: Annotated[
        str | None, typer.Option("--versus", metavar="MODEL", help="Mark what is better or worse than this.")
    ] = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """The paper's tables, reported beside measured."""
    from msbench import report as reports
    from msbench.report.load import HINT

    request = reports.Request(
        names or [], results, out, csv, latex, html, figures, initialisation, modified, against, versus
    )
    # Files first: a reader of the table that goes away must not cost them.
    done = reports.carry_out(request)
    if as_json:
        console.out_json([table.as_dict() for table in done.tables])
    else:
        reports.print_tables(done.tables)
    for line in (*map(str, done.written), *done.notes):
        console.say(line)
    if not names:
        console.say(f"msbench: {HINT}")
    if not any(table.measured for table in done.tables):
        raise Undecided(
            "nothing was measured under the protocol; 'msbench run SUITE' makes runs, and"
            " 'msbench list runs' shows what became of them"
        )


@app.command()
@verb
def check(
    suites: Annotated[list[str] | None, typer.Argument(help="Suites; none means all that have runs.")] = None,
    against: Annotated[
        str, typer.Option("--against", metavar="paper|baseline|FILE", help="What must still hold.")
    ] = "baseline",
    junit: Annotated[Path | None, typer.Option("--junit", help="File for JUnit XML.")] = None,
    github: Annotated[
        bool, typer.Option("--github/--no-github", help="Annotations and the step's summary.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict/--no-strict", help="Undecided, missing and improved fail, too.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate/--no-calibrate", help="Only print the margins that the seeds bear.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Do results still hold? The gate for CI: pass, fail, or not decided by these seeds."""
    from msbench import check as gate

    if calibrate:
        if junit or github or strict:
            raise ConfigError("--calibrate judges nothing: it goes without --junit, --github and --strict")
        _print_calibration(suites or [], against, results, as_json)
        return
    try:
        checked = gate.check(suites or [], against, results)
    except Undecided as error:
        if strict:
            raise GateFailed(str(error)) from None
        raise
    # Files first: a reader of the table that goes away must not cost them.
    gate.publish(checked, to_junit=junit, to_github=github, strict=strict)
    try:
        if as_json:
            console.out_json(gate.as_dict(checked, strict=strict))
        else:
            gate.print_checked(checked)
    except BrokenPipeError:
        # The verdict stands whoever reads it: `check | head` must not turn a failure into a success.
        _leave_stdout()
    raise typer.Exit(gate.code(checked, strict=strict))


@app.command()
@verb
def baseline(
    suite: Annotated[str, typer.Argument(help="A suite's name or the path of its YAML file.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="File; baseline/SUITE.yaml in the results if unset.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace/--no-replace", help="Write over entries with other numbers.")
    ] = False,
    any_hardware: Annotated[
        bool, typer.Option("--any-hardware/--no-any-hardware", help="Entries speak for all hardware.")
    ] = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Write down what results are to be held against; prints old -> new."""
    from msbench.check import baseline as baselines

    path, changes = baselines.write(suite, results, out, replace=replace, any_hardware=any_hardware)
    if as_json:
        console.out_json(baselines.as_dicts(changes))
    elif changes:
        console.out_rows(baselines.HEADER, baselines.rows(changes))
    console.say(f"{path}: {'written' if changes else 'unchanged'}")


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


def _print_calibration(suites: list[str], against: str, results: Path, as_json: bool) -> None:
    from msbench.check import calibration

    learned = calibration.learn(suites, against, results)
    if as_json:
        console.out_json(calibration.as_dicts(learned))
        return
    console.out_rows(calibration.HEADER, calibration.rows(learned))
    console.out(f"\n{calibration.suggestion(learned)}")


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
        console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows])


if __name__ == "__main__":
    main()
