"""An LSTM over time by PyTorch's own kernels, in compiled graphs too."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from msbench.ops.operation import differentiable, isolated, once_differentiable, operation


def lstm(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Return the outputs (b, l, h) of an LSTM over x (b, l, d), from a zero state.

    Parameters
    ----------
    x : (b, l, d)
    w_x, w_h : (4 h, d) and (4 h, h), for the gates i, f, g, o
    b_x, b_h : (4 h,)

    In a compiled graph this is one operator, whose backward recomputes the forward: torch.compile does not
    support ``nn.LSTM``, and its backends cannot trace the underlying kernels.
    """
    if torch.compiler.is_compiling():
        outputs: Tensor = recurrence(x, w_x, w_h, b_x, b_h)
        return outputs
    return eager(x, w_x, w_h, b_x, b_h)


def eager(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Compute `lstm` by PyTorch's kernels."""
    zeros = x.new_zeros(1, x.shape[0], w_h.shape[1])
    # cuDNN computes gradients in training mode only, and Jacobians are needed in evaluation mode.
    train = torch.is_grad_enabled()
    return torch.lstm(x, (zeros, zeros), [w_x, w_h, b_x, b_h], True, 1, 0.0, train, False, True)[0]


def lstm_forward(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Return the outputs."""
    return eager(x, w_x, w_h, b_x, b_h).contiguous()


def fake_forward(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `lstm_forward`."""
    del w_x, b_x, b_h
    return x.new_empty(x.shape[0], x.shape[1], w_h.shape[1])


def lstm_backward(
    g: Tensor, x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of all arguments."""
    # Autograd does not record inside an operator, but does in a separate thread.
    stream = torch.cuda.stream(torch.cuda.current_stream(x.device)) if x.is_cuda else nullcontext()
    return isolated(gradients, stream, g, (x, w_x, w_h, b_x, b_h))


def gradients(
    stream: Any, g: Tensor, arguments: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of `eager` for an incoming `g`, contiguous."""
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    with stream:
        found = torch.autograd.grad(eager(*leaves), leaves, g)
        gx, g_w_x, g_w_h, g_b_x, g_b_h = (each.contiguous() for each in found)
    return gx, g_w_x, g_w_h, g_b_x, g_b_h


def fake_backward(
    g: Tensor, x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return empty tensors with the shapes of `lstm_backward`."""
    del g
    return (
        x.new_empty(x.shape),
        w_x.new_empty(w_x.shape),
        w_h.new_empty(w_h.shape),
        b_x.new_empty(b_x.shape),
        b_h.new_empty(b_h.shape),
    )


def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Keep the arguments."""
    del output
    ctx.save_for_backward(*inputs)


def backward(ctx: Any, g: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of all inputs of the operator."""
    found: tuple[Tensor, ...] = recurrence_backward(g, *ctx.saved_tensors)
    return found


recurrence_backward = once_differentiable(operation(lstm_backward, fake_backward), "the eager `lstm`")
recurrence = differentiable(operation(lstm_forward, fake_forward), setup_context, backward)
