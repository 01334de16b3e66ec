"""Verbs for single results: one run, two runs, one cell."""

from typing import Annotated

import typer

from msbench import console
from msbench.cli.app import RESULTS, Json, Results, Run, SuiteFile, verb


@verb
def show(
    run_id: Run,
    suite: SuiteFile = None,
    results: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """One run: its result, the command that makes it again, and all that is known of it."""
    from msbench import datasets as data
    from msbench.reporting.compare import lookup, page
    from msbench.reporting.compare import show as shown

    found = lookup.find(results, run_id)
    if found.note:
        console.say(f"msbench: {found.note}")
    if as_json:
        console.out_json(found.record.model_dump(mode="json"))
    else:
        page.print_page(shown.pages(shown.look_at(found, results, data.data_root(), suite)))


@verb
def diff(first: Run, second: Run, results: Results = RESULTS, as_json: Json = False) -> None:
    """Two runs: what differs between them, and a paired test of their results. Ends in 0 either way."""
    from msbench.reporting.compare import diff as differences
    from msbench.reporting.compare import lookup, page

    found = [lookup.find(results, name) for name in (first, second)]
    for note in dict.fromkeys(each.note for each in found if each.note):
        console.say(f"msbench: {note}")
    difference = differences.difference(*found)
    if as_json:
        console.out_json(differences.as_dict(difference))
    else:
        page.print_page(differences.pages(difference))


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
    from msbench import datasets as data
    from msbench.reporting.compare import address, page, trace_page
    from msbench.reporting.compare import trace as traces

    found = traces.trace(address.locate(cell, results), results, data.data_root())
    if as_json:
        console.out_json(trace_page.as_dict(found))
    else:
        page.print_page(trace_page.pages(found))
