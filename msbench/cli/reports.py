"""Verbs that judge results together: tables, the gate, its baselines."""

from pathlib import Path
from typing import Annotated

import typer

from msbench import console
from msbench.cli.app import REPORTS, RESULTS, Json, Name, Out, Results, verb
from msbench.errors import ConfigError, GateFailed, Undecided

Tables = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Suites, the paper's tables (ablation, table-5, 5) or paper for all; none: what has runs.",
    ),
]
Latex = Annotated[bool, typer.Option("--latex/--no-latex", help="Write LaTeX tables.")]
Csv = Annotated[bool, typer.Option("--csv/--no-csv", help="Write CSV, long and wide.")]
Html = Annotated[
    bool, typer.Option("--html/--no-html", help="Write one page with every run, to open offline.")
]
Figures = Annotated[
    bool, typer.Option("--figures/--no-figures", help="Write figures, and their numbers as CSV.")
]
Initialisation = Annotated[
    bool, typer.Option("--initialisation/--no-initialisation", help="Draw where MS-SSM's states start too.")
]
Modified = Annotated[
    bool, typer.Option("--modified/--no-modified", help="Show runs under overrides, marked.")
]
Against = Annotated[
    str | None, typer.Option("--against", help="Verdicts: paper, baseline, or a baseline file.")
]
Versus = Annotated[
    str | None, typer.Option("--versus", metavar="MODEL", help="Mark what is better or worse than this.")
]
Validation = Annotated[
    bool, typer.Option("--validation/--no-validation", help="Of that split, which settings are chosen by.")
]


@verb
def report(
    names: Tables = None,
    latex: Latex = False,
    csv: Csv = False,
    html: Html = False,
    out: Out = REPORTS,
    figures: Figures = False,
    initialisation: Initialisation = False,
    modified: Modified = False,
    against: Against = None,
    versus: Versus = None,
    validation: Validation = False,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Report the paper's tables, reported next to measured numbers."""
    from msbench.reporting.command import run_report
    from msbench.reporting.render.terminal import print_tables
    from msbench.reporting.tables.load import HINT, ReportOptions

    judge = None
    if against is not None:
        from msbench.gate.check import verdicts

        judge = verdicts(names or [], against, results)
    options = ReportOptions(
        names=names or (),
        results=results,
        validation=validation,
        modified=modified,
        judge=judge,
        versus=versus,
        out=out,
        csv=csv,
        latex=latex,
        html=html,
        figures=figures,
        initialisation=initialisation,
    )
    # Files first: they are written even if the reader of the table goes away.
    done = run_report(options)
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
    """Check whether results still hold, as CI does: pass, fail, or not decided by these seeds."""
    from msbench.gate import ci as gate

    if calibrate:
        if junit or github or strict:
            raise ConfigError("--calibrate judges nothing: it goes without --junit, --github and --strict")
        _print_calibration(suites or [], against, results, as_json)
        return
    try:
        checked = gate.check(suites or [], against, results)
    except (ConfigError, Undecided) as error:
        # A file from an earlier check must not pass for this one's.
        nothing = gate.Checked("all", against, problem=error)
        gate.publish([nothing], to_junit=junit, to_github=github, strict=strict)
        if strict and isinstance(error, Undecided):
            raise GateFailed(str(error)) from None
        raise
    gate.publish(checked, to_junit=junit, to_github=github, strict=strict)
    if as_json:
        console.out_json(gate.as_dict(checked, strict=strict))
    else:
        gate.print_checked(checked)
    raise typer.Exit(gate.code(checked, strict=strict))


@verb
def baseline(
    suite: Name,
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
    """Write the baseline that later results are checked against; print old -> new."""
    from msbench.gate import baselines

    path, changes = baselines.write(suite, results, out, replace=replace, any_hardware=any_hardware)
    if as_json:
        console.out_json(baselines.as_dicts(changes))
    elif changes:
        console.out_rows(baselines.HEADER, baselines.rows(changes))
    console.say(f"{path}: {'written' if changes else 'unchanged'}")


def _print_calibration(suites: list[str], against: str, results: Path, as_json: bool) -> None:
    from msbench.gate import calibration

    learned = calibration.learn(suites, against, results)
    if as_json:
        console.out_json(calibration.as_dicts(learned))
        return
    console.out_rows(calibration.HEADER, calibration.rows(learned))
    console.out(f"\n{calibration.suggestion(learned)}")
