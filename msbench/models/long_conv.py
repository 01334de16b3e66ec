"""One long causal kernel a channel, made from parameters anew in each pass: what such layers share."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from msbench.ops import long_convolution

State = tuple[Tensor, Tensor]
"""The kernel (k, d) and the last k inputs (b, k, d), both oldest first."""


class LongConv(nn.Module, ABC):
    """``y[t] = sum_j kernel[j] x[t - j]``.

    Any length: of a kernel that is longer than the sequence nobody sees the rest; what lies further back than
    `reach` steps is not seen.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    @abstractmethod
    def kernel(self, length: int) -> Tensor:
        """(k, d) by lag: at least the first `length` lags, or all `reach` where those are fewer."""

    def forward(self, x: Tensor) -> Tensor:
        """x (b, l, d) -> (b, l, d)."""
        return long_convolution(x, self.kernel(x.shape[1]))

    def start(self, x: Tensor) -> State:
        """See `msbench.models.stepping.Recurrent`; the kernel is made here, once for all steps."""
        kernel = self.kernel(self.reach).flip(0)
        return kernel, x.new_zeros(x.shape[0], *kernel.shape)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `msbench.models.stepping.Recurrent`."""
        kernel, seen = state
        seen = torch.cat([seen[:, 1:], x.unsqueeze(1)], dim=1)
        with torch.autocast(x.device.type, enabled=False):
            y = torch.einsum("kd,bkd->bd", kernel, seen.to(kernel.dtype))
        return y.to(x.dtype), (kernel, seen)
