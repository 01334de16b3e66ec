"""How every figure looks and is saved: one palette, one style, the same bytes for the same figure."""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Told apart by colour-blind readers (Tol's bright scheme); markers and line styles differ besides."""
INK = "#000000"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BARS: Mapping[str, Any] = {"elinewidth": 0.9, "capthick": 0.9, "capsize": 2.0}
STYLE: Mapping[str, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that it is the same everywhere
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "axes.titlesize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0.0,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,
    "svg.fonttype": "none",  # text stays text: searched, read aloud, in the reader's own colour
    "svg.hashsalt": "msbench",
    "pdf.fonttype": 42,  # TrueType: many venues refuse Type 3
}
DPI = 300
Format = Literal["pdf", "png", "svg"]
UNDATED: Mapping[Format, Mapping[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
"""What a file of each format would say about when and by what it was made."""
FORMATS: tuple[Format, ...] = tuple(UNDATED)


@contextmanager
def styled() -> Iterator[None]:
    """Within it figures are made, laid out and saved; whatever was set before holds again after it."""
    settings: dict[Any, Any] = {
        key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")
    }
    with matplotlib.rc_context(settings | dict(STYLE)), warnings.catch_warnings():
        # A character that the font lacks is a box in PDF and PNG and itself in SVG: no reason to stop.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        yield


def picture(figure: Figure, form: Format, *, transparent: bool = False) -> bytes:
    """A figure as a file: the same figure is the same bytes, whenever it is drawn."""
    out = io.BytesIO()
    with styled():
        figure.savefig(out, format=form, dpi=DPI, metadata=dict(UNDATED[form]), transparent=transparent)
    return out.getvalue()
