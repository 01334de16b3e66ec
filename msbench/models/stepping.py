"""Recurrent inference: what a layer needs to be run one position at a time."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Recurrent(Protocol):
    """A causal layer that can go on from where it stopped; a state is a tensor or a nest of tensors and None.

    In evaluation mode, steps one after another give what the layer's forward gives for the whole sequence.
    """

    def start(self, x: Tensor) -> Any:
        """The state before the first position, for inputs like x (b, d): its device, dtype and b."""

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One position, x (b, d): its output (b, d), and the state behind it. `state` is left as it was."""
