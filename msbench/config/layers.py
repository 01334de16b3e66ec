"""Plain values with their origins, and their validation into frozen configs.

`LocatedValues` hold values with the origin of each: a line of a file, or a ``--set``. Layers are merged, then
validated; errors are reported with file, line, key, the allowed values and a similar name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from msbench.config import strict_yaml
from msbench.config.messages import describe_error, format_value
from msbench.config.strict_yaml import KeyPath
from msbench.errors import ConfigError

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")


@dataclass(frozen=True)
class LocatedValues:
    """Plain values, each with its origin.

    `origins` maps key paths to ``suites/quick.yaml:14`` or ``--set train.lr``; `name` is used if a path and
    all above it have none. `prefix` is put before a key in messages.
    """

    values: Any
    origins: Mapping[KeyPath, str]
    name: str
    prefix: KeyPath = ()
    _grouped: dict[int, dict[KeyPath, dict[KeyPath, str]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def origin(self, path: KeyPath = ()) -> str:
        """Return the origin of the value at `path`, or else of the nearest above it."""
        above = (self.origins.get(path[:length]) for length in range(len(path), -1, -1))
        return next((origin for origin in above if origin is not None), self.name)

    def dotted(self, path: KeyPath = ()) -> str:
        """Return the key as messages print it, with the prefix."""
        return ".".join(str(part) for part in (*self.prefix, *path))

    def error(self, path: KeyPath, problem: str) -> ConfigError:
        """Return a ConfigError that opens with the origin of `path` and, unless that includes it, the key."""
        origin, key = self.origin(path), self.dotted(path)
        return ConfigError(
            ": ".join(filter(None, (origin, "" if origin in (f"--set {key}", f"--{key}") else key, problem)))
        )

    def at(self, *path: str | int) -> "LocatedValues":
        """Return the mapping below `path`: empty if it is absent or null, ConfigError if it is not one."""
        values = _require_mapping(self, (), self.values)
        for depth, part in enumerate(path, start=1):
            values = _require_mapping(self, path[:depth], values.get(part))
        below = self._group_origins(len(path)).get(path, {})
        return LocatedValues(values, below, self.origin(path), (*self.prefix, *path))

    def _group_origins(self, length: int) -> Mapping[KeyPath, Mapping[KeyPath, str]]:
        """Return the origins by the first parts of their keys, grouped once: a suite asks for each task."""
        if length not in self._grouped:
            groups = self._grouped[length] = {}
            for key, origin in self.origins.items():
                if len(key) >= length:
                    groups.setdefault(key[:length], {})[key[length:]] = origin
        return self._grouped[length]


def _require_mapping(part: LocatedValues, path: KeyPath, value: Any) -> Mapping[Any, Any]:
    """Return `value` if it is a mapping, an empty one if it is None; else raise ConfigError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise part.error(path, f"must be a mapping, not {format_value(value)}")
    return value


LARGEST_YAML = 2**20
"""Limit in bytes. Suites have some thousands; this many take seconds and hundreds of megabytes to parse."""


