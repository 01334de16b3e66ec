"""Custom PyTorch operators: compiled graphs keep them whole, and gradients and vmap work through them.

Each is a ``torch.ops.msbench`` operator with a fake implementation (shapes without numbers, for
``torch.compile``), a vmap rule and, from `register_differentiable`, an autograd formula.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.library import Library, infer_schema, register_autograd, register_fake, register_vmap

NAMESPACE = "msbench"
# The plain registry, not the custom_op decorator, which adds 150 us per call, a tenth of a small step.
LIBRARY = Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]

Operation = Callable[..., Any]
IMPLEMENTATIONS: dict[str, Operation] = {}
"""The functions of all operators by their names."""
P = ParamSpec("P")
R = TypeVar("R")


def register_operator(function: Operation, fake: Operation, mutates: Sequence[str] = ()) -> Operation:
    """Register `function` under its own name, for every device; returns the operator.

    Its annotations define the schema; arguments are positional. Results must not share memory with arguments.
    `fake` takes the same arguments and returns empty tensors of the same shapes, dtypes and strides.
    `mutates` names the arguments that it writes; such a one cannot be batched.
    """
    name = f"{NAMESPACE}::{function.__name__}"
    LIBRARY.define(function.__name__ + infer_schema(function, mutates_args=mutates))  # type: ignore[no-untyped-call]
    LIBRARY.impl(function.__name__, function, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    register_fake(name, fake, lib=LIBRARY)
    IMPLEMENTATIONS[function.__name__] = function
    op: Operation = getattr(torch.ops.msbench, function.__name__).default
    if not mutates:
        register_vmap(name, make_vmap_rule(op), lib=LIBRARY)
    return op


def register_differentiable(
    forward: Operation,
    fake: Operation,
    backward: Operation,
    *,
    outputs: Sequence[str],
    instead: str,
    gradients_of: Sequence[str] | None = None,
    passed_to: Sequence[str] = (),
    fake_backward: Operation | None = None,
) -> Operation:
    """Register `forward` and its gradient as operators; return the function that applies it with gradients.

    Parameters
    ----------
    forward, fake : as for `register_operator`; only the first output is differentiable
    backward : takes the gradient of the first output, then any inputs and outputs of `forward`, which are
        kept for it, by their names. Returns one gradient for each of `gradients_of`, empty for a missing
        tensor, as an operator cannot return None; a tensor if that is one name
    outputs : names of the outputs of `forward`
    instead : named in the error of second derivatives, which the fast kernels do not have
    gradients_of : names of the inputs that have gradients; by default all tensors
    passed_to : names of further inputs, whose gradient is that of the first output itself
    fake_backward : by default empty tensors shaped like the inputs, or like the incoming gradient for inputs
        that `backward` does not take
    """
    parameters = inspect.signature(forward).parameters
    tensors = [name for name, x in parameters.items() if x.annotation in (Tensor, Tensor | None)]
    differentiable = tensors if gradients_of is None else gradients_of
    wanted = list(inspect.signature(backward).parameters)[1:]
    stored = [name for name in wanted if name in (*tensors, *outputs)]

    def make_gradients(g: Tensor, *values: Any) -> tuple[Tensor, ...]:
        given = dict(zip(wanted, values, strict=True))
        like = [given.get(name, g) for name in differentiable]
        return tuple(g.new_empty(0) if x is None else x.new_empty(x.shape) for x in like)

    def keep_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    def refuse(_ctx: Any, *_gradients: Tensor | None) -> None:
        raise NotImplementedError(f"second derivatives of a fast kernel: use {instead}")

    gradient_operator = register_operator(backward, fake_backward or make_gradients)
    apply_gradient = _differentiate(gradient_operator, keep_nothing, refuse)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        values = dict(zip((*parameters, *outputs), (*inputs, *results), strict=True))
        ctx.save_for_backward(*(values[name] for name in stored))
        ctx.mark_non_differentiable(*results[1:])
        ctx.set_materialize_grads(False)  # no zeros of the size of further outputs
        ctx.options = {name: values[name] for name in wanted if name not in stored}
        ctx.missing = {name for name in tensors if values[name] is None}

    def differentiate(ctx: Any, g: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        if g is None:
            return (None,) * len(parameters)
        # Once: a checkpoint returns saved tensors only once.
        values = dict(zip(stored, ctx.saved_tensors, strict=True)) | ctx.options
        gradients = apply_gradient(g, *(values[name] for name in wanted))
        gradients = (gradients,) if isinstance(gradients, Tensor) else gradients
        found = dict(zip(differentiable, gradients, strict=True)) | dict.fromkeys(passed_to, g)
        return tuple(None if name in ctx.missing else found.get(name) for name in parameters)

    return _differentiate(register_operator(forward, fake), keep, differentiate)


def _differentiate(op: Operation, setup_context: Operation, backward: Operation) -> Operation:
    """Return a function that applies the operator `op` with gradients for its arguments.

    `setup_context` and `backward` are those of a ``torch.autograd.Function``; `backward` must call an
    operator too, so that it can be batched.
    """
    register_autograd(op.name(), backward, setup_context=setup_context, lib=LIBRARY)  # type: ignore[attr-defined]

    class OperatorFunction(torch.autograd.Function):
        """The function for ``torch.func``, whose transforms do not see the autograd formulas of operators."""

        forward = staticmethod(op)
        vmap = staticmethod(make_vmap_rule(lambda *args: OperatorFunction.apply(*args)))

    OperatorFunction.setup_context = staticmethod(setup_context)  # type: ignore[method-assign]
    OperatorFunction.backward = staticmethod(backward)  # type: ignore[method-assign]

    def apply(*args: Any) -> Any:
        transformed = torch._C._are_functorch_transforms_active()
        return OperatorFunction.apply(*args) if transformed else op(*args)

    return apply


def needs_gradient(tensors: Iterable[Tensor | None]) -> bool:
    """Return True if a backward may follow, so that states must be kept.

    With gradients enabled, always inside a function transform: slices of vmap do not report `requires_grad`.
    """
    transformed = torch._C._are_functorch_transforms_active()
    required = transformed or any(x is not None and x.requires_grad for x in tensors)
    return torch.is_grad_enabled() and required


def mark_constant(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result compiled graphs treat as a constant, such as the choice of a kernel."""
    marked: Callable[P, R] = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return marked


def call_isolated(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` in a separate thread, outside of the caller's modes.

    A kernel may be chosen, and for that tested, under ``no_grad``, inside a function transform or while a
    graph is traced, where gradients cannot be computed. The GPU is that of the caller: a thread's own is the
    first one.
    """
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    gpu = torch.cuda.device(torch.cuda.current_device()) if started else nullcontext()

    def call() -> R:
        with gpu:
            return function(*args, **kwargs)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


def make_vmap_rule(function: Operation) -> Callable[..., tuple[Any, Any]]:
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
