"""Verbs for single results: one run, two runs, one cell."""

from typing import Annotated

import typer

from msbench import console
from msbench.cli import flags
from msbench.cli.app import verb


@verb
def show(
    run_id: flags.Run,
    suite: flags.SuiteFile = None,
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Show one run. Its result, the command that reproduces it, and all that is known of it."""
    from msbench import datasets
    from msbench.reporting.compare.lookup import find_run
    from msbench.reporting.compare.page import print_page
    from msbench.reporting.compare.show import build_page

    found = find_run(results, run_id)
    if found.note:
        console.say(f"msbench: {found.note}")
    if as_json:
        console.out_json(found.record.model_dump(mode="json"))
    else:
        print_page(build_page(found, results, datasets.data_root(), suite))


@verb
def diff(
    first: flags.Run, second: flags.Run, results: flags.Results = flags.RESULTS, as_json: flags.Json = False
) -> None:
    """Compare two runs. Their differences, and a paired test of their results; always ends with 0."""
    from msbench.reporting.compare.diff import build_document, build_page, compare_runs
    from msbench.reporting.compare.lookup import find_run
    from msbench.reporting.compare.page import print_page

    found = [find_run(results, name) for name in (first, second)]
    for note in dict.fromkeys(each.note for each in found if each.note):
        console.say(f"msbench: {note}")
    difference = compare_runs(*found)
    if as_json:
        console.out_json(build_document(difference))
    else:
        print_page(build_page(difference))


@verb
def trace(
    cell: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE:ROW:COLUMN", help="A cell; three words where a name has a colon in it."
        ),
    ],
    results: flags.Results = flags.RESULTS,
    as_json: flags.Json = False,
) -> None:
    """Trace a number of a table to its runs. Also to its place in the paper, and how to reproduce it."""
    from msbench import datasets
    from msbench.reporting.compare.lookup import find_cell
    from msbench.reporting.compare.page import print_page
    from msbench.reporting.compare.trace import build_document, build_page, trace_cell

    found = trace_cell(find_cell(cell, results), results, datasets.data_root())
    if as_json:
        console.out_json(build_document(found))
    else:
        print_page(build_page(found))
