"""The interface of a model family: one object per model file, found by the class of its config."""

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


def count_no_states(config: Any) -> int:  # noqa: ARG001
    """Return 0, for a layer that is not a recurrence or does not use the selective scan."""
    return 0


@dataclass(frozen=True)
class Family:
    """A model family: functions of a config of its class.

    `states` counts the real numbers that one channel of one layer carries from step to step, over both
    directions: 0 if a layer is not a recurrence. `activations` counts the numbers that one position of one
    layer keeps for the backward on a device type. `kernel` names the implementation of the recurrence there.
    `scanned` counts the states of the largest stream in the selective scan, whose kernels may have a limit: 0
    if the scan is not used.
    """

    build: Callable[[Any, TaskInfo], Classifier]
    states: Callable[[Any], int]
    activations: Callable[[Any, str], float]
    causal: Callable[[Any], bool] = _causal
    kernel: Callable[[Any, str], str] = _no_kernel
    scanned: Callable[[Any], int] = count_no_states

    @property
    def module(self) -> str:
        """The module that defines the models; a run's source digest covers it and all that it imports."""
        return self.build.__module__


def name_scan_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the same for all configs)
    """Return the name of the selective scan's implementation on a device type."""
    return kernel_name(device)


def name_recurrence_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the same for all configs)
    """Return the name of the implementation of `linear_scan` and `lti_scan` on a device type."""
    return "cpp" if device == "cpu" and recurrence_kernels.chosen() else "torch"
