"""Runs selected by a command line, and the planned action for each."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msbench import console
from msbench.errors import Undecided

if TYPE_CHECKING:
    from msbench.config import RunSpec
    from msbench.runs.plan import PlannedRun


def plan(
    name: str,
    models: list[str] | None,
    tasks: list[str] | None,
    seeds: list[int] | None,
    overrides: list[str] | None,
) -> "list[RunSpec]":
    """Return the runs of a suite that options select; models that the suite does not list are reported."""
    from msbench.runs import suite as suites

    suite = suites.load(name)
    specs = suites.plan(suite, models or (), tasks or (), seeds or (), overrides or ())
    for text in suites.strangers(suite, specs):
        console.say(f"msbench: {text}")
    return specs


def agenda_of(specs: "list[RunSpec]", results: Path, *, fresh: bool = False) -> "list[PlannedRun]":
    """Return what would be done with each of these runs, and why."""
    from msbench import datasets as data
    from msbench.runs import plan as agenda

    entries = agenda.agenda(specs, results, data.data_root(), fresh=fresh)
    if not entries:
        raise Undecided("nothing is planned")
    return entries


def print_agenda(
    entries: "list[PlannedRun]", as_json: bool, *, estimate: bool, device: str = "cpu", devices: int = 1
) -> None:
    """Print a row for each run, with `estimate` also its size on so many devices."""
    from msbench.runs import plan as agenda

    rows: list[dict[str, Any]] = [
        agenda.describe(entry, estimate=estimate, device=device, devices=devices) for entry in entries
    ]
    if as_json:
        console.out_json(rows)
        return
    if estimate:
        rows = [_brief(row) for row in rows]
    # The reason may be a sentence: it goes under its row if there is no room next to it, as may the id.
    console.out_rows(tuple(rows[0]), [tuple(row.values()) for row in rows], below=2 if estimate else 1)


def _brief(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with its sizes, for 80 columns: with short names, and last what may go under the row."""
    from msbench.config.messages import format_bytes

    last = {"run": row["run"], "why": row["why"]}
    short = {"parameters": "params", "states per channel": "states"}
    sizes = {short.get(name, name): value for name, value in row.items() if name not in last}
    return sizes | {"memory": format_bytes(row["memory"])} | last
