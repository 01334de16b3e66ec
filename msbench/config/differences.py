"""What differs between two runs: settings, data and source files, each with both values."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from msbench.config.strict_yaml import scalar

Kind = Literal["setting", "data", "source", "environment"]
ABSENT = "absent"
SHORT = 8
"""Hex digits of a digest that people are shown; documents have it in full."""


@dataclass(frozen=True)
class Change:
    """One thing that two runs do not share.

    `before` and `now` are plain values; `sides` says of each run whether it has the key at all, which tells
    what is absent from what is null.
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
        """The earlier value as people are shown it."""
        return self._text(self.before, self.sides[0])

    @property
    def now_text(self) -> str:
        """The later one."""
        return self._text(self.now, self.sides[1])

    def _text(self, value: Any, there: bool) -> str:
        if not there:
            return ABSENT
        if self.kind in ("data", "source"):
            return str(value)[:SHORT]
        return value if self.kind == "environment" and isinstance(value, str) else spelled(value)

    def as_dict(self, before: str = "before", now: str = "now") -> dict[str, Any]:
        """For JSON, under these keys; a side that lacks it has no key."""
        sides = zip((before, now), (self.before, self.now), self.sides, strict=True)
        return {"kind": self.kind, "name": self.name} | {key: value for key, value, there in sides if there}


def settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Change, ...]:
    """Dotted keys in which two nested mappings differ; lists and tuples count as leaves."""
    return tuple(_differing("setting", flatten(before), flatten(now)))


def environments(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Change, ...]:
    """Dotted keys in which the machines of two runs differ."""
    return tuple(_differing("environment", flatten(before), flatten(now)))


def sources(
    before: Mapping[str, str], now: Mapping[str, str], digests: tuple[str, str]
) -> tuple[Change, ...]:
    """Files whose digests differ, or that one of the two does not have, by name; none where `digests` agree.

    Where one side names no file, its `digests` of them all stand for them.
    """
    if digests[0] == digests[1]:
        return ()
    if not (before and now):
        return (Change("source", "all source files", *digests),)
    return tuple(sorted(_differing("source", before, now), key=lambda change: change.name))


def data(before: str, now: str) -> tuple[Change, ...]:
    """The digest of the data, where it differs."""
    return () if before == now else (Change("data", "data", before, now),)


def _differing(kind: Kind, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *now)):
        sides = (name in before, name in now)
        if sides != (True, True) or before[name] != now[name]:
            yield Change(kind, name, before.get(name), now.get(name), sides)


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys and leaves; tuples become lists, as JSON has them."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            found |= flatten(value, name)
        else:
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def spelled(value: Any) -> str:
    """A value as a suite's file or ``--set`` would spell it, such that it is read as the same value."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(spelled, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _text(text: str) -> str:
    """Text in double quotes, unless it is a word that means nothing else."""
    plain = text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
    word = plain and text[0].isalnum() and scalar(text) == text
    # What cannot be printed has to be escaped: a suite's file may not hold it.
    return text if word else json.dumps(text, ensure_ascii=not text.isprintable())
