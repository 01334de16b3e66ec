"""An LSTM over time by PyTorch's own kernels, in compiled graphs too."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from msbench.ops.operators import call_isolated, register_differentiable


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
        outputs: Tensor = _lstm(x, w_x, w_h, b_x, b_h)
        return outputs
    return run_lstm(x, w_x, w_h, b_x, b_h)


def run_lstm(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Compute `lstm` by PyTorch's kernels."""
    zeros = x.new_zeros(1, x.shape[0], w_h.shape[1])
    # cuDNN computes gradients in training mode only, and Jacobians are needed in evaluation mode.
    train = torch.is_grad_enabled()
    return torch.lstm(x, (zeros, zeros), [w_x, w_h, b_x, b_h], True, 1, 0.0, train, False, True)[0]


def lstm_forward(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Return the outputs."""
    return run_lstm(x, w_x, w_h, b_x, b_h).contiguous()


def fake_lstm_forward(x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor) -> Tensor:
    """Return an empty tensor with the shape of `lstm_forward`."""
    del w_x, b_x, b_h
    return x.new_empty(x.shape[0], x.shape[1], w_h.shape[1])


def lstm_backward(
    g: Tensor, x: Tensor, w_x: Tensor, w_h: Tensor, b_x: Tensor, b_h: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of all arguments."""
    # Autograd does not record inside an operator, but does in a separate thread.
    stream = torch.cuda.stream(torch.cuda.current_stream(x.device)) if x.is_cuda else nullcontext()
    return call_isolated(compute_gradients, stream, g, (x, w_x, w_h, b_x, b_h))


def compute_gradients(
    stream: Any, g: Tensor, arguments: tuple[Tensor, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of `run_lstm` for an incoming `g`, contiguous."""
    leaves = [argument.detach().requires_grad_() for argument in arguments]
    with stream:
        found = torch.autograd.grad(run_lstm(*leaves), leaves, g)
        gx, g_w_x, g_w_h, g_b_x, g_b_h = (each.contiguous() for each in found)
    return gx, g_w_x, g_w_h, g_b_x, g_b_h


_lstm = register_differentiable(
    lstm_forward, fake_lstm_forward, lstm_backward, outputs=("y",), instead="the eager `lstm`"
)
