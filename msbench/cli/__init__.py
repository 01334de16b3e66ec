"""The verbs: parse, call, print, exit. Nothing heavy is imported before a verb needs it."""

import sys
from collections.abc import Callable

from msbench import streams
from msbench.cli import compare, measure, reports, runs
from msbench.cli.app import app

__all__ = ["app", "main"]

VERBS: dict[str, Callable[..., None]] = {
    "list": runs.list_,
    "setup": runs.setup,
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
"""In the order in which ``--help`` lists them."""

for name, function in VERBS.items():
    app.command(name)(function)


def main() -> None:
    """Entry point of the ``msbench`` command."""
    streams.prepare()
    try:
        app()
    except SystemExit as end:
        sys.exit(streams.exit_code(end.code) if isinstance(end.code, int) else end.code)