def load_yaml(path: Path, *, may_wait: bool = False) -> LocatedValues:
    """Read a strict YAML file; ConfigError if it cannot be read or is not one.

    A file that a user names may be a pipe, such as a shell's ``<(...)``: `may_wait` is for these.
    """
    try:
        if not may_wait and path.exists() and not (path.is_file() or path.is_dir()):
            raise ConfigError(f"{path}: cannot be read: not a regular file")
        with path.open("rb") as stream:
            text = stream.read(LARGEST_YAML + 1)
        if len(text) > LARGEST_YAML:
            raise ConfigError(f"{path}: more than {LARGEST_YAML:,} bytes, which no such file has")
        return parse_yaml(text, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def parse_yaml(text: str | bytes, name: str) -> LocatedValues:
    """Parse strict YAML; `name` is the file in messages and origins."""
    values, lines = strict_yaml.parse(text, lambda line: f"{name}:{line}")
    return LocatedValues(values, {path: f"{name}:{line}" for path, line in lines.items()}, name)


OVERRIDE = re.compile(r"\s*([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\s*=(.*)", re.DOTALL)


def parse_override(text: str) -> LocatedValues:
    """Parse a text such as ``train.lr=1e-3`` to nested values, of the types that a file would give them.

    Raises ConfigError if the text does not have the form KEY=VALUE; lists are values, mappings are not.
    """
    match = OVERRIDE.fullmatch(text)
    if match is None or not match[2].strip():
        raise ConfigError(f"--set {text}: must have the form KEY=VALUE, such as train.lr=1e-3")
    key, name = match[1], f"--set {match[1]}"
    values, _ = strict_yaml.parse(match[2].strip(), lambda _line: name)
    if isinstance(values, Mapping):
        raise ConfigError(f"{name}: a mapping is not a value; set each of its keys, or put text in quotes")
    path = tuple(key.split("."))
    origins: dict[KeyPath, str] = {path[: length + 1]: name for length in range(len(path))}
    return LocatedValues(reduce(lambda inner, part: {part: inner}, reversed(path), values), origins, name)


def merge_layers(*parts: LocatedValues) -> LocatedValues:
    """Merge layers: later parts win; mappings are merged key by key, anything else is replaced as a whole.

    Origins follow the values. Fallback name and prefix are the first part's.
    """
    return reduce(_merge_two, parts)


def _merge_two(base: LocatedValues, top: LocatedValues) -> LocatedValues:
    kept = {path: origin for path, origin in base.origins.items() if _is_kept(path, base.values, top.values)}
    return LocatedValues(
        _merge_values(base.values, top.values), {**top.origins, **kept}, base.name, base.prefix
    )


def _merge_values(base: Any, top: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(top, Mapping)):
        return top
    return {
        **base,
        **{key: _merge_values(base[key], value) if key in base else value for key, value in top.items()},
    }


def _is_kept(path: KeyPath, base: Any, top: Any) -> bool:
    """Return True if `top` replaces neither the value of `base` at `path` nor anything above it."""
    for part in path:
        if not (isinstance(base, Mapping) and isinstance(top, Mapping)):
            return False
        if part not in top:
            return True
        base, top = base.get(part), top[part]
    return isinstance(base, Mapping) and isinstance(top, Mapping)


def validate(cls: type[T], part: LocatedValues, owner: str = "") -> T:
    """Return the config of class `cls` that `part` describes.

    `owner` (such as ``model 'mamba'``) is named if a key is unknown. Raises one ConfigError with a line for
    every fault found.
    """
    try:
        return cls.model_validate(part.at().values)
    except ValidationError as error:
        details = [detail for detail in error.errors(include_url=False) if not _is_echo(detail)]
        lines = [_format_error(cls, part, detail, owner) for detail in details]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None


def run_checks(*checks: Callable[[], R]) -> list[R]:
    """Return the results of all checks; if any raises ConfigError, raise one with every different line.

    A single error is raised as it is, so that its type is kept.
    """
    results: list[R] = []
    errors: list[ConfigError] = []
    for check in checks:
        try:
            results.append(check())
        except ConfigError as error:
            errors.append(error)
    if len({str(error) for error in errors}) == 1:
        raise errors[0]
    if errors:
        lines = (line for error in errors for line in str(error).split("\n"))
        raise ConfigError("\n".join(dict.fromkeys(lines)))
    return results


def _format_error(cls: type[BaseModel], part: LocatedValues, detail: ErrorDetails, owner: str) -> str:
    path = _find_path(part.values, detail)
    text = describe_error(cls, detail, owner)
    if detail["type"] != "value_error" or not isinstance(detail["input"], Mapping):
        return str(part.error(path, text))
    # A rule between fields fails at their mapping: the origins are those of the fields that it names.
    named = [key for key in detail["input"] if re.search(rf"\b{re.escape(str(key))}\b", text)]
    origins = " and ".join(dict.fromkeys(part.origin((*path, key)) for key in named)) or part.origin(path)
    return ": ".join(filter(None, (origins, part.dotted(path), text)))


def _is_echo(detail: ErrorDetails) -> bool:
    """Return True for a "too short" list that has entries, of which none is valid: their errors suffice."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _find_path(values: Any, detail: ErrorDetails) -> KeyPath:
    """Return the error's location without pydantic's own marks, such as the branch of a union."""
    if detail["type"] == "missing":
        return detail["loc"]
    path: KeyPath = ()
    for part in detail["loc"]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            break
        path = (*path, part)
    return path
