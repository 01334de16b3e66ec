"""Learning rates by step: a pure function of the step and of the scores so far, so that any step can resume.

A schedule gives one factor for all groups of parameters, which so keep the ratios of their rates. Cosine,
inverse square root and one cycle are formulas here: torch's own schedulers compute a rate from the last one,
whose rounding a resumed run would have to store. A plateau is torch's, replayed over the scores, which the
state of a run has.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from msbench.config import TrainConfig
from msbench.training.batches import count_batches


@dataclass(frozen=True)
class LearningRateSchedule:
    """The schedule of a `TrainConfig` on one dataset: `warmup` and `total` count optimiser steps.

    `floor` is min_lr / lr, and `start` is the factor in which one cycle begins.
    """

    warmup: int
    total: int
    floor: float = 0.0
    kind: Literal["cosine", "constant", "rsqrt", "plateau", "one-cycle"] = "cosine"
    start: float = 0.0
    beta1: float = 0.9
    beta1_at_peak: float | None = None
    plateau_factor: float = 1.0
    plateau_patience: int = 0

    @classmethod
    def from_config(cls, config: TrainConfig, examples: int) -> "LearningRateSchedule":
        """Return the schedule of a config on a training split of this many examples."""
        per_epoch = count_batches(examples, config.batch_size)
        total = config.epochs * per_epoch
        if config.max_steps is not None:
            total = min(total, config.max_steps)
        return cls(
            warmup=round(config.warmup_epochs * per_epoch),
            total=total,
            floor=config.min_lr / config.lr,
            kind=config.schedule,
            start=1 / config.one_cycle_div_factor,
            beta1=config.beta1,
            beta1_at_peak=config.one_cycle_beta1,
            plateau_factor=config.plateau_factor,
            plateau_patience=config.plateau_patience,
        )

    def get_factor(self, step: int) -> float:
        """Return the factor of the learning rates at this step, counted from 0, but for `compute_reduction`.

        The first step already has a rate (1 / warmup) and the last one of a cosine ends just above the floor.
        """
        if self.kind == "one-cycle":
            return self._interpolate(step, self.start, 1.0, self.floor)
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "cosine":
            progress = (step - self.warmup) / max(1, self.total - self.warmup)
            return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
        return math.sqrt(max(1, self.warmup) / (step + 1)) if self.kind == "rsqrt" else 1.0

    def get_beta1(self, step: int) -> float:
        """Return AdamW's first beta at this step: with one cycle it may fall to its value at the peak."""
        if self.beta1_at_peak is None:
            return self.beta1
        return self._interpolate(step, self.beta1, self.beta1_at_peak, self.beta1)

    def _interpolate(self, step: int, first: float, at_peak: float, last: float) -> float:
        """Return the value of one cycle at this step: half a cosine each to and from the end of warm-up."""
        peak = max(0, self.warmup - 1)
        if step < peak:
            return _follow_cosine(first, at_peak, step / peak)
        return _follow_cosine(at_peak, last, min(1.0, (step - peak) / max(1, self.total - 1 - peak)))

    def compute_reduction(self, scores: Sequence[float]) -> float:
        """Return the further factor of ``plateau`` after epochs with these scores: 1.0 for other schedules.

        It is torch's, by whose default a score must rise by more than a ten-thousandth of itself to count.
        """
        if self.kind != "plateau":
            return 1.0
        unit = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        plateau = ReduceLROnPlateau(
            unit, "max", self.plateau_factor, self.plateau_patience, min_lr=self.floor, eps=0.0
        )
        for score in scores:
            plateau.step(score)
        return float(unit.param_groups[0]["lr"])


def _follow_cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * progress))
