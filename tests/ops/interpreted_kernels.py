"""The interpreter of Triton kernels for tests: faster, and it sees accesses outside of the arrays."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor


def prepare_interpreter(monkeypatch: pytest.MonkeyPatch, modules: Sequence[str]) -> None:
    """Make the interpreter faster for the kernels of some modules, and let it see accesses outside of arrays.

    It patches the language again for every call of a helper, and checks every integer for overflow: three
    quarters of its time. Half of the rest is making types of blocks anew for every operation.
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
        guard.spans = [find_span(x) for x in args if isinstance(x, Tensor)]
        start(self, *args, **kwargs)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", guarded)
    keep_types(monkeypatch)


def keep_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let blocks of one shape share all that follows from it."""
    from triton.language import core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    blocks: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    shapes: dict[tuple[int, ...], tuple[Any, Any, Any]] = {}
    numbers: dict[str, Any] = {}
    make_block, make_tensor = core.block_type.__init__, core.tensor.__init__
    find_number, broadcast = interpreter._get_np_dtype, TritonSemantic.broadcast_impl_value

    def block_type(self: Any, element: Any, shape: Any) -> None:
        sizes = tuple(x.value if isinstance(x, core.constexpr) else x for x in shape)
        key = element.name, sizes
        if key not in blocks:
            make_block(self, element, shape)
            if sizes in shapes:
                self.shape = shapes[sizes][0]
            else:
                tensor = object.__new__(core.tensor)
                make_tensor(tensor, None, self)
                shapes[sizes] = self.shape, tensor.shape, tensor.numel
            blocks[key] = dict(self.__dict__)
        self.__dict__.update(blocks[key])

    def tensor(self: Any, handle: Any, type: Any) -> None:
        if not type.is_block():
            make_tensor(self, handle, type)
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        _, self.shape, self.numel = shapes[tuple(type.shape.values)]

    def get_number(type: Any) -> Any:
        name = type.scalar.name
        if name not in numbers:
            numbers[name] = find_number(type)
        return numbers[name]

    def broadcast_values(self: Any, one: Any, other: Any) -> Any:
        if one.type.is_block() and other.type.is_block() and one.type.shape is other.type.shape:
            return one, other
        return broadcast(self, one, other)

    monkeypatch.setattr(core.block_type, "__init__", block_type)
    monkeypatch.setattr(core.tensor, "__init__", tensor)
    monkeypatch.setattr(interpreter, "_get_np_dtype", get_number)
    monkeypatch.setattr(TritonSemantic, "broadcast_impl_value", broadcast_values)


class Guard:
    """The interpreter's memory, of which only the arguments of the kernel may be touched."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.spans: list[tuple[int, int]] = []

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
        assert any(start <= first and last < end for start, end in self.spans), (
            "an access outside of the arrays"
        )


def find_span(x: Tensor) -> tuple[int, int]:
    """The addresses of a tensor's first number and of the end of its last one, whatever its strides."""
    last = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size() if x.numel() else x.data_ptr()
