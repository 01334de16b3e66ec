"""Where a model's states start: the paper's Figure 2, drawn from a built model.

::

    model -> initial_poles -> Poles -> figure / svg

A dot is a diagonal element of A-bar = exp(dt A) of one channel, or its absolute value where it is complex:
between 0 (forgets at once) and 1 (never forgets). A row is a stream. Step sizes are those that a model has
before its input says anything. The figure of the paper has a single step size, 0.2, so that its channels are
alike.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.figure import Figure
from torch import nn

from msbench.models.ms_ssm import MultiScale
from msbench.models.streams import stream_names
from msbench.specs import MsSsmConfig

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Told apart by colour-blind readers; rows are labelled besides."""
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "msbench", "font.size": 9.0}
"""Text stays text, and the same figure is the same file."""


@dataclass(frozen=True)
class Poles:
    """The poles of one stream of a layer: for each channel abs(exp(dt A)) of every state."""

    stream: str
    channels: tuple[tuple[float, ...], ...]

    @property
    def dots(self) -> list[float]:
        """All channels together, ascending, each value once."""
        return sorted({pole for channel in self.channels for pole in channel})


def initial_poles(model: nn.Module, layer: int = 0) -> list[Poles]:
    """The poles of every stream of a layer of MS-SSM, fine to coarse, as the model's parameters have them.

    Both directions of a bidirectional layer count as layers. Raises ValueError where the model has no such
    layer, or its layers have no SSMs.
    """
    cores = [module for module in model.modules() if isinstance(module, MultiScale)]
    if not 0 <= layer < len(cores):
        raise ValueError(f"no layer {layer} among the {len(cores)} of MS-SSM that this model has")
    config, scan = getattr(model, "config", None), cores[layer].scan
    if scan is None or not isinstance(config, MsSsmConfig):
        raise ValueError("the model has no SSMs, whose decays could be drawn (ssm: none)")
    named = zip(stream_names(config), scan.poles(), strict=True)
    return [Poles(name, tuple(map(tuple, poles.detach().abs().tolist()))) for name, poles in named]


def figure(streams: Sequence[Poles], title: str = "") -> Figure:
    """One row a stream, the first on top: a bar over its range, a dot for every pole of every channel."""
    drawn = Figure(figsize=(6.4, 1.0 + 0.35 * len(streams)), layout="constrained")
    axes = drawn.add_subplot()
    for row, stream in enumerate(streams):
        colour, dots = COLOURS[row % len(COLOURS)], stream.dots
        if dots:
            axes.hlines(row, dots[0], dots[-1], color=colour, linewidth=6, alpha=0.25)
        axes.plot(dots, [row] * len(dots), ".", color=colour, markersize=5, gid=f"poles-{stream.stream}")
    axes.set_yticks(range(len(streams)), [stream.stream for stream in streams])
    axes.set_ylim(len(streams) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("|exp(Δ A)| at the start: 0 forgets at once, 1 never")
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title)
    return drawn


def svg(streams: Sequence[Poles], title: str = "") -> str:
    """`figure` as SVG text: the same poles give the same bytes, whenever they are drawn."""
    out = io.StringIO()
    with matplotlib.rc_context(STYLE):  # type: ignore[arg-type]
        figure(streams, title).savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()
