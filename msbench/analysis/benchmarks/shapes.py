"""The training steps that are measured: models, their settings, a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from msbench import datasets as data
from msbench.config import ClassifierConfig, RunSpec, TrainConfig
from msbench.datasets.dataset import Batch, TaskInfo
from msbench.errors import UnknownName
from msbench.runs.suite import load_suite, resolve_specs
from msbench.training.feed import send
from msbench.training.order import epoch_batches


@dataclass(frozen=True)
class Variant:
    """A model of a shape: its registered name and its config."""

    model: str
    config: ClassifierConfig


@dataclass(frozen=True)
class StepShape:
    """Models that take the same step: `variants` by name, the training settings, the batch.

    `pairs`: variants whose times are compared, the slower first, with a description of the pair.
    """

    name: str
    title: str
    variants: dict[str, Variant]
    train: TrainConfig
    info: TaskInfo
    batch: Batch
    pairs: tuple[tuple[str, str, str], ...]

    def tensors(
        self, device: str, examples: int | None = None, length: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (b, l), lengths (b,) and labels (b,) of the first `examples`, cut to `length`."""
        fed = send(self.batch, torch.device(device))
        inputs, lengths, labels = (part[:examples] for part in (fed.inputs, fed.lengths, fed.labels))
        inputs = inputs[:, :length]
        return inputs, lengths.clamp(max=inputs.shape[1]), labels


def suite_shape(suite: str, *overrides: str, states: Sequence[int] = ()) -> StepShape:
    """Return the first task of a suite with a real batch of its training data, set up if absent.

    `states`: further numbers of states per channel, for both models, in addition to the suite's own.
    """
    specs = specs_of(suite, overrides)
    spec = next(iter(specs.values()))
    dataset = data.setup(spec.data, data.data_root())
    split = dataset.splits["train"]
    size = spec.train.batch_size
    batches = epoch_batches(split.lengths, size, spec.seed, 0, bucketing=spec.train.bucketing)
    # The longest batch of the first epoch: every other step takes less.
    full = [batch for batch in batches if len(batch) == min(size, len(split))]
    chosen = max(full, key=lambda batch: int(split.lengths[batch].max()))
    batch = split.batch(chosen, spec.train.pad_to)
    title = f"suite {suite}, a real batch"
    return shape(suite, title, specs, dataset.info, batch, states)


def deep_shape(b: int = 2, length: int = 1024, *overrides: str) -> StepShape:
    """Return the models of the suite ``listops`` with its settings, on random tokens: needs no data."""
    specs = specs_of("listops", overrides)
    info = data.outline(next(iter(specs.values())).data)
    source = np.random.default_rng(0)
    inputs = source.integers(1, info.vocabulary, (b, length))
    labels = source.integers(0, info.classes, b)
    batch = Batch(inputs, np.full(b, length, dtype=np.int64), labels)
    return shape("deep", "suite listops, random tokens", specs, info, batch, ())


def specs_of(suite: str, overrides: Sequence[str]) -> dict[str, RunSpec]:
    """Return the runs of Mamba and of MS-SSM on the suite's first task, in this order."""
    specs = resolve_specs(load_suite(suite), ("mamba", "msssm-s6"), (), (), tuple(overrides))
    return {name: next(spec for spec in specs if spec.model_name == name) for name in ("mamba", "msssm-s6")}


def shape(
    name: str, title: str, specs: dict[str, RunSpec], info: TaskInfo, batch: Batch, states: Sequence[int]
) -> StepShape:
    """Return a shape with the suite's own variants, then both models with each of these numbers of states."""
    configs = [(model, spec.model) for model, spec in specs.items()]
    for count in states:
        configs += [(model, spec.model.model_copy(update={"state": count})) for model, spec in specs.items()]
    variants = {f"{model}/{state_of(config)}": Variant(model, config) for model, config in configs}
    b, length = batch.inputs.shape
    config = specs["mamba"].model
    size = f"{config.layers} layers of {config.d_model}, b {b}, l {length}, norm {config.norm}"
    train = specs["mamba"].train
    return StepShape(name, f"{title}: {size}", variants, train, info, batch, pairs(specs, states))


def pairs(specs: dict[str, RunSpec], states: Sequence[int]) -> tuple[tuple[str, str, str], ...]:
    """Return pairs of MS-SSM over Mamba: as in the suite, and at each equal number of states."""
    own = [(state_of(specs["msssm-s6"].model), state_of(specs["mamba"].model))]
    chosen = own + [(count, count) for count in states]
    return tuple(
        (f"msssm-s6/{ours}", f"mamba/{theirs}", "equal states" if ours == theirs else "as in the suite")
        for ours, theirs in dict.fromkeys(chosen)
    )


def state_of(config: ClassifierConfig) -> int:
    """Return the option ``state``."""
    value: Any = config.model_dump()["state"]
    return int(value)


SHAPES: dict[str, Callable[[], StepShape]] = {
    "quick": partial(suite_shape, "quick", states=(20,)),
    "deep": deep_shape,
    "listops": partial(suite_shape, "listops"),
}
DEFAULT = ("quick", "deep")
QUICK = ("quick",)


def shapes(asked: Sequence[str], *, quick: bool) -> list[str]:
    """Return the names of the shapes to measure; UnknownName for an unknown one."""
    for name in asked:
        if name not in SHAPES:
            raise UnknownName("shape", name, SHAPES, "--shape")
    return list(asked or (QUICK if quick else DEFAULT))
