"""Names as they can be drawn: on one line, short enough for a legend, told apart."""

import textwrap
import unicodedata
from collections.abc import Iterable

from msbench.reporting.tables.names import unique

LONGEST = 34
"""Characters of a name in a legend, which is as wide as a column of a paper."""


def clean(text: str) -> str:
    """One line without control characters and half surrogates, which neither SVG nor a font can hold."""
    kept = (" " if unicodedata.category(mark).startswith("C") else mark for mark in text)
    return " ".join("".join(kept).split()) or "(no name)"


def shortened(text: str, longest: int = LONGEST) -> str:
    """`clean`, with an ellipsis in the middle of what is longer: names often differ in their ends."""
    line = clean(text)
    if len(line) <= longest:
        return line
    head = (longest - 1) * 2 // 3
    return f"{line[:head]}…{line[head + 1 - longest :]}"


def folded(text: str, width: int, lines: int = 2) -> str:
    """`shortened` to about what `lines` lines of `width` characters hold, and broken into those."""
    # A word that does not fit leaves the end of its line empty, so a few characters are held back.
    short = shortened(text, lines * width - width // 3)
    return "\n".join(textwrap.wrap(short, width, max_lines=lines, placeholder="…"))


def shown(names: Iterable[str]) -> dict[str, str]:
    """What stands in a legend for each name; no two are alike."""
    each = list(dict.fromkeys(names))
    return dict(zip(each, unique(map(shortened, each)), strict=True))
