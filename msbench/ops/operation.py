"""Custom PyTorch operators: compiled graphs keep them whole, and gradients and vmap work through them.

Each is a ``torch.ops.msbench`` operator with a fake implementation (shapes without numbers, for
``torch.compile``), a vmap rule and, if `differentiable`, an autograd formula.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.library import Library, infer_schema, register_autograd, register_fake, register_vmap

NAMESPACE = "msbench"
# The plain registry, not the custom_op decorator, which adds 150 us per call, a tenth of a small step.
LIBRARY = Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]

Operation = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")


def operation(function: Operation, fake: Operation) -> Operation:
    """Register `function` under its own name, for every device; returns the operator.

    Its annotations define the schema; arguments are positional. Results must not share memory with arguments.
    `fake` takes the same arguments and returns empty tensors of the same shapes, dtypes and strides.
    """
    name = f"{NAMESPACE}::{function.__name__}"
    LIBRARY.define(function.__name__ + infer_schema(function, mutates_args=()))  # type: ignore[no-untyped-call]
    LIBRARY.impl(function.__name__, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    register_fake(name, fake, lib=LIBRARY)
    op: Operation = getattr(torch.ops.msbench, function.__name__).default
    register_vmap(name, looped(op), lib=LIBRARY)
    return op


def differentiable(op: Operation, setup_context: Operation, backward: Operation) -> Operation:
    """Return a function that applies the operator `op` with gradients for its arguments.

    `setup_context` and `backward` are those of a ``torch.autograd.Function``; `backward` must call an
    operator too, so that it can be batched.
    """
    register_autograd(op.name(), backward, setup_context=setup_context, lib=LIBRARY)  # type: ignore[attr-defined]

    class Function(torch.autograd.Function):
        """The function for ``torch.func``, whose transforms do not see the autograd formulas of operators."""

        forward = staticmethod(op)
        vmap = staticmethod(looped(lambda *args: Function.apply(*args)))

    Function.setup_context = staticmethod(setup_context)  # type: ignore[method-assign]
    Function.backward = staticmethod(backward)  # type: ignore[method-assign]

    def apply(*args: Any) -> Any:
        transformed = torch._C._are_functorch_transforms_active()
        return Function.apply(*args) if transformed else op(*args)

    return apply


def once_differentiable(op: Operation, instead: str) -> Operation:
    """Return a function that applies `op`, a backward; its own gradient raises an error naming `instead`."""

    def keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    def refuse(_ctx: Any, *_gradients: Tensor | None) -> None:
        raise NotImplementedError(f"second derivatives of a fast kernel: use {instead}")

    return differentiable(op, keep_nothing, refuse)


def kept(tensors: Iterable[Tensor | None]) -> bool:
    """Return True if a backward may follow, so that states must be kept.

    With gradients enabled, always inside a function transform: slices of vmap do not report `requires_grad`.
    """
    transformed = torch._C._are_functorch_transforms_active()
    required = transformed or any(x is not None and x.requires_grad for x in tensors)
    return torch.is_grad_enabled() and required


def constant(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result compiled graphs treat as a constant, such as the choice of a kernel."""
    marked: Callable[P, R] = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return marked


def isolated(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` in a separate thread, outside of the caller's modes.

    A kernel may be chosen, and for that tested, under ``no_grad``, inside a function transform or while a
    graph is traced, where gradients cannot be computed.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args, **kwargs).result()


def looped(function: Operation) -> Callable[..., tuple[Any, Any]]:
    """Return a vmap rule that applies `function` to one slice after another: exact, without a speed-up."""

    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        slices = []
        for index in range(info.batch_size):
            pairs = zip(args, in_dims, strict=True)
            slices.append(function(*(arg if dim is None else arg.select(dim, index) for arg, dim in pairs)))
        if isinstance(slices[0], Tensor):
            return torch.stack(slices), 0
        stacked = tuple(torch.stack(parts) for parts in zip(*slices, strict=True))
        return stacked, (0,) * len(stacked)

    return vmap
