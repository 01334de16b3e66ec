"""Memory that a run takes on a device, and advice if that is too much."""

from torch import nn

from msbench import models
from msbench.config import RunSpec
from msbench.config.messages import format_bytes
from msbench.datasets.dataset import TaskInfo
from msbench.environment import measure_free_memory
from msbench.training.memory import describe_memory_error

COPIES = 4
"""Copies of the parameters: themselves, their gradients, and AdamW's two moments."""


def needed(spec: RunSpec, model: nn.Module, info: TaskInfo, device: str, devices: int = 1) -> int:
    """Estimate the bytes that training takes on each of its devices: parameters, optimiser and activations.

    For the largest batch that the task can have, if no layer is recomputed; ``micro_batch: auto`` counts as
    the whole batch. Memory of torch, its kernels and the data is not included.
    """
    parameters = sum(each.numel() * each.element_size() for each in model.parameters())
    positions = positions_at_once(spec, info, devices)
    return COPIES * parameters + models.estimate_activation_bytes(
        spec.model_name, spec.model, positions, device
    )


def positions_at_once(spec: RunSpec, info: TaskInfo, devices: int = 1) -> int:
    """Return the positions, with padding, of the most examples that one device computes at once."""
    train = spec.train
    share = -(-train.batch_size // devices)
    examples = min(share, train.micro_batch) if isinstance(train.micro_batch, int) else share
    return examples * info.sequences * (train.pad_to or info.longest)


def most_positions(spec: RunSpec, device: str, processes: int = 1) -> int:
    """Return the positions whose activations fill half of the free memory, which processes on a CPU share."""
    free = measure_free_memory(device) // (processes if device == "cpu" else 1)
    return free // 2 // models.estimate_activation_bytes(spec.model_name, spec.model, 1, device)


def what_to_do(error: BaseException, spec: RunSpec, device: str) -> str:
    """Return a message on the memory requested, the memory free, and what would help."""
    free = format_bytes(measure_free_memory(device))
    smaller = f"a smaller train.batch_size than {spec.train.batch_size}"
    pieces = spec.model.norm != "batch" and spec.train.micro_batch != "auto"
    # Pieces of a batch would change what batch norm computes.
    help_ = f"--set train.micro_batch=auto (the same results), or {smaller}" if pieces else smaller
    return (
        f"{describe_memory_error(error)}; {free} are free on {device} now;"
        f" try {help_}, a smaller model, or more --devices"
    )
