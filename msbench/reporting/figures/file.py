"""A figure with its numbers as CSV, PDF, PNG and SVG, whose bytes depend only on the figure."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from msbench.reporting.figures import inline
from msbench.reporting.figures.style import FORMATS, picture, styled
from msbench.results.files import encode_csv, write_files


@dataclass(frozen=True)
class FigureFile:
    """A figure that can be drawn, or the reason why there is none.

    `stem` names its files. `description` describes in words what is drawn, `notes` what is not drawn and why.
    `rows` are the numbers, of one dataclass, and become the CSV. `reason` is empty where there is a figure.
    """

    stem: str
    title: str
    description: str = ""
    notes: tuple[str, ...] = ()
    rows: tuple[Any, ...] = ()
    draw: Callable[[], Figure] = Figure
    reason: str = ""

    @property
    def caption(self) -> str:
        """Description and notes as one text."""
        return " ".join((self.description, *(f"{note}." for note in self.notes)))

    def figure(self) -> Figure:
        """Draw the figure anew, with one layout for all formats."""
        with styled():
            drawn = self.draw()
            drawn.draw_without_rendering()
            drawn.set_layout_engine("none")
        return drawn

    def csv(self) -> bytes:
        """Return the CSV: a line per row, numbers unrounded, names unchanged, missing values empty."""
        header = [field.name for field in fields(self.rows[0])]
        return encode_csv(header, ([_join(value) for value in astuple(row)] for row in self.rows))

    def pictures(self) -> dict[str, bytes]:
        """Return the bytes of ``pdf``, ``png`` and ``svg``."""
        drawn = self.figure()
        return {form: picture(drawn, form) for form in FORMATS}

    def svg(self) -> str:
        """Return the figure as an element of an HTML page, in light and dark mode: see `inline`."""
        return inline.svg(self.figure(), prefix=self.stem, title=self.title, description=self.caption)


def write(figures: Iterable[FigureFile], out: Path) -> list[Path]:
    """Write ``<stem>.csv``, ``.pdf``, ``.png`` and ``.svg`` of every drawable figure by `write_files`."""
    files: dict[str, bytes] = {}
    for figure in figures:
        if not figure.reason:
            contents = {"csv": figure.csv(), **figure.pictures()}
            files |= {f"{figure.stem}.{kind}": data for kind, data in contents.items()}
    return write_files(files, out)


def _join(value: Any) -> Any:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value) if isinstance(value, bool) else value
