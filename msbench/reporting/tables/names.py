"""Names of files, of anchors and of rows: safe where they stand, and told apart."""

import re
from collections.abc import Iterable


def safe(text: str) -> str:
    """`text` with a hyphen for whatever has no place in the name of a file or in an id of a page."""
    return re.sub(r"[^A-Za-z0-9-]+", "-", text)


def stem(text: str) -> str:
    """The id of a table as the name of its files, without a suffix."""
    return safe(text).strip("-") or "table"


def unique(texts: Iterable[str], numbered: str = "{} ({})") -> list[str]:
    """The same texts in the same order; one that was there before is `numbered`."""
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
