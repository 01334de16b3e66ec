"""Mean mixing distances, which measure how far back a model looks, compared layer by layer.

::

    <run folder>/mixing/*.json -> Distances -> chosen -> layers -> draw

Distances are comparable only if measured in the same way, so one set of options is drawn and reported.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from msbench.reporting.figures.look import (
    STEPS,
    SeriesStyle,
    axis_label,
    grid_panels,
    scaled_axis,
    slimmer,
    title,
)
from msbench.reporting.figures.names import clean
from msbench.reporting.figures.series import Series, grouped
from msbench.reporting.figures.style import BARS
from msbench.results.mixing_documents import Distances
from msbench.stats import spread


@dataclass(frozen=True)
class LayerPoint:
    """One layer of one run, in tokens, or the mean over the seeds of a model where it has several.

    `distance` is None where no gradient reached the layer, and a layer that any seed lacks has no mean.
    `sd` is over the `n` values that the measurement averaged for a run, and over the seeds for their mean.
    """

    table: str
    task: str
    label: str
    name: str
    model: str
    kind: Literal["seed", "mean"]
    run_id: str
    seed: int | None
    layer: int
    distance: float | None
    sd: float | None
    n: int | None
    trained: bool
    default_options: bool


def chosen(documents: Mapping[str, Sequence[Distances]]) -> tuple[dict[str, Distances], tuple[str, ...]]:
    """Return the newest measurement of each run with one set of options, and notes on those left out.

    Trained models are preferred to untrained, default options to others, then options that most runs have.
    """
    by_way = grouped((_way(each), each) for of_run in documents.values() for each in of_run)
    if not by_way:
        return {}, ()
    best = min(
        by_way, key=lambda way: (not way[0], not by_way[way][0].default_options, -len(by_way[way]), way[1])
    )
    kept = {
        run_id: match
        for run_id, of_run in documents.items()
        if (match := next((each for each in reversed(of_run) if _way(each) == best), None))
    }
    others = sum(map(len, documents.values())) - len(kept)
    notes = [f"{others} measured in another way left out"] if others else []
    if not by_way[best][0].default_options:
        options = json.dumps(dict(by_way[best][0].options), sort_keys=True)
        notes.append(f"measured with the options {clean(options)}")
    if not best[0]:
        notes.append("the models are not trained")
    return kept, tuple(notes)


def _way(measured: Distances) -> tuple[bool, str]:
    """Return the key that two comparable measurements share."""
    return measured.trained, measured.options_digest


def layers(series: Iterable[Series], documents: Mapping[str, Distances]) -> tuple[LayerPoint, ...]:
    """Return a row per layer of every run, then a row per layer of the mean of a model with several."""
    found: list[LayerPoint] = []
    for each in series:
        runs = [
            _layers(each, record.run_id, record.seed, documents[record.run_id])
            for record in each.runs
            if record.run_id in documents
        ]
        found += [layer for run in runs for layer in run]
        found += _mean(runs)
    return tuple(found)


def _layers(series: Series, run_id: str, seed: int, document: Distances) -> list[LayerPoint]:
    column = series.column
    names = (series.table, column.task, column.label, series.name, series.model)
    how = (document.trained, document.default_options)
    return [
        LayerPoint(*names, "seed", run_id, seed, number, each.mean, each.sd, each.n, *how)
        for number, each in enumerate(document.layers, 1)
    ]


def _mean(runs: Sequence[Sequence[LayerPoint]]) -> list[LayerPoint]:
    if len(runs) < 2:
        return []
    found = []
    for seeds in zip(*runs, strict=False):
        first, values = seeds[0], [layer.distance for layer in seeds if layer.distance is not None]
        if len(values) < len(seeds):
            continue
        names = (first.table, first.task, first.label, first.name, first.model)
        numbers = (first.layer, statistics.fmean(values), spread(values), len(values))
        found.append(LayerPoint(*names, "mean", "", None, *numbers, first.trained, first.default_options))
    return found


def draw(found: Sequence[LayerPoint], looks: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: layers on x, distances on y; thin lines are seeds, thick ones their mean."""
    tasks = grouped(((layer.task, layer.label), layer) for layer in found)
    names = dict.fromkeys(layer.name for layer in found)
    figure, axes = grid_panels(len(tasks), [looks[name] for name in names])
    for panel, ((_, label), of_task) in zip(axes, tasks.items(), strict=True):
        _panel(panel, of_task, looks)
        title(panel, label)
        panel.set_xlabel("layer")
        panel.set_ylabel(axis_label("tokens"))
    slimmer(figure, len(names))
    return figure


def _panel(axes: Axes, found: Sequence[LayerPoint], looks: Mapping[str, SeriesStyle]) -> None:
    runs = grouped(((layer.name, layer.kind, layer.run_id), layer) for layer in found)
    averaged = {name for name, kind, _ in runs if kind == "mean"}
    for (name, kind, run_id), whole in runs.items():
        look, of_run = looks[name], [each for each in whole if each.distance is not None]
        numbers = [each.layer for each in of_run]
        distances = [each.distance for each in of_run if each.distance is not None]
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.line, "gid": f"{kind}-{run_id}"}
        if kind == "mean":
            spreads = [each.sd or 0.0 for each in of_run]
            axes.errorbar(numbers, distances, yerr=spreads, marker=look.marker, **BARS, **style)
        elif name in averaged:
            axes.plot(numbers, distances, linewidth=0.7, alpha=0.5, **style)
        else:
            axes.plot(numbers, distances, marker=look.marker, **style)
    axes.margins(x=0.1)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    known = [each.distance for each in found if each.distance is not None]
    scaled_axis(axes, known, which="y", ratio=30)
    if axes.get_yscale() == "linear":
        axes.set_ylim(bottom=0)
