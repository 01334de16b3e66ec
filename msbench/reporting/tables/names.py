"""Safe and unique names for files, anchors and rows."""

import re
from collections.abc import Iterable


def safe(text: str) -> str:
    """Return `text` with hyphens for characters that are unsafe in a file name or an HTML id."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


def stem(text: str) -> str:
    """Return the id of a table as the name of its files, without a suffix."""
    return safe(text).strip("-") or "table"


def unique(texts: Iterable[str], numbered: str = "{} ({})") -> list[str]:
    """Return the texts in the same order, repeated ones `numbered`."""
    taken: set[str] = set()
    found = []
    for text in texts:
        number, candidate = 1, text
        while candidate in taken:
            number += 1
            candidate = numbered.format(text, number)
        taken.add(candidate)
        found.append(candidate)
    return found
