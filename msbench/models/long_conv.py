"""The base of layers with one long causal kernel per channel, computed from parameters in each pass."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from msbench.ops.convolution import long_convolution

State = tuple[Tensor, Tensor]
"""The kernel (k, d) and the last k inputs (b, k, d), both oldest first."""


class LongConv(nn.Module, ABC):
    """A long causal convolution, ``y[t] = sum_j kernel[j] x[t - j]``.

    Works for any length: the part of a kernel beyond the sequence is unused, and inputs further back than
    `reach` steps are ignored.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach

    @abstractmethod
    def compute_kernel(self, length: int) -> Tensor:
        """Return the kernel (k, d) by lag: at least the first `length` lags, or all `reach` if fewer."""

    def forward(self, x: Tensor) -> Tensor:
        """Map x (b, l, d) to (b, l, d)."""
        return long_convolution(x, self.compute_kernel(x.shape[1]))

    def start(self, x: Tensor) -> State:
        """See `msbench.models.layers.Recurrent`; the kernel is computed here, once for all steps."""
        kernel = self.compute_kernel(self.reach).flip(0)
        return kernel, x.new_zeros(x.shape[0], *kernel.shape)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See `msbench.models.layers.Recurrent`."""
        kernel, seen = state
        seen = torch.cat([seen[:, 1:], x.unsqueeze(1)], dim=1)
        with torch.autocast(x.device.type, enabled=False):
            y = torch.einsum("kd,bkd->bd", kernel, seen.to(kernel.dtype))
        return y.to(x.dtype), (kernel, seen)
