"""The report as one HTML file that opens offline: tables, verdicts, figures, and the runs behind numbers."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from msbench import store
from msbench.errors import ConfigError
from msbench.report.cells import Table
from msbench.report.html.drawing import Figure
from msbench.report.html.gather import gather
from msbench.report.html.page import Page, render

__all__ = ["NAME", "Figure", "Page", "gather", "render", "write"]

NAME = "report.html"


def write(
    tables: Sequence[Table],
    out: Path,
    results: Path,
    *,
    made: datetime,
    suites: Sequence[str] = (),
    figures: Sequence[Figure] = (),
) -> Path:
    """Write ``report.html`` to the folder `out`, whole or not at all, and return its path.

    `results` holds the runs behind `tables`; `suites` are names or files as they were typed, so that commands
    name them so. Raises ConfigError where nothing can be written.
    """
    page = Page(tables, str(results), made, gather(tables, results, suites), figures)
    path = out / NAME
    try:
        store.write_atomically(path, render(page))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return path
