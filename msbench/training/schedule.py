"""Learning-rate schedule by step: linear warm-up, then a cosine down to the minimum rate."""

import math
from dataclasses import dataclass

from msbench.config import TrainConfig
from msbench.training.order import steps_per_epoch


@dataclass(frozen=True)
class Schedule:
    """A schedule: `warmup` and `total` count optimiser steps; `floor` is min_lr / lr."""

    warmup: int
    total: int
    floor: float

    @classmethod
    def of(cls, config: TrainConfig, examples: int) -> "Schedule":
        """Return the schedule of a config on a training split of this many examples."""
        per_epoch = steps_per_epoch(examples, config.batch_size)
        total = config.epochs * per_epoch
        if config.max_steps is not None:
            total = min(total, config.max_steps)
        return cls(round(config.warmup_epochs * per_epoch), total, config.min_lr / config.lr)

    def factor(self, step: int) -> float:
        """Return the factor of the learning rates at this step, counted from 0.

        The first step already has a rate (1 / warmup) and the last one ends just above the floor.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.total - self.warmup)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
