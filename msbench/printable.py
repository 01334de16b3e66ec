"""Any text -> one printable line: what would move the cursor, hide or reorder its neighbours is escaped."""

import json
import unicodedata

INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    """`text` with its control, formatting (bidi too), surrogate and non-characters as Python escapes."""
    if text.isprintable():  # nearly all are, and a large page has a million characters
        return text
    return "".join(_escaped(character) if _hidden(character) else character for character in text)


def _hidden(character: str) -> bool:
    # U+xxFFFE and U+xxFFFF are no characters, and no XML may hold them.
    return unicodedata.category(character) in INVISIBLE or ord(character) & 0xFFFE == 0xFFFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def json_escaped(text: str) -> str:
    """A JSON document that means the same, with what `printable` escapes as JSON escapes it."""
    return "\n".join(
        line if line.isprintable() else "".join(json.dumps(c)[1:-1] if _hidden(c) else c for c in line)
        for line in text.split("\n")
    )
