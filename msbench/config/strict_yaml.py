"""Strict parsing of YAML text to plain values and the line of each, with nothing guessed.

PyYAML scans and parses; plain scalars follow YAML 1.2's core schema rather than PyYAML's 1.1:

- ``1e-3``, ``1E-3``, ``1.0e-3`` and ``.5`` are numbers (PyYAML reads the first as text);
- ``010`` is ten and ``0o10`` is eight (PyYAML: eight, and text);
- only ``true`` and ``false`` are booleans: ``no``, ``off``, ``yes`` and ``on`` are text;
- ``1:30``, ``1_000`` and dates are text; ``null``, ``~`` and nothing at all are null.

Keys are text as typed. Refused, each with its position: a key given twice, tags, anchors, merge keys, tabs,
control characters, and bytes that are not UTF-8. A BOM and CRLF change nothing.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import yaml
from yaml.reader import Reader

from msbench.errors import ConfigError

KeyPath = tuple[str | int, ...]
LineLocator = Callable[[int], str]
"""Function from a line number, counted from 1, to the name of that place in messages."""

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
DECIMAL = re.compile(r"[-+]?[0-9]+")
PREFIXED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
INFINITY = re.compile(r"[-+]?\.(inf|Inf|INF)")
NAN = re.compile(r"\.(nan|NaN|NAN)")
FORBIDDEN = re.compile(f"\t|{Reader.NON_PRINTABLE.pattern}")

LONGEST_NUMBER = 300
"""Limit in digits. No setting has more, and Python refuses to convert some thousands of them."""


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser; every plain scalar stays text, and tags and anchors are refused."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are refused", problem_mark=event.start_mark
            )
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem="tags are refused", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def parse(text: str | bytes, locate: LineLocator) -> tuple[Any, dict[KeyPath, int]]:
    """Return the values of one YAML document, and the line of every key and list item.

    An empty document is None. Raises ConfigError, in one line, if the text is not strict YAML.
    """
    decoded = decode(text, locate)
    try:
        node = yaml.compose(decoded, Loader=_Loader)
        lines: dict[KeyPath, int] = {}
        return (None if node is None else _build_value(node, (), lines, locate)), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(error.problem or error.context).split())
        _refuse(locate, (mark.line, mark.column) if mark else (0, 0), what)
    except RecursionError:
        raise ConfigError(f"{locate(1)}: nested too deeply") from None


def decode(text: str | bytes, locate: LineLocator) -> str:
    """Return the text without BOM; ConfigError unless it is UTF-8 without tabs and control characters."""
    try:
        decoded = (text if isinstance(text, str) else text.decode()).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = error.object[: error.start].decode()
        problem = f"byte 0x{error.object[error.start]:02x} is not UTF-8; save the file as UTF-8"
        _refuse(locate, _find_position(before, len(before)), problem)
    if bad := FORBIDDEN.search(decoded):
        problem = f"character U+{ord(bad.group()):04X} is not allowed"
        if bad.group() == "\t":
            problem = "a tab; use spaces (or \\t in double quotes)"
        elif bad.group() == "\0":
            problem += "; if the file is UTF-16 or UTF-32, save it as UTF-8"
        _refuse(locate, _find_position(decoded, bad.start()), problem)
    return decoded


def _find_position(text: str, index: int) -> tuple[int, int]:
    """Return line and column of a character, both from 0."""
    return text.count("\n", 0, index), index - text.rfind("\n", 0, index) - 1


def _refuse(locate: LineLocator, position: tuple[int, int], problem: str) -> NoReturn:
    line, column = position
    raise ConfigError(f"{locate(line + 1)}: column {column + 1}: {problem}") from None


def _get_start(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line, node.start_mark.column


def _build_value(node: yaml.Node, path: KeyPath, lines: dict[KeyPath, int], locate: LineLocator) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {
            key: _build_value(value, (*path, key), lines, locate)
            for key, value in _iterate_items(node, path, lines, locate)
        }
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines[*path, number] = item.start_mark.line + 1
        return [_build_value(item, (*path, number), lines, locate) for number, item in enumerate(node.value)]
    assert isinstance(node, yaml.ScalarNode)
    if node.style is not None:  # quoted or a block: text as it stands
        return node.value
    if len(node.value) > LONGEST_NUMBER and (DECIMAL.fullmatch(node.value) or PREFIXED.fullmatch(node.value)):
        _refuse(locate, _get_start(node), f"a number of more than {LONGEST_NUMBER} digits")
    return parse_scalar(node.value)


def _iterate_items(
    node: yaml.MappingNode, path: KeyPath, lines: dict[KeyPath, int], locate: LineLocator
) -> Iterator[tuple[str, yaml.Node]]:
    """Yield keys and values of a mapping, in order; the line of each key is written into `lines`."""
    for key, value in node.value:
        start = _get_start(key)
        if not isinstance(key, yaml.ScalarNode) or (key.value == "" and key.style is None):
            _refuse(locate, start, "a key must be text")
        if key.value == "<<" and key.style is None:
            _refuse(locate, start, "merge keys are refused")
        here = (*path, key.value)
        if here in lines:
            dotted = ".".join(map(str, here))
            raise ConfigError(f"{locate(start[0] + 1)}: {dotted}: duplicate key; first on line {lines[here]}")
        lines[here] = start[0] + 1
        yield key.value, value


def parse_scalar(text: str) -> bool | int | float | str | None:
    """Return the value of a plain scalar in YAML 1.2's core schema.

    Examples
    --------
    >>> [scalar(text) for text in ("1e-3", "010", "0o10", "no", "1:30", "~")]
    [0.001, 10, 8, 'no', '1:30', None]
    """
    if text in NULLS:
        return None
    if text in BOOLEANS:
        return BOOLEANS[text]
    if DECIMAL.fullmatch(text):
        return int(text)
    if PREFIXED.fullmatch(text):
        return int(text, 0)
    if FLOAT.fullmatch(text):
        return float(text)
    if INFINITY.fullmatch(text) or NAN.fullmatch(text):
        return float(text.replace(".", ""))
    return text
