"""Warm-up and cosine, per step."""

import pytest

from msbench.config import TrainConfig
from msbench.training.schedule import Schedule


def test_warm_up_is_linear_and_the_cosine_ends_at_the_floor() -> None:
    schedule = Schedule(warmup=4, total=104, floor=0.1)
    assert [schedule.factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule.factor(4) == 1.0
    assert schedule.factor(54) == pytest.approx(0.55)
    assert schedule.factor(104) == pytest.approx(0.1)
    rates = [schedule.factor(step) for step in range(4, 105)]
    assert rates == sorted(rates, reverse=True)


def test_max_steps_shortens_the_cosine_and_not_the_warm_up() -> None:
    config = TrainConfig(epochs=10, batch_size=10, warmup_epochs=0.5, lr=0.2, min_lr=0.02, max_steps=60)
    schedule = Schedule.of(config, examples=101)
    assert (schedule.warmup, schedule.total) == (6, 60)
    assert schedule.floor == pytest.approx(0.1)


def test_no_warm_up_starts_at_the_full_rate() -> None:
    config = TrainConfig(epochs=2, batch_size=10, warmup_epochs=0.0)
    schedule = Schedule.of(config, examples=25)
    assert schedule.total == 6
    assert schedule.factor(0) == 1.0
