"""The figures of a report, each as PDF, PNG and SVG with its numbers in a CSV.

::

    Report -> Series -> rows (the data step of a module) -> Figure (its draw step)

Each kind of figure has pure functions from values to rows (frozen dataclasses, the lines of the CSV), and
from rows to a picture. Figures that lack data are in the list too, with the reason.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from msbench.reporting.figures import accuracy, breakdown, curves, initialisation, mixing, scan
from msbench.reporting.figures.series import Series, clean, collect_series
from msbench.reporting.figures.style import (
    FORMATS,
    SeriesStyle,
    apply_style,
    assign_styles,
    render_picture,
    render_svg_element,
)
from msbench.reporting.render.formatting import make_safe, make_stem, number_repeats
from msbench.reporting.tables.breakdown import NOTES
from msbench.reporting.tables.cells import Report, Table
from msbench.reporting.tables.ranking import INTERVALS, rank_models
from msbench.results.files import encode_csv, write_files
from msbench.results.metrics_log import read_log
from msbench.results.mixing_documents import read_distances
from msbench.results.record import RunRecord

__all__ = ["KINDS", "WITHOUT_MODELS", "FigureFile", "make_figures", "write_figures"]

Folder = Callable[[RunRecord], Path]
"""A function from a record to the folder with the files of its run."""
Drawn = tuple[Sequence[Any], Sequence[str]]
"""Rows, and notes on what is missing from them."""
PARETO = "The broken line joins the models that none surpasses at less cost."
SEED_BARS = "Bars are one standard deviation over seeds; a single seed has none."


@dataclass(frozen=True)
class FigureFile:
    """A figure that can be drawn, or the reason why there is none.

    `stem` names its files. `description` describes in words what is drawn, `notes` what is not drawn and why.
    `rows` are the numbers, of one dataclass, and become the CSV. `reason` is empty where there is a figure.
    `kind` is the key of its kind and `table` the id of its table, where it has them.
    """

    stem: str
    title: str
    description: str = ""
    notes: tuple[str, ...] = ()
    rows: tuple[Any, ...] = ()
    draw: Callable[[], Figure] = Figure
    reason: str = ""
    kind: str = ""
    table: str = ""

    @property
    def caption(self) -> str:
        """Description and notes as one text."""
        return " ".join((self.description, *(f"{note}." for note in self.notes)))

    def figure(self) -> Figure:
        """Draw the figure anew, with one layout for all formats."""
        with apply_style():
            drawn = self.draw()
            drawn.draw_without_rendering()
            drawn.set_layout_engine("none")
        return drawn

    def csv(self) -> bytes:
        """Return the CSV: a line per row, numbers unrounded, names unchanged, missing values empty."""
        header = [field.name for field in fields(self.rows[0])]
        return encode_csv(header, ([_format_field(value) for value in astuple(row)] for row in self.rows))

    def pictures(self) -> dict[str, bytes]:
        """Return the bytes of ``pdf``, ``png`` and ``svg``."""
        drawn = self.figure()
        return {form: render_picture(drawn, form) for form in FORMATS}

    def svg(self, prefix: str = "") -> str:
        """Return the figure as an element of an HTML page, in light and dark mode, ids after `prefix`."""
        return render_svg_element(self.figure(), title=self.title, description=self.caption, prefix=prefix)


def _format_field(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value) if isinstance(value, bool) else value


@dataclass(frozen=True)
class Kind:
    """A kind of figure of a table. `reason` explains why there is none if `data` returns no rows."""

    title: str
    description: str
    data: Callable[[Table, Sequence[Series], Folder], Drawn]
    draw: Callable[[Sequence[Any], Mapping[str, SeriesStyle]], Figure]
    reason: str


def _rank_results(table: Table) -> Drawn:
    rankings = rank_models(table)
    rows = [row for each in rankings for row in (*each.rows, *each.rules)]
    return rows, [clean(note) for each in rankings for note in each.notes]


def _read_curves(series: Sequence[Series], folder: Folder) -> Drawn:
    logs = {identity: read_log(path) for identity, path in _list_folders(series, folder).items()}
    rows = curves.collect_points(series, {identity: epochs for identity, (epochs, _) in logs.items()})
    return rows, [*curves.describe_beyond(rows), *(problem for _, problem in logs.values() if problem)]


def _read_mixing(series: Sequence[Series], folder: Folder) -> Drawn:
    read = {identity: read_distances(path) for identity, path in _list_folders(series, folder).items()}
    kept, notes = mixing.choose_measurements({identity: found for identity, (found, _) in read.items()})
    # The same runs may be in a column of results and in one of distances: one panel shows them.
    own = {each.column.places for each in series if each.column.source == "mixing"}
    shown = [each for each in series if each.column.source == "mixing" or each.column.places not in own]
    return mixing.collect_layers(shown, kept), [
        *notes,
        *(each for _, problems in read.values() for each in problems),
    ]


def _list_folders(series: Sequence[Series], folder: Folder) -> dict[str, Path]:
    return {record.run_id: folder(record) for each in series for record in each.runs}


KINDS: Mapping[str, Kind] = {
    "results": Kind(
        "results",
        "Measured as dots, reported as diamonds, trivial rules as lines; the best model is on top."
        f" {INTERVALS} Small dots are single seeds; an arrow points to one beyond the scale.",
        lambda table, *_: _rank_results(table),
        accuracy.draw_results,
        "no model has a result that was measured as planned",
    ),
    "curves": Kind(
        "learning curves",
        "Metric on the validation split after each epoch (in training, if there is but one) and loss in"
        " training. Thin lines are seeds, thick ones their mean; of many models only means are shown. A run"
        " that failed ends in a cross, and one beyond the scale in an arrow.",
        lambda _, *given: _read_curves(*given),
        curves.draw_curves,
        "no run has a log of epochs",
    ),
    "parameters": Kind(
        "accuracy against parameters",
        f"What each model reaches on the test split against its number of parameters. {PARETO} {SEED_BARS}",
        lambda _, series, __: accuracy.compare_parameters(series),
        accuracy.draw_parameters,
        "no model has both a measured number and a number of parameters",
    ),
    "time": Kind(
        "accuracy against training time",
        f"What each model reaches on the test split against the time that it trained. {PARETO} {SEED_BARS}",
        lambda _, series, __: accuracy.compare_times(series),
        accuracy.draw_time,
        "no model has both a measured number and a time of training",
    ),
    "reported": Kind(
        "reported against measured",
        "Numbers as reported, across, and as measured, upwards; on the line both are equal. Bars are one"
        " standard deviation; a single seed has none.",
        lambda _, series, __: accuracy.pair_with_reported(series),
        accuracy.draw_reported,
        "no cell has both a reported and a measured number",
    ),
    "mixing": Kind(
        "mean mixing distance by layer",
        "Mean mixing distance of each layer, the first on the left. Thin lines are seeds, thick ones their"
        " mean with bars of one standard deviation over them. Dashed lines with hollow markers are the models"
        " before training; a diamond at the right edge is what the paper reports, a mean over layers.",
        lambda _, *given: _read_mixing(*given),
        mixing.draw_layers,
        "no run has a measured mixing distance; `msbench mixing` measures it",
    ),
    "initialisation": Kind(
        "where the states start",
        "Poles |exp(Δ A)| of the first layer before training, a row a stream, the finest on top: 0 forgets at"
        " once, 1 never.",
        lambda _, series, __: initialisation.collect_dots(series),
        initialisation.draw_dots,
        "no run is of a model with the states of MS-SSM",
    ),
}

BREAKDOWN = Kind(
    "",
    f"Each point is the accuracy on the examples of a bin, at their mean. {INTERVALS} The dotted line is the"
    " share of the most common label of each bin.",
    lambda table, series, _: (
        breakdown.collect_points(table.by, series),
        [note for note in table.notes if note not in NOTES],
    ),
    breakdown.draw_points,
    "no run has this property of its examples",
)
"""The one kind of a table by a property."""
WITHOUT_MODELS = tuple(name for name in KINDS if name != "initialisation")
"""The kinds that build no model, and so do not import PyTorch."""


def make_figures(report: Report, kinds: Sequence[str] = WITHOUT_MODELS) -> list[FigureFile]:
    """Return the figures of these kinds of each table, then those of the benchmarks in ``results/bench``.

    A table by a property has one figure, of its own kind. A model has the same style in all of them, and no
    two have the same `stem`.
    """
    series = [collect_series(report, table) for table in report.tables]
    styles = assign_styles(each.name for of_table in series for each in of_table if each.is_drawable)
    found = [
        _make_figure(kind, table, of_table, styles, report.find_folder)
        for table, of_table in zip(report.tables, series, strict=True)
        for kind in (("accuracy",) if table.by else kinds)
    ]
    for path in sorted((report.results / "bench").glob("scan*.json")):
        found += _make_scan_figures(path)
    stems = number_repeats((each.stem for each in found), "{}-{}")
    return [replace(each, stem=stem) for each, stem in zip(found, stems, strict=True)]


def _make_figure(
    name: str, table: Table, series: Sequence[Series], styles: Mapping[str, SeriesStyle], folder: Folder
) -> FigureFile:
    kind = BREAKDOWN if table.by else KINDS[name]
    # Panels are in the order of the columns, not of the first results.
    in_order = sorted(series, key=lambda each: table.columns.index(each.column))
    rows, notes = kind.data(table, in_order, folder)
    return FigureFile(
        stem=f"{make_stem(table.id)}-{name}",
        title=clean(table.heading) + (f": {kind.title}" if kind.title else ""),
        description=kind.description if rows else "",
        notes=tuple(notes),
        rows=tuple(rows),
        draw=partial(kind.draw, rows, styles),
        reason="" if rows else kind.reason,
        kind=name,
        table=table.id,
    )


def _make_scan_figures(path: Path) -> list[FigureFile]:
    """Return the two figures of a scan benchmark, or one with the reason why its document is invalid."""
    found, problem = scan.read_scan(path)
    stem = f"bench-{make_safe(path.stem)}"
    if found is None:
        return [FigureFile(stem, "Speed of the scan", reason=problem)]
    over_length = f"Time of one call of the scan over the length on {found.machine}, both logarithmic."
    return [
        FigureFile(
            stem=f"{stem}-length",
            title="Time of the scan by length",
            description=f"{over_length} {scan.BANDS}",
            rows=found.lengths,
            draw=partial(scan.draw_lengths, found.lengths),
            reason="" if found.lengths else "no length was varied",
        ),
        FigureFile(
            stem=f"{stem}-backends",
            title="Backends of the scan",
            description=f"Time and peak memory of each backend of the scan on {found.machine}.",
            notes=found.notes,
            rows=found.backends,
            draw=partial(scan.draw_backends, found.backends),
            reason="" if found.backends else "none was measured",
        ),
    ]


def write_figures(figures: Iterable[FigureFile], out: Path) -> list[Path]:
    """Write ``<stem>.csv``, ``.pdf``, ``.png`` and ``.svg`` of every drawable figure by `write_files`."""
    files: dict[str, bytes] = {}
    for figure in figures:
        if not figure.reason:
            contents = {"csv": figure.csv(), **figure.pictures()}
            files |= {f"{figure.stem}.{kind}": data for kind, data in contents.items()}
    return write_files(files, out)
