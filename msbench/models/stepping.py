"""Recurrent inference: the interface of layers that run one position at a time."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from msbench.errors import ConfigError


@runtime_checkable
class Recurrent(Protocol):
    """A causal layer that can run step by step; its state is a tensor or a nest of tensors and None.

    In evaluation mode successive steps give the same outputs as the layer's forward for the whole sequence.
    """

    def start(self, x: Tensor) -> Any:
        """Return the state before the first position, for inputs like x (b, d): its device, dtype and b."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run one position x (b, d); return its output (b, d) and the new state; `state` is unchanged."""


def begin(layer: nn.Module, x: Tensor) -> Any:
    """Call `Recurrent.start` of a layer for inputs like x (b, d); raise ConfigError if it has none."""
    if not isinstance(layer, Recurrent):
        raise ConfigError(
            f"{type(layer).__name__} has no recurrent inference; the model reads whole sequences only"
        )
    return layer.start(x)


def advance(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """Run the positions of x (b, l, d) one by one; return the outputs (b, l, d) and the new state."""
    outputs = []
    for position in x.unbind(1):
        y, state = layer.step(position, state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state
