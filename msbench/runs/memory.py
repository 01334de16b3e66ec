"""Size of a run: its steps, its tokens and the memory that it takes, with advice if that is too much."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from msbench import datasets, models
from msbench.config import RunSpec
from msbench.config.messages import format_bytes
from msbench.datasets.dataset import TaskInfo
from msbench.environment import measure_free_memory
from msbench.errors import OutOfMemory
from msbench.runs.plan import PlannedRun, name_run
from msbench.training.memory import describe_memory_error, is_out_of_memory
from msbench.training.schedule import LearningRateSchedule
from msbench.training.step_memory import StepMemory, measure_step_memory, try_to_trace

ENOUGH = 4 * 1000
"""Bytes that a layer keeps of one position and channel at most, of sequences of some hundred positions: a
step that is within the memory by this count is not traced."""
SHARES = {"cpu": 0.5, "cuda": 0.85}
"""Shares of the free memory for a step: a CPU's is not for this process alone; a GPU's also has to hold what
kernels take while they run, and the allocator's gaps."""


def trace_memory(
    spec: RunSpec, info: TaskInfo, device: str, devices: int = 1, *, rough: bool = False
) -> StepMemory:
    """Return the memory of a step of the largest batch that the task can have, on each of its devices.

    ``micro_batch: auto`` counts as the whole batch.
    """
    return measure_step_memory(
        spec.model_name,
        spec.model,
        info,
        examples=count_examples(spec, devices),
        length=spec.train.pad_to or info.longest,
        device=device,
        bfloat16=spec.train.precision == "bf16",
        averaged=spec.train.average_weights is not None,
        rough=rough,
    )


def count_examples(spec: RunSpec, devices: int = 1) -> int:
    """Return the most examples that one device computes at once."""
    train = spec.train
    share = -(-train.batch_size // devices)
    return min(share, train.micro_batch) if isinstance(train.micro_batch, int) else share


def plan_recomputation(
    spec: RunSpec, info: TaskInfo, device: str, limit: int, devices: int = 1
) -> tuple[Callable[[int], int], int | None]:
    """Return how many blocks to recompute for a batch of some positions, so that a step takes `limit` bytes.

    Also returns the positions up to which it is none, or None if it is none for any batch.
    """
    positions = count_examples(spec, devices) * info.sequences * (spec.train.pad_to or info.longest)
    if positions * spec.model.layers * spec.model.d_model * ENOUGH < limit and info.longest < 1000:
        return (lambda _positions: 0), None
    memory = try_to_trace(partial(trace_memory, spec, info, device, devices))
    if memory is None or memory.estimate() <= limit:
        return (lambda _positions: 0), None
    return partial(memory.count_recomputed, limit), memory.limit_positions(limit)


def limit_step_memory(device: str, held: int = 0, processes: int = 1) -> int:
    """Return the bytes that a step may take, of what is free beyond `held`; processes on a CPU share it."""
    free = max(0, measure_free_memory(device) - held) // (processes if device == "cpu" else 1)
    return int(SHARES[device] * free)


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
    memory = try_to_trace(partial(trace_memory, spec, info, device, devices, rough=True))
    return {
        "parameters": models.count_parameters(model),
        "states per channel": models.count_states_per_channel(spec.model_name, spec.model),
        "steps": steps,
        "tokens": tokens,
        "memory": memory and memory.estimate(),
    }
