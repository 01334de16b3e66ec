"""The elementwise recurrence in PyTorch operations: for devices other than the CPU, and without a compiler.

Two steps combine to one: ``h_{t+1} = (a_{t+1} a_t) h_{t-1} + (a_{t+1} x_t + x_{t+1})``. So every other state
comes from the same recurrence at half the length, and the states between from those. The number of operations
grows with log2 of the length, and they process twice the number of elements in total. Decays are only
multiplied: quotients of their cumulative products underflow to 0/0 after a few fast steps.
"""

import torch
from torch import Tensor


def recurrence(a: Tensor, x: Tensor, *, log: bool = False) -> Tensor:
    """Return h (b, l, d) of a (b or 1, l or 1, d or 1) and x (b, l, d); with `log`, a holds log decays.

    With logarithms slow decays stay exact over any distance: rounded decays are not multiplied.
    """
    if x.shape[1] < 2:
        return x.clone()
    even, odd = x[:, 0::2], x[:, 1::2]
    pairs, singles = odd.shape[1], even.shape[1] - 1
    shared = a.shape[1] == 1
    a_first, a_odd = (a, a) if shared else (a[:, 0::2][:, :pairs], a[:, 1::2])
    inputs = torch.addcmul(odd, a_odd.exp() if log else a_odd, even[:, :pairs])
    states = recurrence(a_first + a_odd if log else a_first * a_odd, inputs, log=log)
    a_even = a if shared else a[:, 2::2]
    h = x.new_empty(x.shape)
    h[:, 0], h[:, 1::2] = x[:, 0], states
    h[:, 2::2] = torch.addcmul(even[:, 1:], a_even.exp() if log else a_even, states[:, :singles])
    return h


def reversed_recurrence(a: Tensor, g: Tensor, *, log: bool = False) -> Tensor:
    """Return the adjoint states ``q_t = a_{t+1} q_{t+1} + g_t``, from the last step to the first."""
    later = a if a.shape[1] == 1 else a.flip(1).roll(1, 1)
    return recurrence(later, g.flip(1), log=log).flip(1)


class TorchLinearEngine:
    """See `msbench.ops.linear_scan.LinearEngine`."""

    def forward(self, a: Tensor, x: Tensor) -> Tensor:
        """See `msbench.ops.linear_scan.LinearEngine`."""
        return recurrence(a, x)

    def backward(self, gh: Tensor, a: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """See `msbench.ops.linear_scan.LinearEngine`."""
        gx = reversed_recurrence(a.conj(), gh)
        products = gx[:, 1:] * h[:, :-1].conj()
        if a.shape[1] > 1:
            products = torch.cat([torch.zeros_like(products[:, :1]), products], dim=1)
        alike = [dim for dim in (0, 1) if a.shape[dim] == 1]
        return products.sum(alike, keepdim=True) if alike else products, gx.contiguous()


ENGINE = TorchLinearEngine()
