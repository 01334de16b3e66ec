"""Names for drawing: on one line, short enough for a legend, unique."""

import textwrap
import unicodedata
from collections.abc import Iterable

from msbench.reporting.render.formatting import number_repeats

LONGEST = 34
"""The most characters of a name in a legend, which is as wide as a column of a paper."""


def clean(text: str) -> str:
    """Return one line without control characters and lone surrogates, which SVG and fonts cannot hold."""
    kept = (" " if unicodedata.category(mark).startswith("C") else mark for mark in text)
    return " ".join("".join(kept).split()) or "(no name)"


def shortened(text: str, longest: int = LONGEST) -> str:
    """Apply `clean` and shorten with an ellipsis in the middle, as names often differ at their ends."""
    line = clean(text)
    if len(line) <= longest:
        return line
    head = (longest - 1) * 2 // 3
    return f"{line[:head]}…{line[head + 1 - longest :]}"


def folded(text: str, width: int, lines: int = 2) -> str:
    """Apply `shortened` to about `lines` lines of `width` characters, and wrap to those."""
    # A word that does not fit leaves the end of its line empty, so keep a margin of a few characters.
    short = shortened(text, lines * width - width // 3)
    return "\n".join(textwrap.wrap(short, width, max_lines=lines, placeholder="…"))


def shown(names: Iterable[str]) -> dict[str, str]:
    """Return the legend entry of each name; all are distinct."""
    each = list(dict.fromkeys(names))
    return dict(zip(each, number_repeats(map(shortened, each)), strict=True))
