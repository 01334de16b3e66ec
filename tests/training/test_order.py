"""Data order: each example once, a function of seed and epoch alone."""

import numpy as np
import pytest

from msbench.training.order import epoch_batches, sorted_batches, steps_per_epoch

LENGTHS = np.random.default_rng(0).integers(5, 200, size=1037)


@pytest.mark.parametrize("bucketing", [True, False])
@pytest.mark.parametrize("size", [1, 32, 64, 1037, 5000])
def test_each_example_comes_once(bucketing: bool, size: int) -> None:
    batches = epoch_batches(LENGTHS, size, seed=3, epoch=1, bucketing=bucketing)
    assert sorted(np.concatenate(batches)) == list(range(1037))
    assert len(batches) == steps_per_epoch(1037, size)
    assert sum(len(batch) < size for batch in batches) <= 1


def test_seed_and_epoch_decide_the_order() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = epoch_batches(LENGTHS, 32, seed, epoch, bucketing=True)
        return [int(index) for index in np.concatenate(batches)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_buckets_hold_similar_lengths() -> None:
    def padded(bucketing: bool) -> int:
        batches = epoch_batches(LENGTHS, 16, seed=0, epoch=0, bucketing=bucketing)
        return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)

    assert padded(bucketing=True) < 1.1 * LENGTHS.sum() < padded(bucketing=False)


def test_batches_of_all_lengths_come_early_too() -> None:
    batches = epoch_batches(LENGTHS, 16, seed=0, epoch=0, bucketing=True)
    means = [LENGTHS[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.4


def test_evaluation_sees_all_and_the_longest_first() -> None:
    batches = sorted_batches(LENGTHS, 100)
    assert sorted(np.concatenate(batches)) == list(range(1037))
    assert LENGTHS[batches[0][0]] == LENGTHS.max()
