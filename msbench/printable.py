"""Any text -> one printable line: what would move the cursor, hide or reorder its neighbours is escaped.

A path may hold bytes that are no UTF-8. Python has them in a str as half a surrogate pair, which opens the
file again and which no encoding can write: in text it becomes its escape.
"""

import json
import shlex
import string
import unicodedata
from collections.abc import Iterable
from typing import Any

INVISIBLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
PLAIN = frozenset((string.ascii_letters + string.digits + "./_-=:").encode())
"""Bytes that a shell takes for themselves."""


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


def encodable(value: Any) -> Any:
    """Plain values with what UTF-8 cannot encode as Python escapes, in texts at any depth and in keys."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(encodable(each) for each in value)
    return value


def command_line(words: Iterable[str]) -> str:
    """Words as a shell takes them, also where one is a path that is no UTF-8.

    Examples
    --------
    >>> print(command_line(["ls", "a b", "caf\udce9"]))
    ls 'a b' $'caf\\xe9'
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if (shown := encodable(word)) == word:
        return shlex.quote(word)
    try:
        data = word.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # from no path
        return shlex.quote(shown)
    # Bytes as bash, zsh and POSIX of 2024 read them.
    inner = "".join(chr(byte) if byte in PLAIN else f"\\x{byte:02x}" for byte in data)
    return f"$'{inner}'"
