"""The kinds of figures of a table: name, description, data, and the reason if there is none."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from msbench.reporting.figures import accuracy, agreement, curves, initialisation, mixing
from msbench.reporting.figures.file import FigureFile
from msbench.reporting.figures.look import SeriesStyle
from msbench.reporting.figures.names import clean
from msbench.reporting.figures.series import Series
from msbench.reporting.render.formatting import make_stem as file_stem
from msbench.reporting.tables.cells import Table
from msbench.results.metrics_log import read_log
from msbench.results.mixing_documents import read_distances
from msbench.results.record import RunRecord

Folder = Callable[[RunRecord], Path]
"""A function from a record to the folder with the files of its run."""
Drawn = tuple[Sequence[Any], Sequence[str]]
"""Rows, and notes on what is missing from them."""
SEED_BARS = "Bars are one standard deviation over seeds; a single seed has none."


@dataclass(frozen=True)
class Kind:
    """A kind of figure of a table. `reason` explains why there is none if `data` returns no rows."""

    title: str
    description: str
    data: Callable[[Sequence[Series], Folder], Drawn]
    draw: Callable[[Sequence[Any], Mapping[str, SeriesStyle]], Figure]
    reason: str


def figure(
    name: str, table: Table, series: Sequence[Series], seen: Mapping[str, SeriesStyle], folder: Folder
) -> FigureFile:
    """Return the figure of this kind, or the reason why the table has none."""
    kind = KINDS[name]
    # Panels are in the order of the columns, not of the first results.
    in_order = sorted(series, key=lambda each: table.columns.index(each.column))
    rows, notes = kind.data(in_order, folder)
    title, stem = f"{clean(table.heading)}: {kind.title}", f"{file_stem(table.id)}-{name}"
    if not rows:
        return FigureFile(stem, title, notes=tuple(notes), reason=kind.reason)
    return FigureFile(
        stem, title, kind.description, tuple(notes), tuple(rows), partial(kind.draw, rows, seen)
    )


def _curves(series: Sequence[Series], folder: Folder) -> Drawn:
    logs = {identity: read_log(path) for identity, path in _folders(series, folder).items()}
    rows = curves.points(series, {identity: epochs for identity, (epochs, _) in logs.items()})
    return rows, [problem for _, problem in logs.values() if problem]


def _mixing(series: Sequence[Series], folder: Folder) -> Drawn:
    read = {identity: read_distances(path) for identity, path in _folders(series, folder).items()}
    kept, notes = mixing.chosen({identity: found for identity, (found, _) in read.items()})
    # The same runs may be in a column of results and in one of distances: one panel shows them.
    own = {each.column.places for each in series if each.column.source == "mixing"}
    shown = [each for each in series if each.column.source == "mixing" or each.column.places not in own]
    return mixing.layers(shown, kept), [
        *notes,
        *(each for _, problems in read.values() for each in problems),
    ]


def _folders(series: Sequence[Series], folder: Folder) -> dict[str, Path]:
    return {record.run_id: folder(record) for each in series for record in each.runs}


KINDS: Mapping[str, Kind] = {
    "curves": Kind(
        "learning curves",
        "Metric on the validation split and loss in training after each epoch. Thin lines are seeds, thick"
        " ones their mean; a run that broke ends in a cross.",
        _curves,
        curves.draw,
        "no run has a log of epochs",
    ),
    "parameters": Kind(
        "accuracy against parameters",
        f"What each model reaches on the test split against its number of parameters. {SEED_BARS}",
        lambda series, _: accuracy.of_parameters(series),
        accuracy.draw_parameters,
        "no model has both a measured number and a number of parameters",
    ),
    "time": Kind(
        "accuracy against training time",
        f"What each model reaches on the test split against the time that it trained. {SEED_BARS}",
        lambda series, _: accuracy.of_time(series),
        accuracy.draw_time,
        "no model has both a measured number and a time of training",
    ),
    "reported": Kind(
        "reported against measured",
        "Numbers as reported, across, and as measured, upwards; on the line both are equal. Bars are one"
        " standard deviation; a single seed has none.",
        lambda series, _: agreement.pairs(series),
        agreement.draw,
        "no cell has both a reported and a measured number",
    ),
    "mixing": Kind(
        "mean mixing distance by layer",
        "Mean mixing distance of each layer, the first on the left. Thin lines are seeds, thick ones their"
        " mean with bars of one standard deviation over them.",
        _mixing,
        mixing.draw,
        "no run has a measured mixing distance; `msbench mixing` measures it",
    ),
    "initialisation": Kind(
        "where the states start",
        "Poles |exp(Δ A)| of the first layer before training, a row a stream, the finest on top: 0 forgets at"
        " once, 1 never.",
        lambda series, _: initialisation.of_series(series),
        initialisation.draw,
        "no run is of a model with the states of MS-SSM",
    ),
}
