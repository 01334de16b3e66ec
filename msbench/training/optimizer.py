"""AdamW with parameter groups, each with its weight decay and learning rate, and the schedule of the rates.

===========  =====================================================  ============  ==================
group        parameters                                             weight decay  learning rate
===========  =====================================================  ============  ==================
``weights``  matrices, embeddings, filters, the mixer's matrix      yes           ``lr``
``plain``    biases, norms, constant (static) mixers                no            ``lr``
``ssm``      decays ``A_log``, skips ``D``, step-size biases        no            ``ssm_lr`` or ``lr``
``steps``    step-size matrices, SGConv's kernels                   yes           ``ssm_lr`` or ``lr``
===========  =====================================================  ============  ==================

Groups without weight decay are those whose zeros have another meaning: a rate of -1, no skip, steps of 0.69,
equal streams switched off. A static mixer is a scale, as a norm's is, so it does not decay either.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from msbench.config import TrainConfig
from msbench.training.batches import count_batches

STATE_SPACE = ("A_log", "D")


def make_parameter_groups(model: nn.Module, train: TrainConfig) -> list[dict[str, object]]:
    """Return AdamW's groups, with ``name``, ``params``, ``lr`` and ``weight_decay``; empty ones are left out.

    Every trainable parameter is in exactly one group. Raises RuntimeError, naming the parameter, otherwise.
    """
    ssm_lr = train.lr if train.ssm_lr is None else train.ssm_lr
    rates = {"weights": train.lr, "plain": train.lr, "ssm": ssm_lr, "steps": ssm_lr}
    members: dict[str, list[nn.Parameter]] = {name: [] for name in rates}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad:
                members[find_group(module, name, parameter)].append(parameter)
    check_partition(model, members)
    return [
        {
            "name": group,
            "params": parameters,
            "lr": rates[group],
            "weight_decay": train.weight_decay if group in ("weights", "steps") else 0.0,
        }
        for group, parameters in members.items()
        if parameters
    ]


def find_group(module: nn.Module, name: str, parameter: nn.Parameter) -> str:
    """Return the group of a parameter, from the module that owns it and its name there.

    A module may set it itself: ``optimizer_groups`` maps names of its parameters to groups.
    """
    own: Mapping[str, str] = getattr(module, "optimizer_groups", {})
    if name in own:
        return own[name]
    if name in STATE_SPACE:
        return "ssm"
    return "plain" if name == "bias" or parameter.ndim < 2 else "weights"


def check_partition(model: nn.Module, members: dict[str, list[nn.Parameter]]) -> None:
    """Raise RuntimeError if a trainable parameter is in no group, or in two."""
    seen = [id(parameter) for parameters in members.values() for parameter in parameters]
    for name, parameter in model.named_parameters(remove_duplicate=False):
        count = seen.count(id(parameter))
        if parameter.requires_grad and count != 1:
            raise RuntimeError(
                f"parameter {name} is in {count} groups of the optimiser; a parameter has one owner"
            )


def build_optimizer(model: nn.Module, train: TrainConfig) -> torch.optim.AdamW:
    """Build AdamW over `parameter_groups`."""
    groups = make_parameter_groups(model, train)
    return torch.optim.AdamW(groups, lr=train.lr, betas=(train.beta1, train.beta2))


@dataclass(frozen=True)
class LearningRateSchedule:
    """Linear warm-up, then a cosine down to the minimum rate, by step.

    `warmup` and `total` count optimiser steps; `floor` is min_lr / lr.
    """

    warmup: int
    total: int
    floor: float

    @classmethod
    def from_config(cls, config: TrainConfig, examples: int) -> "LearningRateSchedule":
        """Return the schedule of a config on a training split of this many examples."""
        per_epoch = count_batches(examples, config.batch_size)
        total = config.epochs * per_epoch
        if config.max_steps is not None:
            total = min(total, config.max_steps)
        return cls(round(config.warmup_epochs * per_epoch), total, config.min_lr / config.lr)

    def get_factor(self, step: int) -> float:
        """Return the factor of the learning rates at this step, counted from 0.

        The first step already has a rate (1 / warmup) and the last one ends just above the floor.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.total - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
