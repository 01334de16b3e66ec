"""Verbs that judge results together: tables, the gate, its baselines."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msbench import console
from msbench.cli import flags
from msbench.cli.app import collect, verb
from msbench.cli.completion import complete_suites
from msbench.errors import ConfigError, GateFailed, Undecided

if TYPE_CHECKING:
    from msbench.gate.check import CheckOptions, GateResult

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Suites, the paper's tables (ablation, table-5, 5) or paper for all; none: what has runs.",
        autocompletion=complete_suites,
    ),
]
Latex = Annotated[bool, typer.Option(help="Write LaTeX tables.")]
Csv = Annotated[bool, typer.Option(help="Write CSV, long and wide.")]
ByRun = Annotated[bool, typer.Option(help="Write runs.csv: a row for each run, with its settings.")]
Html = Annotated[bool, typer.Option(help="Write one page with every run, to open offline.")]
Figures = Annotated[bool, typer.Option(help="Write figures, and their numbers as CSV.")]
Initialisation = Annotated[bool, typer.Option(help="Draw where MS-SSM's states start too.")]
Modified = Annotated[bool, typer.Option(help="Show runs under overrides, marked.")]
Against = Annotated[str | None, typer.Option(help="Show verdicts: paper, baseline, or a baseline file.")]
Versus = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Mark models that are better or worse than this.")
]
By = Annotated[
    str | None,
    typer.Option(metavar="PROPERTY", help="Show accuracy by length, or by another property of examples."),
]
Validation = Annotated[bool, typer.Option(help="Show validation scores, which settings are chosen by.")]


@verb
def report(
    names: Tables = None,
    latex: Latex = False,
    csv: Csv = False,
    by_run: ByRun = False,
    html: Html = False,
    out: flags.Out = flags.REPORTS,
    figures: Figures = False,
    initialisation: Initialisation = False,
    modified: Modified = False,
    against: Against = None,
    versus: Versus = None,
    by: By = None,
    validation: Validation = False,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Show the paper's tables: reported next to measured numbers."""
    given = locals()
    from msbench.reporting.command import run_report
    from msbench.reporting.render.terminal import print_tables
    from msbench.reporting.tables.load import HINT, ReportOptions

    judge = None
    if against is not None:
        from msbench.gate.check import build_judge

        judge = build_judge(names or [], against, results, _warn)
    # Files first: they are written even if the reader of the table goes away.
    done = run_report(collect(ReportOptions, {**given, "judge": judge}))
    if as_json:
        console.out_json([table.as_dict() for table in done.tables])
    else:
        print_tables(done.tables)
    for line in (*map(str, done.written), *done.notes):
        console.say(line)
    if not names:
        console.say(f"msbench: {HINT}")
    if not any(table.measured for table in done.tables):
        raise Undecided(
            "nothing was measured under the protocol; 'msbench run SUITE' makes runs, and"
            " 'msbench list runs' shows what became of them"
        )


@verb
def check(
    suites: Annotated[
        list[str] | None,
        typer.Argument(help="Suites; none means all that have runs.", autocompletion=complete_suites),
    ] = None,
    against: Annotated[
        str, typer.Option(metavar="paper|baseline|FILE", help="Reference to check against.")
    ] = "baseline",
    junit: Annotated[Path | None, typer.Option(help="File for JUnit XML.")] = None,
    github: Annotated[bool, typer.Option(help="Write annotations and the step's summary.")] = False,
    strict: Annotated[
        bool, typer.Option(help="Fail for undecided, missing and improved results, too.")
    ] = False,
    calibrate: Annotated[bool, typer.Option(help="Only print the margins that the seeds allow.")] = False,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Check whether results still hold. The gate for CI: pass, fail, or not decided by these seeds."""
    given = locals()
    from msbench.gate.check import CheckOptions, GateResult, SuiteVerdicts, check_suites

    options = collect(CheckOptions, given)
    if calibrate:
        if junit or github or strict:
            raise ConfigError("--calibrate judges nothing: it goes without --junit, --github and --strict")
        _print_calibration(options, as_json)
        return
    try:
        result = check_suites(options, _warn)
    except (ConfigError, Undecided) as error:
        # A file from an earlier check must not pass for this one's.
        _publish(GateResult((SuiteVerdicts("all", against, problem=error),), strict), junit, github)
        if strict and isinstance(error, Undecided):
            raise GateFailed(str(error)) from None
        raise
    _publish(result, junit, github)
    if as_json:
        console.out_json(result.as_dict())
    else:
        _print_verdicts(result)
    raise typer.Exit(result.exit_code)


def _publish(result: "GateResult", junit: Path | None, github: bool) -> None:
    """Write the JUnit file, and GitHub's annotations (on stderr, which it reads too) and summary."""
    from msbench.gate import ci
    from msbench.results.files import write_file

    if junit is not None:
        write_file(junit, ci.format_junit(result), "--junit")
    if github:
        for verdicts in result.suites:
            if (command := ci.format_annotation(verdicts, strict=result.strict)) is not None:
                console.say_command(command)
        ci.append_summary(result.suites)


def _print_verdicts(result: "GateResult") -> None:
    """Print the table to stdout, and a line of counts per suite to stderr."""
    from msbench.gate.verdicts import HEADER, count_verdicts

    if rows := [cell.row for verdicts in result.suites for cell in verdicts.cells]:
        console.out_rows(HEADER, rows, below=1)
    for verdicts in result.suites:
        for line in (*verdicts.warnings, *verdicts.stale):
            _warn(f"{verdicts.suite}: {line}")
        if verdicts.problem is not None:
            _warn(f"{verdicts.suite}: not checked: {verdicts.problem}")
        else:
            _warn(f"{verdicts.suite} against {verdicts.against}: {count_verdicts(verdicts.cells)}")


@verb
def baseline(
    suite: flags.Name,
    out: Annotated[
        Path | None, typer.Option(help="File; baseline/SUITE.yaml in the results if unset.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Replace entries with other numbers.")] = False,
    any_hardware: Annotated[bool, typer.Option(help="Entries apply to all hardware.")] = False,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Record results as the baseline of later ones. Prints old -> new."""
    given = locals()
    from msbench.gate.baselines import HEADER, BaselineOptions, write_baseline

    path, changes = write_baseline(collect(BaselineOptions, given), _warn)
    if as_json:
        console.out_json([change.as_dict() for change in changes])
    elif changes:
        console.out_rows(HEADER, [change.row for change in changes])
    console.say(f"{path}: {'written' if changes else 'unchanged'}")


def _print_calibration(options: "CheckOptions", as_json: bool) -> None:
    from msbench.gate.calibration import HEADER, calibrate_suites

    tasks = calibrate_suites(options, _warn)
    if as_json:
        console.out_json([task.as_dict() for task in tasks])
        return
    console.out_rows(HEADER, [row for task in tasks for row in task.rows])
    console.out("\n" + "\n".join(task.suggestion for task in tasks))


def _warn(text: str) -> None:
    console.say(f"msbench: {text}")
