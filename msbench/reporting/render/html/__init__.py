"""The report as one HTML file that opens offline: tables, verdicts, figures, and the runs behind numbers."""

from collections.abc import Sequence
from datetime import datetime

from msbench.reporting.render.html.drawing import Figure
from msbench.reporting.render.html.gather import gather
from msbench.reporting.render.html.page import Page, render
from msbench.reporting.tables.cells import Report

__all__ = ["NAME", "Figure", "Page", "gather", "page", "render"]

NAME = "report.html"


def page(
    report: Report, *, made: datetime, names: Sequence[str] = (), figures: Sequence[Figure] = ()
) -> Page:
    """Return the page of `report`, with the logs of its runs; `names` are suites and files as typed.

    `made` is the time shown on it; all else is determined by the report and the results folder.
    """
    return Page(report, made, gather(report, names), figures)
