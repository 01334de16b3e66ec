"""Recurrent inference: what a layer needs to be run one position at a time."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from msbench.errors import ConfigError


@runtime_checkable
class Recurrent(Protocol):
    """A causal layer that can go on from where it stopped; a state is a tensor or a nest of tensors and None.

    In evaluation mode, steps one after another give what the layer's forward gives for the whole sequence.
    """

    def start(self, x: Tensor) -> Any:
        """The state before the first position, for inputs like x (b, d): its device, dtype and b."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One position, x (b, d): its output (b, d), and the state behind it. `state` is left as it was."""


def begin(layer: nn.Module, x: Tensor) -> Any:
    """`Recurrent.start` of a layer for inputs like x (b, d); ConfigError where it has none."""
    if not isinstance(layer, Recurrent):
        raise ConfigError(
            f"{type(layer).__name__} has no recurrent inference; the model reads whole sequences only"
        )
    return layer.start(x)


def advance(layer: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The positions of x (b, l, d) one after the other: outputs (b, l, d), and the state behind them."""
    outputs = []
    for position in x.unbind(1):
        y, state = layer.step(position, state)
        outputs.append(y)
    return torch.stack(outputs, dim=1), state
