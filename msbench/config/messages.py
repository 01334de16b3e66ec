"""Messages on invalid values, in the terms of the file that holds them rather than in pydantic's."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from msbench.errors import suggest_name

MUST_BE = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "string_type": "text (in quotes)",
}


def describe_error(cls: type[BaseModel], detail: ErrorDetails, owner: str = "") -> str:
    """Return the message for one of pydantic's errors on `cls`; `owner` is named if a key is unknown."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return describe_unknown_key(str(detail["loc"][-1]), _list_keys(cls, detail["loc"][:-1]), owner)
    if kind == "missing":
        return "required key is missing"
    if kind == "value_error":
        return str(context["error"])
    if kind in ("too_short", "string_too_short"):
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"must have at least {least} entries"
    if kind == "literal_error":
        near = (
            suggest_name(value, re.findall(r"'([^']*)'", context["expected"]))
            if isinstance(value, str)
            else ""
        )
        return f"must be {context['expected']}, not {format_value(value)}{near}"
    if kind in MUST_BE:
        return f"must be {MUST_BE[kind]}, not {format_value(value)}"
    return f"{re.sub(r'^.*? should ', 'must ', detail['msg'])}, not {format_value(value)}"


def describe_first_fault(error: ValidationError) -> str:
    """Return the key and pydantic's message of the first fault of a document that msbench itself wrote."""
    detail = error.errors()[0]
    key = ".".join(map(str, detail["loc"])) or "the file"
    return f"{key:.200}: {detail['msg'].removeprefix('Value error, '):.200}"


def describe_unknown_key(key: str, known: list[str], owner: str = "") -> str:
    """Return the message for an unknown key."""
    near = suggest_name(key, known)
    of = f" of {owner}" if owner else ""
    return f"unknown key{of}{near + ' ' if near else '; '}known: {', '.join(known)}"


def _list_keys(cls: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """Return the keys of the config class at `path` below `cls`."""
    for part in path:
        field = cls.model_fields.get(str(part))
        cls = next(_find_config_classes(field.annotation if field else None), cls)
    return sorted(cls.model_fields)


def _find_config_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield config classes named in an annotation, such as the ``Layer`` of ``dict[str, Layer | None]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _find_config_classes(argument)


def format_value(value: Any) -> str:
    """Return a value as the file would spell it, short enough for one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "an empty list" if not value else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as ``45 s``, ``2 h 10 min`` or ``3 d 4 h``."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(seconds / 3600), 24)
    return f"{days:,} d {hours} h"


def format_bytes(count: int) -> str:
    """Return bytes in a suitable unit, such as ``3.2 GB``; powers of 1000, not 1024."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 1000 * size else f"{count / size:,.0f} {unit}"
    return f"{count} B"
