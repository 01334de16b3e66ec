"""Size of a run: its steps, its tokens and the memory that it takes, with advice if that is too much."""

from typing import Any

import numpy as np
from torch import nn

from msbench import datasets, models
from msbench.config import RunSpec
from msbench.config.messages import format_bytes
from msbench.datasets.dataset import TaskInfo
from msbench.environment import measure_free_memory
from msbench.errors import OutOfMemory
from msbench.runs.plan import PlannedRun, name_run
from msbench.training.memory import describe_memory_error, is_out_of_memory
from msbench.training.schedule import LearningRateSchedule

COPIES = 4
"""Copies of the parameters: themselves, their gradients, and AdamW's two moments."""


def estimate_memory(spec: RunSpec, model: nn.Module, info: TaskInfo, device: str, devices: int = 1) -> int:
    """Estimate the bytes that training takes on each of its devices: parameters, optimiser and activations.

    For the largest batch that the task can have, if no layer is recomputed; ``micro_batch: auto`` counts as
    the whole batch. Memory of torch, its kernels and the data is not included.
    """
    parameters = sum(each.numel() * each.element_size() for each in model.parameters())
    positions = count_positions(spec, info, devices)
    copies = COPIES + (spec.train.average_weights is not None)
    return copies * parameters + models.estimate_activation_bytes(
        spec.model_name, spec.model, positions, device
    )


def count_positions(spec: RunSpec, info: TaskInfo, devices: int = 1) -> int:
    """Return the positions, with padding, of the most examples that one device computes at once."""
    train = spec.train
    share = -(-train.batch_size // devices)
    examples = min(share, train.micro_batch) if isinstance(train.micro_batch, int) else share
    return examples * info.sequences * (train.pad_to or info.longest)


def limit_positions(spec: RunSpec, device: str, processes: int = 1) -> int:
    """Return the positions whose activations fill half of the free memory, which processes on a CPU share."""
    free = measure_free_memory(device) // (processes if device == "cpu" else 1)
    return free // 2 // models.estimate_activation_bytes(spec.model_name, spec.model, 1, device)


def advise_on_memory(error: BaseException, spec: RunSpec, device: str) -> str:
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


def count_steps(entry: PlannedRun) -> int | None:
    """Return the optimiser steps of a run; None if that needs data which are not set up."""
    spec, dataset = entry.spec, entry.dataset
    examples = len(dataset.splits["train"]) if dataset else getattr(spec.data, "train", None)
    return LearningRateSchedule.from_config(spec.train, examples).total if examples is not None else None


def estimate_size(entry: PlannedRun, device: str, devices: int = 1) -> dict[str, Any]:
    """Return parameters, states a channel, steps, tokens and bytes of a run; None for what needs the data."""
    spec, dataset = entry.spec, entry.dataset
    info = dataset.info if dataset else datasets.outline(spec.data)
    try:
        model = models.build_outline(spec.model_name, spec.model, info)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        text = describe_memory_error(error)
        raise OutOfMemory(
            f"{name_run(spec)}: its parameters do not fit: {text}; use a smaller model"
        ) from None
    steps = count_steps(entry)
    mean_length = float(np.mean(dataset.splits["train"].lengths)) if dataset else None
    sequences = spec.train.batch_size * info.sequences
    tokens = round(steps * sequences * mean_length) if steps and mean_length else None
    return {
        "parameters": models.count_parameters(model),
        "states per channel": models.count_states_per_channel(spec.model_name, spec.model),
        "steps": steps,
        "tokens": tokens,
        "memory": estimate_memory(spec, model, info, device, devices),
    }
