"""Mean mixing distances, which measure how far back a model looks, by layer and by distance.

::

    <run folder>/mixing/*.json -> Distances -> choose_measurements -> collect_layers -> draw_layers
    documents of ``msbench mixing`` -> draw_by_layer / draw_by_distance

Distances are comparable only if measured in the same way, so a report draws one set of options and names it:
trained models next to the same before training, and the number that the paper reports. Its bars are over
seeds; those of ``msbench mixing`` are over all rows of all seeds.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from msbench.reporting.figures.series import Series, clean, group
from msbench.reporting.figures.style import (
    BARS,
    GROUND,
    INK,
    STEPS,
    Format,
    SeriesStyle,
    apply_style,
    assign_styles,
    draw_runs,
    format_axis_label,
    make_task_panels,
    render_picture,
    scale_axis,
    thin_lines,
)
from msbench.reporting.tables.ranking import parse_reported
from msbench.results.mixing_documents import Distances, MixingDocument
from msbench.stats.summary import compute_sd

DOCUMENT_SIZE = (5.5, 3.4)
"""Width and height in inches of the figures of documents."""


@dataclass(frozen=True)
class LayerPoint:
    """One layer of one run, in tokens, or the mean over the seeds of a model where it has several.

    A reported number is of all layers, so its `layer` is None, and is shown next to those of a model.
    `distance` is None where no gradient reached the layer, and a layer that any seed lacks has no mean.
    `sd` is over the `n` values that the measurement averaged for a run, and over the seeds for their mean.
    """

    table: str
    task: str
    label: str
    name: str
    model: str
    kind: Literal["seed", "mean", "reported"]
    run_id: str
    seed: int | None
    layer: int | None
    distance: float | None
    sd: float | None
    n: int | None
    trained: bool
    default_options: bool


def choose_measurements(
    documents: Mapping[str, Sequence[Distances]],
) -> tuple[dict[str, list[Distances]], tuple[str, ...]]:
    """Return the newest measurements of each run with one set of options, and notes on those left out.

    They are of the trained model, then of the untrained. Options with which trained models were measured are
    preferred to others, then default options, then those that most runs have.
    """
    by_way = group((_get_way(each), each) for of_run in documents.values() for each in of_run)
    if not by_way:
        return {}, ()
    best = min(
        by_way, key=lambda way: (not way[0], not by_way[way][0].default_options, -len(by_way[way]), way[1])
    )
    # Of measurements in one way the last remains, which is the newest.
    newest = {run_id: {_get_way(each): each for each in of_run} for run_id, of_run in documents.items()}
    ways = dict.fromkeys((best, (False, best[1])))
    kept = {
        run_id: found
        for run_id, of_run in newest.items()
        if (found := [of_run[way] for way in ways if way in of_run])
    }
    others = sum(map(len, documents.values())) - sum(map(len, kept.values()))
    notes = [f"{others} measured in another way left out"] if others else []
    if not by_way[best][0].default_options:
        options = json.dumps(dict(by_way[best][0].options), sort_keys=True)
        notes.append(f"measured with the options {clean(options)}")
    if not best[0]:
        notes.append("the models are not trained")
    return kept, tuple(notes)


def _get_way(measured: Distances) -> tuple[bool, str]:
    """Return the key that two comparable measurements share."""
    return measured.trained, measured.options_digest


def collect_layers(
    series: Iterable[Series], documents: Mapping[str, Sequence[Distances]]
) -> tuple[LayerPoint, ...]:
    """Return a row per layer of every run, then a row per layer of the mean of a model with several.

    Those of trained models are followed by those of untrained, and by the reported number.
    """
    found: list[LayerPoint] = []
    for each in series:
        layers: list[LayerPoint] = []
        for trained in (True, False):
            runs = [
                _list_layers(each, record.run_id, record.seed, document)
                for record in each.runs
                for document in documents.get(record.run_id, ())
                if document.trained is trained
            ]
            layers += [layer for run in runs for layer in run]
            layers += _average_seeds(runs)
        reported = parse_reported(each.cell.reported) if each.column.source == "mixing" else None
        found += layers
        if layers and reported is not None:
            run = replace(layers[0], kind="reported", run_id="", seed=None, layer=None, trained=True)
            found.append(replace(run, distance=reported, sd=None, n=None))
    return tuple(found)


def _list_layers(series: Series, run_id: str, seed: int, document: Distances) -> list[LayerPoint]:
    column = series.column
    names = (series.table, column.task, column.label, series.name, series.model)
    how = (document.trained, document.default_options)
    return [
        LayerPoint(*names, "seed", run_id, seed, number, each.mean, each.sd, each.n, *how)
        for number, each in enumerate(document.layers, 1)
    ]


def _average_seeds(runs: Sequence[Sequence[LayerPoint]]) -> list[LayerPoint]:
    if len(runs) < 2:
        return []
    found = []
    for seeds in zip(*runs, strict=False):
        values = [layer.distance for layer in seeds if layer.distance is not None]
        if len(values) == len(seeds):
            mean, sd = statistics.fmean(values), compute_sd(values)
            place = {"kind": "mean", "run_id": "", "seed": None}
            found.append(replace(seeds[0], **place, distance=mean, sd=sd, n=len(values)))
    return found


def draw_layers(found: Sequence[LayerPoint], styles: Mapping[str, SeriesStyle]) -> Figure:
    """Draw a panel per task: layers on x, distances on y; thin lines are seeds, thick ones their mean.

    Lines of untrained models are dashed, with hollow markers, and a diamond at the edge is a reported number.
    """
    untrained = {name: replace(style, line="--") for name, style in styles.items()}
    keys = {
        "untrained": (SeriesStyle("untrained", INK, "", "--"), any(not each.trained for each in found)),
        "reported": (SeriesStyle("reported", INK, "D", ""), any(each.kind == "reported" for each in found)),
    }
    figure, panels = make_task_panels(found, styles, more=[style for style, used in keys.values() if used])
    for axes, layers in panels:
        lines = [each for each in layers if each.kind != "reported"]
        draw_runs(axes, [each for each in lines if not each.trained], untrained, "layer", "distance")
        for line in axes.get_lines():
            line.set(markerfacecolor=GROUND, markeredgewidth=1.0)
        draw_runs(axes, [each for each in lines if each.trained], styles, "layer", "distance")
        axes.margins(x=0.1)
        edge = axes.get_yaxis_transform()
        for mark in layers:
            if mark.kind == "reported" and mark.distance is not None:
                colour = styles[mark.name].colour
                axes.plot(
                    1.0, mark.distance, "D", color=colour, transform=edge, clip_on=False, gid="reported"
                )
        scale_axis(axes, [each.distance for each in layers if each.distance is not None], which="y", ratio=30)
        if axes.get_yscale() == "linear":
            axes.set_ylim(bottom=0)
        _set_layer_axis(axes, ticks=6)
        axes.set_ylabel(format_axis_label("tokens"))
    thin_lines(figure, len({layer.name for layer in found}))
    return figure


def _set_layer_axis(axes: Axes, *, ticks: int) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=STEPS, min_n_ticks=1))
    axes.set_xlabel("layer")


def group_seeds(documents: Iterable[MixingDocument]) -> dict[SeriesStyle, list[MixingDocument]]:
    """Group the documents of a model, trained or not, on a task by style, in order of first appearance.

    A model has one colour and marker. Untrained models have dashed lines.
    """
    documents = list(documents)
    several_tasks = len({each["task"] for each in documents}) > 1
    styles = assign_styles(each["model"] for each in documents)
    found = group(((each["task"], each["model"], each["trained"]), each) for each in documents)
    groups: dict[SeriesStyle, list[MixingDocument]] = {}
    for (task, model, trained), seeds in found.items():
        names = [model, *([task] if several_tasks else []), *([] if trained else ["untrained"])]
        style = replace(styles[model], label=" · ".join(names), line="-" if trained else "--")
        groups[style] = seeds
    return groups


def draw_by_layer(documents: Iterable[MixingDocument]) -> Figure:
    """Draw the mean distance of each layer with its standard deviation over all rows, and a dot per seed."""
    figure = Figure(figsize=DOCUMENT_SIZE)
    axes, groups = figure.add_subplot(), group_seeds(documents)
    for index, (style, seeds) in enumerate(groups.items()):
        # Shifted, so that bars of one layer do not hide each other.
        shift = 0.3 * ((index + 0.5) / len(groups) - 0.5)
        layers = [[each["layers"][k] for each in seeds] for k in range(_count_layers(seeds))]
        x = np.arange(1, len(layers) + 1) + shift
        means, sds = np.array([_pool(layer) for layer in layers]).T
        axes.errorbar(x, means, sds, label=style.label, **BARS, **_line_options(style))
        dots = [(place, each["mean"]) for place, layer in zip(x, layers, strict=True) for each in layer]
        if len(seeds) > 1:
            axes.plot(*np.array(dots, float).T, ".", color=style.colour, markersize=3, alpha=0.5)
    _set_layer_axis(axes, ticks=12)
    axes.set_ylabel("mean mixing distance (positions)")
    return _finish(figure, axes)


def draw_by_distance(documents: Iterable[MixingDocument]) -> Figure:
    """Draw the share of all |J| at each distance or farther; thin lines are single layers."""
    figure = Figure(figsize=DOCUMENT_SIZE)
    axes = figure.add_subplot()
    for style, seeds in group_seeds(documents).items():
        edges = max((each["profile_edges"] for each in seeds), key=len)[1:]
        for k in range(_count_layers(seeds)):
            layer = _sum_farther([each["layers"][k] for each in seeds], len(edges))
            axes.plot(edges, layer, color=style.colour, linestyle=style.line, linewidth=0.6, alpha=0.5)
        axes.plot(edges, _sum_farther(seeds, len(edges)), label=style.label, **_line_options(style))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("distance (positions)")
    axes.set_ylabel("share of |J| that is as far or farther")
    return _finish(figure, axes)


DOCUMENT_FIGURES = {"layers": draw_by_layer, "distances": draw_by_distance}
"""Figures of the documents of ``msbench mixing`` by the names of their files."""


def render_documents(documents: Iterable[MixingDocument], name: str, form: Format) -> bytes:
    """Render one of `DOCUMENT_FIGURES` as a file; the same documents always give the same bytes."""
    with apply_style():
        return render_picture(DOCUMENT_FIGURES[name](documents), form)


def _line_options(style: SeriesStyle) -> dict[str, Any]:
    """Return the options of a line with markers, which are hollow if the model is untrained."""
    face = style.colour if style.line == "-" else "white"
    return {**style.options, "markeredgewidth": 1.0, "markerfacecolor": face}


def _count_layers(seeds: Sequence[MixingDocument]) -> int:
    return min(len(each["layers"]) for each in seeds)


def _pool(layers: Sequence[MixingDocument]) -> tuple[float, float]:
    """Return mean and standard deviation over the rows of all seeds, from those of each."""
    known = [each for each in layers if each["mean"] is not None]
    if not known:
        return np.nan, np.nan
    n = np.array([each["n"] for each in known], float)
    means = np.array([each["mean"] for each in known])
    within = np.array([each["sd"] or 0.0 for each in known]) ** 2 * (n - 1)
    mean = float((n * means).sum() / n.sum())
    squares = float((within + n * (means - mean) ** 2).sum())
    return mean, float(np.sqrt(squares / max(n.sum() - 1, 1)))


def _sum_farther(found: Sequence[MixingDocument], count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return shares at or beyond each edge but the first, the mean over seeds; missing bins are empty."""
    profiles = np.zeros((len(found), count + 1))
    for row, each in zip(profiles, found, strict=True):
        values = np.array(each["profile"], float)
        row[: len(values)] = values
    shares: np.ndarray[Any, np.dtype[np.float64]] = profiles.mean(axis=0)[::-1].cumsum()[::-1][1:]
    return shares


def _finish(figure: Figure, axes: Axes) -> Figure:
    axes.set_ylim(bottom=0)
    # Outside: no corner is free in every figure.
    figure.legend(loc="outside lower center", ncols=2)
    return figure
