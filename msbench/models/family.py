"""What msbench must know of a model family: one object a model file, found by the class of its config."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.ops import kernel_name, recurrence_kernels


def _causal(config: Any) -> bool:
    return not getattr(config, "bidirectional", False)


def _no_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the signature is the field's)
    return "torch"


def no_states(config: Any) -> int:  # noqa: ARG001
    """0, of a layer that is no recurrence, or none of a selective scan."""
    return 0


@dataclass(frozen=True)
class Family:
    """Functions of a config of this family's class.

    `states` counts the real numbers that one channel of one layer carries from step to step, over both
    directions: 0 where a layer is no recurrence. `activations` counts the numbers that one position of one
    layer keeps for the backward, on a device of the given type. `kernel` names what computes the recurrence
    there. `scanned` counts the states of its largest stream in the selective scan, whose kernels may have a
    limit: 0 where it is not used.
    """

    build: Callable[[Any, TaskInfo], Classifier]
    states: Callable[[Any], int]
    activations: Callable[[Any, str], float]
    causal: Callable[[Any], bool] = _causal
    kernel: Callable[[Any, str], str] = _no_kernel
    scanned: Callable[[Any], int] = no_states

    @property
    def module(self) -> str:
        """The module that defines the models: with all that it imports, its part of a run's source digest."""
        return self.build.__module__


def scan_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (of all configs alike)
    """What computes the selective scan on a device of this type."""
    return kernel_name(device)


def recurrence_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (of all configs alike)
    """What computes `msbench.ops.linear_scan` and `lti_scan` on a device of this type."""
    return "cpp" if device == "cpu" and recurrence_kernels.chosen() else "torch"
