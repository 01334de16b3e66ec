"""The verbs: parse, call, print, exit. Heavy modules are only imported when a verb needs them."""

import sys
from collections.abc import Callable

from msbench import console
from msbench.cli import compare, measure, reports, runs
from msbench.cli.app import app

__all__ = ["app", "main"]

VERBS: dict[str, Callable[..., None]] = {
    "list": runs.list_entries,
    "setup": runs.set_up,
    "run": runs.run,
    "explain": runs.explain,
    "report": reports.report,
    "check": reports.check,
    "baseline": reports.baseline,
    "mixing": measure.mixing,
    "show": compare.show,
    "diff": compare.diff,
    "trace": compare.trace,
    "bench": measure.bench,
    "doctor": measure.doctor,
}
"""Verbs in the order in which ``--help`` lists them."""

for name, function in VERBS.items():
    app.command(name)(function)


def main() -> None:
    """Run the ``msbench`` command: its entry point."""
    console.prepare_streams()
    try:
        app()
    except SystemExit as end:
        sys.exit(console.exit_code_of_streams(end.code) if isinstance(end.code, int) else end.code)
