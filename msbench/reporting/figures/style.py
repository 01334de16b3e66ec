"""Palette, style and saving of all figures: the same figure is always saved as the same bytes."""

import io
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Tol's bright scheme, distinguishable for colour-blind readers; markers and line styles differ too."""
INK = "#000000"
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
BARS: Mapping[str, Any] = {"elinewidth": 0.9, "capthick": 0.9, "capsize": 2.0}
STYLE: Mapping[str, Any] = {
    "font.family": ["DejaVu Sans"],  # bundled with matplotlib, so the same on every machine
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
    "svg.fonttype": "none",  # keep text as text: searchable, accessible, in the page's colour
    "svg.hashsalt": "msbench",
    "pdf.fonttype": 42,  # TrueType: many venues reject Type 3
}
DPI = 300
Format = Literal["pdf", "png", "svg"]
UNDATED: Mapping[Format, Mapping[str, None]] = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
}
"""The metadata of each format on date and software, which are left out of the files."""
FORMATS: tuple[Format, ...] = tuple(UNDATED)


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style while figures are made, laid out and saved; restore the previous settings after."""
    settings: dict[Any, Any] = {
        key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")
    }
    with matplotlib.rc_context(settings | dict(STYLE)), warnings.catch_warnings():
        # A character that the font lacks is a box in PDF and PNG and correct in SVG: ignore the warning.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        yield


def picture(figure: Figure, form: Format, *, transparent: bool = False) -> bytes:
    """Return a figure as the bytes of a file; the same figure always gives the same bytes."""
    out = io.BytesIO()
    with styled():
        figure.savefig(out, format=form, dpi=DPI, metadata=dict(UNDATED[form]), transparent=transparent)
    return out.getvalue()
