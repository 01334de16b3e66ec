"""Learning rates by step, held against torch's own schedulers."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from msbench.config import TrainConfig
from msbench.training.schedule import LearningRateSchedule

LRS = (3e-3, 1e-3)
"""Of two groups."""


def make_optimizer(lrs: Sequence[float] = LRS) -> Optimizer:
    groups = [{"params": [torch.zeros(1)], "lr": lr} for lr in lrs]
    return torch.optim.AdamW(groups, betas=(0.95, 0.99))


def record(optimizer: Optimizer, scheduler: LRScheduler, steps: int) -> tuple[list[Any], list[float]]:
    """Return the rates of the groups, and the first beta, at each step."""
    rates, betas = [], []
    for _ in range(steps):
        rates.append([group["lr"] for group in optimizer.param_groups])
        betas.append(optimizer.param_groups[0]["betas"][0])
        optimizer.step()
        scheduler.step()
    return rates, betas


def ours(schedule: LearningRateSchedule, lrs: Sequence[float] = LRS) -> list[list[float]]:
    return [[lr * schedule.get_factor(step) for lr in lrs] for step in range(schedule.total)]


def make_schedule(examples: int = 100, **options: Any) -> LearningRateSchedule:
    """Ten steps an epoch."""
    config = TrainConfig(**{"lr": LRS[0], "batch_size": 10, "epochs": 12} | options)
    return LearningRateSchedule.from_config(config, examples)


def warm_up(optimizer: Optimizer, steps: int, then: LRScheduler) -> LRScheduler:
    """Precede a scheduler by a linear warm-up whose first rate is 1 / steps."""
    if steps == 0:
        return then
    rise = LinearLR(optimizer, 1 / steps, 1.0, total_iters=steps - 1)
    return SequentialLR(optimizer, [rise, then], milestones=[steps])


@pytest.mark.parametrize("warmup", [0, 1, 7, 30])
@pytest.mark.parametrize("min_lr", [0.0, 1e-4])
def test_a_cosine_is_torchs(warmup: int, min_lr: float) -> None:
    schedule = make_schedule(warmup_epochs=warmup / 10, min_lr=min_lr)
    (lr,) = lrs = LRS[:1]  # torch's floor is one number for all groups
    assert (schedule.warmup, schedule.total, schedule.floor) == (warmup, 120, min_lr / lr)
    optimizer = make_optimizer(lrs)
    cosine = CosineAnnealingLR(optimizer, T_max=120 - warmup, eta_min=min_lr)
    rates, _ = record(optimizer, warm_up(optimizer, warmup, cosine), 120)
    assert ours(schedule, lrs) == [pytest.approx(each, rel=0, abs=1e-12) for each in rates]


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_a_constant_rate_is_torchs(warmup: int) -> None:
    schedule = make_schedule(schedule="constant", warmup_epochs=warmup / 10)
    optimizer = make_optimizer()
    rates, _ = record(optimizer, warm_up(optimizer, warmup, ConstantLR(optimizer, 1.0)), 120)
    assert ours(schedule) == [pytest.approx(each, rel=0, abs=1e-12) for each in rates]
    assert rates[-1] == pytest.approx(LRS)


def test_an_inverse_square_root_is_that_of_long_range_arena() -> None:
    """ListOps there: base rate 0.05, 1,000 steps of warm-up, 5,000 in all; our first step is 1 there."""

    def factor_there(step: int) -> float:
        return float(min(1.0, step / 1000) / max(step, 1000) ** 0.5)

    peak = 0.05 / 1000**0.5
    optimizer = make_optimizer([0.05])
    rates, _ = record(optimizer, LambdaLR(optimizer, lambda step: factor_there(step + 1)), 5000)
    schedule = make_schedule(
        96_000, schedule="rsqrt", batch_size=32, lr=peak, warmup_epochs=1 / 3, max_steps=5000
    )
    assert (schedule.warmup, schedule.total) == (1000, 5000)
    assert ours(schedule, [peak]) == [pytest.approx(each, rel=0, abs=1e-12) for each in rates]
    assert peak == pytest.approx(1.5811e-3, rel=1e-4)
    assert schedule.get_factor(3999) == pytest.approx(0.5)


@pytest.mark.parametrize("share", [0.3, 0.1, 0.9])
def test_one_cycle_is_torchs_with_fastais_numbers(share: float) -> None:
    """PTB-XL's baselines: 50 epochs, from lr / 25 to lr at 0.3 of the steps, then to lr / 250,000."""
    examples, epochs = 17_111, 50
    schedule = make_schedule(
        examples,
        schedule="one-cycle",
        lr=1e-2,
        min_lr=1e-2 / 250_000,
        batch_size=128,
        epochs=epochs,
        warmup_epochs=share * epochs,
        beta1=0.95,
        one_cycle_beta1=0.85,
    )
    lrs = (1e-2, 2e-3)
    optimizer = make_optimizer(lrs)
    total = epochs * 134
    cycle = OneCycleLR(optimizer, list(lrs), total, pct_start=share)
    rates, betas = record(optimizer, cycle, total - 1)
    rates.append([group["lr"] for group in optimizer.param_groups])
    betas.append(optimizer.param_groups[0]["betas"][0])
    assert schedule.total == total
    assert ours(schedule, lrs) == [pytest.approx(each, rel=0, abs=1e-12) for each in rates]
    assert [schedule.get_beta1(step) for step in range(total)] == pytest.approx(betas, rel=0, abs=1e-12)
    peak = schedule.warmup - 1
    assert [schedule.get_factor(step) for step in (0, peak, total - 1)] == pytest.approx([1 / 25, 1, 4e-6])
    assert [schedule.get_beta1(step) for step in (0, peak, total - 1)] == pytest.approx([0.95, 0.85, 0.95])


