"""Figures of documents: the distance of each layer, and the share of |J| by distance.

::

    documents -> by_layer / by_distance -> Figure -> render -> bytes

Runs that differ only in their seed share a colour and a line, the mean over their rows. Untrained models have
dashed lines and hollow markers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from msbench.reporting.figures.style import BARS, COLOURS, MARKERS, Format, picture, styled
from msbench.results.mixing_documents import MixingDocument


@dataclass(frozen=True)
class SeedGroup:
    """Documents of one model, trained or not, on one task: its seeds."""

    label: str
    documents: tuple[MixingDocument, ...]
    colour: str
    marker: str
    trained: bool

    @property
    def dashes(self) -> str:
        """Return the style of its lines."""
        return "-" if self.trained else "--"

    @property
    def style(self) -> dict[str, Any]:
        """Return the style of a line with markers, which are hollow if the model is untrained."""
        face = self.colour if self.trained else "white"
        line = {"color": self.colour, "linestyle": self.dashes}
        return {**line, "marker": self.marker, "markeredgewidth": 1.0, "markerfacecolor": face}


def groups(documents: Iterable[MixingDocument]) -> list[SeedGroup]:
    """Group documents in the order of first appearance; a model has one colour."""
    documents = list(documents)
    tasks = dict.fromkeys(each["task"] for each in documents)
    models = list(dict.fromkeys(each["model"] for each in documents))
    found: dict[tuple[str, str, bool], list[MixingDocument]] = {}
    for each in documents:
        found.setdefault((each["task"], each["model"], each["trained"]), []).append(each)
    result = []
    for (task, model, trained), members in found.items():
        names = [model, *([task] if len(tasks) > 1 else []), *([] if trained else ["untrained"])]
        index = models.index(model)
        colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
        result.append(SeedGroup(" · ".join(names), tuple(members), colour, marker, trained))
    return result


def by_layer(documents: Iterable[MixingDocument]) -> Figure:
    """Draw the mean distance of each layer with its standard deviation over all rows, and a dot per seed."""
    drawn = Figure(figsize=(5.5, 3.4))
    axes, found = drawn.add_subplot(), groups(documents)
    most = 1
    for index, group in enumerate(found):
        # Shifted, so that bars of one layer do not hide each other.
        shift = 0.3 * ((index + 0.5) / len(found) - 0.5)
        layers = [[each["layers"][k] for each in group.documents] for k in range(_depth(group))]
        most = max(most, len(layers))
        x = np.arange(1, len(layers) + 1) + shift
        means, sds = np.array([_pooled(layer) for layer in layers]).T
        axes.errorbar(x, means, sds, label=group.label, **BARS, **group.style)
        dots = [(place, each["mean"]) for place, layer in zip(x, layers, strict=True) for each in layer]
        if len(group.documents) > 1:
            axes.plot(*np.array(dots, float).T, ".", color=group.colour, markersize=3, alpha=0.5)
    axes.set_xticks(_ticks(most))
    axes.set_xlabel("layer")
    axes.set_ylabel("mean mixing distance (positions)")
    return _finish(drawn, axes)


def by_distance(documents: Iterable[MixingDocument]) -> Figure:
    """Draw the share of all |J| at each distance or farther; thin lines are single layers."""
    drawn = Figure(figsize=(5.5, 3.4))
    axes = drawn.add_subplot()
    for group in groups(documents):
        edges = max((each["profile_edges"] for each in group.documents), key=len)[1:]
        for k in range(_depth(group)):
            layer = _farther([each["layers"][k] for each in group.documents], len(edges))
            axes.plot(edges, layer, color=group.colour, linestyle=group.dashes, linewidth=0.6, alpha=0.5)
        axes.plot(edges, _farther(group.documents, len(edges)), label=group.label, **group.style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 1)
    axes.set_xlabel("distance (positions)")
    axes.set_ylabel("share of |J| that is as far or farther")
    return _finish(drawn, axes)


FIGURES = {"layers": by_layer, "distances": by_distance}
"""Figures by the names of their files."""


def render(documents: Iterable[MixingDocument], name: str, form: Format) -> bytes:
    """Render one of `FIGURES` as a file; the same documents always give the same bytes."""
    with styled():
        return picture(FIGURES[name](documents), form)


def _depth(group: SeedGroup) -> int:
    return min(len(each["layers"]) for each in group.documents)


def _pooled(layers: Sequence[MixingDocument]) -> tuple[float, float]:
    """Return mean and standard deviation over the rows of all seeds, from those of each."""
    known = [each for each in layers if each["mean"] is not None]
    if not known:
        return np.nan, np.nan
    n = np.array([each["n"] for each in known], float)
    means = np.array([each["mean"] for each in known])
    within = np.array([each["sd"] or 0.0 for each in known]) ** 2 * (n - 1)
    mean = float((n * means).sum() / n.sum())
    spread = float((within + n * (means - mean) ** 2).sum())
    return mean, float(np.sqrt(spread / max(n.sum() - 1, 1)))


def _farther(found: Sequence[MixingDocument], count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return shares at or beyond each edge but the first, the mean over seeds; missing bins are empty."""
    profiles = np.zeros((len(found), count + 1))
    for row, each in zip(profiles, found, strict=True):
        values = np.array(each["profile"], float)
        row[: len(values)] = values
    shares: np.ndarray[Any, np.dtype[np.float64]] = profiles.mean(axis=0)[::-1].cumsum()[::-1][1:]
    return shares


def _ticks(layers: int) -> list[int]:
    step = 1 if layers <= 12 else 2 if layers <= 24 else 5
    return list(range(1, layers + 1, step))


def _finish(drawn: Figure, axes: Axes) -> Figure:
    axes.set_ylim(bottom=0)
    # Outside: no corner is free in every figure.
    drawn.legend(loc="outside lower center", ncols=2)
    return drawn
