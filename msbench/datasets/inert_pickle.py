"""Extraction of arrays and plain values from a pickle without running it.

A pickle is a program, and the library that loads one runs it: it calls what the file names. Here its
instructions are only interpreted: numbers, texts, lists, tuples, dicts and numpy's arrays are built by this
module itself, and any other name is refused. Protocols 0 to 4, as far as such values need them.
"""

import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ARRAY = {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}
KNOWN = ARRAY | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
NUMBERS = re.compile(r"[biuf][1248]")
"""Types of arrays that hold numbers, and never objects."""
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
AS_THEY_ARE = re.compile(r"(BININT|LONG|BINFLOAT|FLOAT|INT|(SHORT_)?BIN(UNICODE|BYTES)8?|UNICODE)[124]?")
OLD_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING")
"""Instructions for texts of Python 2, which are bytes."""
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class NotInert(ValueError):
    """The pickle needs more than plain values; the message says what."""


@dataclass(frozen=True)
class _Name:
    """A name in the pickle, which is never looked up."""

    module: str
    name: str


@dataclass
class _Type:
    """A numpy type; its byte order is set after it is made."""

    code: str
    order: str = "="


@dataclass
class _Array:
    """A numpy array, empty until it is filled."""

    value: Any = field(default_factory=lambda: np.zeros(0, np.uint8))


class _Mark:
    """Start of a list of values on the stack."""


def values(data: bytes) -> Any:
    """Return the value in `data`, texts of Python 2 as bytes. Raises ValueError for more than plain values.

    For bytes that are no pickle, other exceptions of the parser may be raised.
    """
    reader = _Reader()
    for opcode, argument, _ in pickletools.genops(data):
        reader.step(opcode.name, argument)
    return _plain(reader.stack.pop())


def _plain(value: Any) -> Any:
    """Return the value with `_Array` objects replaced: the value itself, or those in a dict."""
    if isinstance(value, dict):
        return {key: _plain(each) if isinstance(each, _Array) else each for key, each in value.items()}
    return value.value if isinstance(value, _Array) else value


class _Reader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """Execute one instruction."""
        push = self.stack.append
        if name in CONSTANTS:
            push(CONSTANTS[name])
        elif name in EMPTY:
            push(EMPTY[name]())
        elif AS_THEY_ARE.fullmatch(name):
            push(argument)
        elif name in OLD_TEXTS:
            push(argument.encode("latin-1"))
        elif name == "MARK":
            push(_Mark())
        elif name in TUPLES:
            push(tuple(self._last(TUPLES[name])))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            push(_named(*(argument.split(" ", 1) if argument else self._last(2))))
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._more(name, argument)

    def _more(self, name: str, argument: Any) -> None:
        """Execute an instruction on values that are already on the stack."""
        match name:
            case "MEMOIZE":
                self.memo[len(self.memo)] = self.stack[-1]
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[int(argument)] = self.stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[int(argument)])
            case "TUPLE" | "LIST":
                items = self._since_mark()
                self.stack.append(items if name == "LIST" else tuple(items))
            case "APPEND" | "APPENDS":
                items = self._last(1) if name == "APPEND" else self._since_mark()
                self._of(list).extend(items)
            case "SETITEM" | "SETITEMS" | "DICT":
                items = self._last(2) if name == "SETITEM" else self._since_mark()
                if name == "DICT":
                    self.stack.append({})
                self._of(dict).update(zip(map(_key, items[::2]), items[1::2], strict=True))
            case "REDUCE":
                called, arguments = self._last(2)
                self.stack.append(_made(called, arguments))
            case "BUILD":
                (state,) = self._last(1)
                _fill(self.stack[-1], state)
            case _:
                raise NotInert(f"it has the instruction {name}, which no values need")

    def _of(self, kind: type) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise NotInert(f"it changes what is no {kind.__name__}")
        return self.stack[-1]

    def _last(self, count: int) -> list[Any]:
        items = [self.stack.pop() for _ in range(count)]
        return items[::-1]

    def _since_mark(self) -> list[Any]:
        items = []
        while not isinstance(item := self.stack.pop(), _Mark):
            items.append(item)
        return items[::-1]


def _key(value: Any) -> Any:
    """Return a valid key: hashing a tuple of tuples of ... would overflow the C stack."""
    if not isinstance(value, str | bytes | int):
        raise NotInert(f"it has a key of type {type(value).__name__}, and no text or number")
    return value


def _named(module: Any, name: Any) -> _Name:
    if (_key(module), _key(name)) not in KNOWN:
        raise NotInert(f"it asks for {module!s:.80}.{name!s:.80}, which no values need")
    return _Name(module, name)


def _made(called: Any, arguments: Any) -> Any:
    """Return the result of calling one of `KNOWN`, as far as plain values need it."""
    place = (called.module, called.name)
    if place in ARRAY:
        return _Array()
    if place == ("numpy", "dtype"):
        code = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        if not NUMBERS.fullmatch(code):
            raise NotInert(f"it has an array of {code!r}, which are no numbers")
        return _Type(code)
    if place == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
        return arguments[0].encode("latin-1")
    raise NotInert(f"it calls {called.module}.{called.name}")


def _fill(made: Any, state: Any) -> None:
    """Do the work of ``__setstate__`` of numpy's types and arrays."""
    if isinstance(made, _Type):
        order = state[1].decode() if isinstance(state[1], bytes) else state[1]
        made.order = "=" if order == "|" else order
    elif isinstance(made, _Array):
        _version, shape, kind, fortran, raw = state
        found = np.frombuffer(raw, np.dtype(f"{kind.order}{kind.code}"))
        made.value = found.reshape(shape, order="F" if fortran else "C")
    else:
        raise NotInert("it fills what is no array")