def test_one_cycle_that_steps_cut_short_or_that_rises_at_once_stays_within_its_bounds() -> None:
    for options in ({"max_steps": 5}, {"warmup_epochs": 0.01}, {"max_steps": 1}):
        schedule = make_schedule(schedule="one-cycle", **options)
        factors = [schedule.get_factor(step) for step in range(schedule.total)]
        assert all(0 <= factor <= 1 for factor in factors), options
    assert make_schedule(schedule="one-cycle", warmup_epochs=0.01).get_factor(0) == 1.0


SCORES = [0.2, 0.3, 0.3, 0.30001, 0.29, 0.4, *[0.4] * 40, 0.5, *[0.1] * 20]


@pytest.mark.parametrize("patience", [0, 5, 20])
@pytest.mark.parametrize("min_lr", [0.0, 1e-4])
def test_a_plateau_is_torchs(patience: int, min_lr: float) -> None:
    schedule = make_schedule(schedule="plateau", plateau_patience=patience, min_lr=min_lr, warmup_epochs=0.0)
    optimizer = make_optimizer()
    floors = [min_lr / LRS[0] * lr for lr in LRS]
    plateau = ReduceLROnPlateau(optimizer, "max", 0.2, patience, min_lr=floors, eps=0)
    for epoch, score in enumerate(SCORES):
        reduction = schedule.compute_reduction(SCORES[:epoch])
        rates = [group["lr"] for group in optimizer.param_groups]
        found = [lr * schedule.get_factor(10 * epoch) * reduction for lr in LRS]
        assert found == pytest.approx(rates, rel=0, abs=1e-12), epoch
        plateau.step(score)
    assert (schedule.compute_reduction(SCORES) < 0.2) == (patience < 20), "it has fallen more than once"
    assert make_schedule().compute_reduction(SCORES) == 1.0, "scores act in a plateau alone"


def test_a_plateau_has_the_warm_up_of_the_others() -> None:
    schedule = make_schedule(schedule="plateau", warmup_epochs=0.5)
    assert [schedule.get_factor(step) for step in range(7)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1, 1])


def test_warm_up_is_linear_and_the_cosine_ends_at_the_floor() -> None:
    schedule = LearningRateSchedule(warmup=4, total=104, floor=0.1)
    assert [schedule.get_factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule.get_factor(4) == 1.0
    assert schedule.get_factor(54) == pytest.approx(0.55)
    assert schedule.get_factor(104) == pytest.approx(0.1)
    rates = [schedule.get_factor(step) for step in range(4, 105)]
    assert rates == sorted(rates, reverse=True)


def test_max_steps_shortens_the_cosine_and_not_the_warm_up() -> None:
    config = TrainConfig(epochs=10, batch_size=10, warmup_epochs=0.5, lr=0.2, min_lr=0.02, max_steps=60)
    schedule = LearningRateSchedule.from_config(config, examples=101)
    assert (schedule.warmup, schedule.total) == (6, 60)
    assert schedule.floor == pytest.approx(0.1)


def test_no_warm_up_starts_at_the_full_rate() -> None:
    config = TrainConfig(epochs=2, batch_size=10, warmup_epochs=0.0)
    schedule = LearningRateSchedule.from_config(config, examples=25)
    assert schedule.total == 6
    assert schedule.get_factor(0) == 1.0
