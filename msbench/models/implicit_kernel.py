"""Kernels that a small network computes: position in, the kernel's value there for every channel out."""

import torch
from torch import Tensor, nn


class ImplicitKernel(nn.Module):
    """A network from positions to a kernel, in float32 or better regardless of autocast."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, positions: Tensor) -> Tensor:
        """Map positions (k, p), p numbers each, to a kernel (k, c)."""
        with torch.autocast(positions.device.type, enabled=False):
            kernel: Tensor = self.layers(positions)
        return kernel


class Sine(nn.Module):
    """sin(frequency x), as in the networks of Sitzmann et al. (2020)."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        """Map (...) to (...)."""
        return torch.sin(self.frequency * x)
