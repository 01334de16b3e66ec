"""The interpreter of Triton kernels for tests: faster, and it sees accesses outside of the arrays."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor


def prepare_interpreter(monkeypatch: pytest.MonkeyPatch, modules: Sequence[str]) -> None:
    """Make the interpreter faster for the kernels of some modules, and let it see accesses outside of arrays.

    It patches the language again for every call of a helper, and checks every integer for overflow: three
    quarters of its time.
    """
    from triton.runtime import interpreter

    options = replace(interpreter.interpreter_builder.options, sanitize_overflow=False)
    monkeypatch.setattr(interpreter.interpreter_builder, "options", options)
    call, patched = interpreter.InterpretedFunction.__call__, set(modules)

    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.fn.__module__ in patched:
            return self.rewrite()(*args, **kwargs)
        patched.add(self.fn.__module__)
        return call(self, *args, **kwargs)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", once)
    guard = Guard(interpreter._interpreter)
    monkeypatch.setattr(interpreter, "_interpreter", guard)
    start = interpreter.GridExecutor.__call__

    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        guard.arrays = [x for x in args if isinstance(x, Tensor)]
        start(self, *args, **kwargs)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", guarded)


class Guard:
    """The interpreter's memory, of which only the arguments of the kernel may be touched."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.arrays: list[Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.memory, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self.check(pointers, mask)
        return self.memory.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> None:
        self.check(pointers, mask)
        self.memory.store(pointers, value, mask)

    def check(self, pointers: Any, mask: Any) -> None:
        touched = pointers[mask.astype(bool)]  # a mask of several conditions has integers
        if touched.size == 0:
            return
        first, last = int(touched.min()), int(touched.max())
        spans = [find_span(x) for x in self.arrays]
        assert any(start <= first and last < end for start, end in spans), "an access outside of the arrays"


def find_span(x: Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first number and of the end of its last one, whatever its strides."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size() if x.numel() else x.data_ptr()
