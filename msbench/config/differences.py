"""Differences between two runs: settings, data and source files, each with both values."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msbench.config.strict_yaml import parse_scalar

Kind = Literal["setting", "data", "source", "environment"]
ABSENT = "absent"
SHORT = 8
"""Hex digits of a digest that are displayed; documents have it in full."""


@dataclass(frozen=True)
class Change:
    """One difference between two runs.

    `before` and `now` are plain values; `sides` has True for each run that has the key at all, which
    distinguishes absent from null.
    """

    kind: Kind
    name: str
    before: Any = None
    now: Any = None
    sides: tuple[bool, bool] = (True, True)

    def __str__(self) -> str:
        return f"{self.name} {self.before_text} → {self.now_text}"

    @property
    def before_text(self) -> str:
        """The earlier value as displayed."""
        return self._format_side(self.before, self.sides[0])

    @property
    def now_text(self) -> str:
        """The later value as displayed."""
        return self._format_side(self.now, self.sides[1])

    def _format_side(self, value: Any, there: bool) -> str:
        if not there:
            return ABSENT
        if self.kind in ("data", "source"):
            return str(value)[:SHORT]
        return value if self.kind == "environment" and isinstance(value, str) else format_yaml(value)

    def as_dict(self, before: str = "before", now: str = "now") -> dict[str, Any]:
        """Return plain values for JSON, under these keys; an absent value has no key."""
        sides = zip((before, now), (self.before, self.now), self.sides, strict=True)
        return {"kind": self.kind, "name": self.name} | {key: value for key, value, there in sides if there}


def compare_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], kind: Kind = "setting"
) -> tuple[Change, ...]:
    """Return the dotted keys in which two nested mappings differ; lists and tuples count as leaves."""
    return tuple(_find_differing(kind, flatten(before), flatten(now)))


def compare_sources(
    before: Mapping[str, str], now: Mapping[str, str], digests: tuple[str, str]
) -> tuple[Change, ...]:
    """Return files whose digests differ, or that one of the two lacks, by name; none if `digests` agree.

    If one side names no file, the `digests` of all files are compared instead.
    """
    if digests[0] == digests[1]:
        return ()
    if not (before and now):
        return (Change("source", "all source files", *digests),)
    return tuple(sorted(_find_differing("source", before, now), key=lambda change: change.name))


def compare_data(before: str, now: str) -> tuple[Change, ...]:
    """Return the digest of the data, if it differs."""
    return () if before == now else (Change("data", "data", before, now),)


def _find_differing(kind: Kind, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *now)):
        sides = (name in before, name in now)
        if sides != (True, True) or before[name] != now[name]:
            yield Change(kind, name, before.get(name), now.get(name), sides)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested mappings to dotted keys and leaves; tuples become lists, as in JSON."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            found |= flatten(value, name)
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def format_yaml(value: Any) -> str:
    """Return a value as a suite's file or ``--set`` would spell it, so that it is read as the same value."""
    if isinstance(value, str):
        return _quote_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_yaml, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _quote_text(text: str) -> str:
    """Return text in double quotes, unless it is a word without another meaning."""
    plain = text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
    word = plain and text[0].isalnum() and parse_scalar(text) == text
    # Unprintable text has to be escaped: a suite's file may not hold it.
    return text if word else json.dumps(text, ensure_ascii=not text.isprintable())
