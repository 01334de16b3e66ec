"""Layers with a shortcut of their own, in a network without the classifier's residuals."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class ShortcutLayer(nn.Module, ABC):
    """A layer whose output is that of `mix` and a shortcut around it."""

    @abstractmethod
    def mix(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to (b, l, d), without the shortcut."""

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """Map inputs (b, l, d), zero after the end, and lengths (b,) to (b, l, d)."""
        return inputs + self.mix(inputs, lengths)
