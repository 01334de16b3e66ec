"""The figures of a report, each with its numbers in a CSV next to it.

::

    Report -> Series -> rows (the data step of a module) -> Figure (its draw step)

Each figure has a module: pure functions from values to rows (frozen dataclasses, the lines of the CSV), and
from rows to a picture. Figures that lack data are in the list too, with the reason.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from msbench.reporting.figures import scan
from msbench.reporting.figures.file import FigureFile, write
from msbench.reporting.figures.kinds import KINDS, figure
from msbench.reporting.figures.look import looks
from msbench.reporting.figures.series import series_of
from msbench.reporting.render.formatting import make_safe, number_repeats
from msbench.reporting.tables.cells import Report

__all__ = ["KINDS", "WITHOUT_MODELS", "FigureFile", "figures", "write"]

WITHOUT_MODELS = tuple(name for name in KINDS if name != "initialisation")
"""The kinds that build no model, and so do not import PyTorch."""


def figures(report: Report, kinds: Sequence[str] = WITHOUT_MODELS) -> list[FigureFile]:
    """Return the figures of these kinds of each table, then those of the benchmarks in ``results/bench``.

    A model has the same style in all of them, and no two have the same `stem`.
    """
    series = [series_of(report, table) for table in report.tables]
    seen = looks(each.name for of_table in series for each in of_table if each.shown)
    found = [
        figure(kind, table, of_table, seen, report.find_folder)
        for table, of_table in zip(report.tables, series, strict=True)
        for kind in kinds
    ]
    for path in sorted((report.results / "bench").glob("scan*.json")):
        found += _of_scan(path)
    stems = number_repeats((each.stem for each in found), "{}-{}")
    return [replace(each, stem=stem) for each, stem in zip(found, stems, strict=True)]


def _of_scan(path: Path) -> list[FigureFile]:
    """Return the two figures of a scan benchmark, or one with the reason why its document is invalid."""
    found, problem = scan.read(path)
    stem = f"bench-{make_safe(path.stem)}"
    if found is None:
        return [FigureFile(stem, "Speed of the scan", reason=problem)]
    lengths = FigureFile(f"{stem}-length", "Time of the scan by length", reason="no length was varied")
    if found.lengths:
        said = f"Time of one call of the scan over the length on {found.machine}, both logarithmic."
        draw = partial(scan.draw_lengths, found.lengths)
        lengths = replace(
            lengths, description=f"{said} {scan.BANDS}", rows=found.lengths, draw=draw, reason=""
        )
    backends = FigureFile(
        f"{stem}-backends", "Backends of the scan", notes=found.notes, reason="none was measured"
    )
    if found.backends:
        said = f"Time and peak memory of each backend of the scan on {found.machine}."
        draw = partial(scan.draw_backends, found.backends)
        backends = replace(backends, description=said, rows=found.backends, draw=draw, reason="")
    return [lengths, backends]
