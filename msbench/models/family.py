"""The interface of a model family: one object `FAMILY` per model file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from msbench.datasets.dataset import TaskInfo
from msbench.models.classifier import Classifier
from msbench.ops.linear_scan import is_linear_native, is_linear_on_gpu
from msbench.ops.lti_scan import is_lti_native, is_lti_on_gpu
from msbench.ops.scan.dispatch import kernel_name

Cost = Literal["l", "l log l", "l sqrt l", "l^2"]
"""How the time of a layer grows with the length l of a sequence."""


def _is_causal(config: Any) -> bool:
    return not getattr(config, "bidirectional", False)


def _name_no_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the signature is the field's)
    return "torch"


def count_no_states(config: Any) -> int:  # noqa: ARG001
    """Return 0, for a layer that is not a recurrence or does not use the selective scan."""
    return 0


@dataclass(frozen=True)
class Family:
    """A model family: functions of a config of its class.

    `count_states` counts the real numbers that one channel of one layer carries from step to step, over both
    directions: 0 if a layer is not a recurrence. `name_kernel` names the implementation of the
    recurrence there. `count_scanned` counts the states of the largest stream in the selective scan, whose
    kernels may have a limit: 0 if the scan is not used.
    """

    build: Callable[[Any, TaskInfo], Classifier]
    count_states: Callable[[Any], int]
    is_causal: Callable[[Any], bool] = _is_causal
    name_kernel: Callable[[Any, str], str] = _name_no_kernel
    count_scanned: Callable[[Any], int] = count_no_states
    cost: Cost = "l"
    loop: Literal["none", "positions", "examples"] = "none"
    """What its layers loop over in Python, so that a trace of all of it would take long."""


def name_scan_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the same for all configs)
    """Return the name of the selective scan's implementation on a device type."""
    return kernel_name(device)


def name_recurrence_kernel(config: Any, device: str) -> str:  # noqa: ARG001 (the same for all configs)
    """Return the name of the implementation of `linear_scan` and `lti_scan` on a device type."""
    if is_linear_on_gpu(device) and is_lti_on_gpu(device):
        return "triton"
    return "cpp" if device == "cpu" and is_linear_native() and is_lti_native() else "torch"
