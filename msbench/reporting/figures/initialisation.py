"""Initial poles of a model's states: the paper's Figure 2, drawn from a built model.

::

    model -> compute_initial_poles -> Poles -> list_dots -> draw_dots

A dot is a diagonal element of A-bar = exp(dt A) of one channel, or its absolute value where it is complex:
between 0 (forgets at once) and 1 (never forgets). A row is a stream. Step sizes are those of a model without
the contribution of its input. The figure of the paper has a single step size, 0.2, so that its channels are
alike. This is the only figure that needs PyTorch, which is imported when a model is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from msbench.errors import ConfigError
from msbench.reporting.figures.series import Series, clean, group
from msbench.reporting.figures.style import COLOURS, SeriesStyle, make_panels, set_title
from msbench.results.record import RunRecord
from msbench.runs.reproduce import resolve_record

if TYPE_CHECKING:
    from torch import nn

NO_STYLES: Mapping[str, SeriesStyle] = {}
NEAR = 0.002
"""The distance below which two dots cannot be distinguished: a fifth of a dot."""


@dataclass(frozen=True)
class Poles:
    """The poles of one stream of a layer: for each channel abs(exp(dt A)) of every state."""

    stream: str
    channels: tuple[tuple[float, ...], ...]

    @property
    def dots(self) -> list[float]:
        """The poles of all channels, ascending; of those closer than `NEAR` only the first."""
        found: list[float] = []
        for pole in sorted({pole for channel in self.channels for pole in channel}):
            if not found or pole - found[-1] >= NEAR:
                found.append(pole)
        return found


@dataclass(frozen=True)
class Dot:
    """A dot of the figure; `pole` is None for a stream without states."""

    table: str
    name: str
    model: str
    run_id: str
    stream: str
    pole: float | None


def compute_initial_poles(model: nn.Module, layer: int = 0) -> list[Poles]:
    """Return the poles of every stream of an MS-SSM layer, fine to coarse, by the model's parameters.

    Both directions of a bidirectional layer count as layers. Raises ValueError where the model has no such
    layer, or its layers have no SSMs.
    """
    from msbench.config.selective import MsSsmConfig
    from msbench.models.ms_ssm import MultiScale
    from msbench.models.streams import list_stream_names

    cores = [module for module in model.modules() if isinstance(module, MultiScale)]
    if not 0 <= layer < len(cores):
        raise ValueError(f"no layer {layer} among the {len(cores)} of MS-SSM that this model has")
    config, scan = getattr(model, "config", None), cores[layer].scan
    if scan is None or not isinstance(config, MsSsmConfig):
        raise ValueError("the model has no SSMs, whose decays could be drawn (ssm: none)")
    named = zip(list_stream_names(config), scan.compute_poles(), strict=True)
    return [Poles(name, tuple(map(tuple, poles.detach().abs().tolist()))) for name, poles in named]


def list_dots(
    streams: Sequence[Poles], model: tuple[str, str, str, str] = ("", "", "", "")
) -> tuple[Dot, ...]:
    """Return a row for every dot, stream by stream; one without a pole for a stream without states.

    `model` is its table, name, kind and run id.
    """
    return tuple(Dot(*model, poles.stream, pole) for poles in streams for pole in (poles.dots or (None,)))


def collect_dots(series: Iterable[Series]) -> tuple[tuple[Dot, ...], tuple[str, ...]]:
    """Return the first layer of every MS-SSM as initialised by its row's first run, and notes on others."""
    firsts: dict[str, tuple[Series, RunRecord]] = {}
    for each in series:
        if each.runs:
            firsts.setdefault(each.name, (each, each.runs[0]))
    found: list[Dot] = []
    notes = []
    for name, (each, record) in firsts.items():
        try:
            model = _build_model(record)
            streams = compute_initial_poles(model) if model is not None else []
        except (ConfigError, ValueError) as error:
            notes.append(f"{clean(name)}: not shown: {clean(str(error))}")
            continue
        found += list_dots(streams, (each.table, name, each.model, record.run_id))
    return tuple(found), tuple(notes)


def _build_model(record: RunRecord) -> nn.Module | None:
    """Build the untrained MS-SSM of a run, without loading its data; return None for other models."""
    from msbench import datasets, models
    from msbench.config.selective import MsSsmConfig

    spec = resolve_record(record)
    if not isinstance(spec.model, MsSsmConfig):
        return None
    return models.build(spec.model_name, spec.model, datasets.outline(spec.data), spec.seed)


def draw_dots(found: Sequence[Dot], styles: Mapping[str, SeriesStyle] = NO_STYLES) -> Figure:
    """Draw a panel per model with a row per stream, the first on top: a bar over its range, a dot per pole.

    Of `styles` only the labels are used, as colours distinguish streams.
    """
    of_names = group((dot.name, dot) for dot in found)
    streams = max(len({dot.stream for dot in of_model}) for of_model in of_names.values())
    figure, axes = make_panels(len(of_names), (), height=1.0 + 0.24 * streams)
    for number, (panel, (name, of_model)) in enumerate(zip(axes, of_names.items(), strict=True)):
        _draw_panel(panel, of_model, number)
        if name:
            set_title(panel, styles[name].label if name in styles else name)
    return figure


def _draw_panel(axes: Axes, found: Sequence[Dot], number: int) -> None:
    of_streams = group((dot.stream, dot.pole) for dot in found)
    for row, (stream, poles) in enumerate(of_streams.items()):
        known = [pole for pole in poles if pole is not None]
        colour = COLOURS[row % len(COLOURS)]
        if known:
            axes.hlines(row, known[0], known[-1], color=colour, linewidth=6, alpha=0.25)
        axes.plot(known, [row] * len(known), ".", color=colour, gid=f"poles-{number}-{stream}")
    axes.set_yticks(range(len(of_streams)), list(of_streams))
    axes.set(ylim=(len(of_streams) - 0.5, -0.5), xlim=(-0.02, 1.02))
    axes.set_ylabel("stream")
    axes.set_xlabel("|exp(Δ A)| at the start\n0 forgets at once, 1 never")
