"""All ways of a batch to the device give the same numbers."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from msbench.datasets.dataset import Batch, CroppedSamples, Fixed, RaggedPairs, RaggedTokens, Samples, Split
from msbench.errors import DataError
from msbench.training import batches
from msbench.training.batches import (
    BatchLoader,
    DeviceBatch,
    count_batches,
    draw_batches,
    send_batch,
    sort_into_batches,
)

CPU = torch.device("cpu")
CHOSEN = [np.array([3, 0]), np.array([1]), np.array([2, 4])]
LABELS = np.array([1, 0, 3, 2, 1], np.uint8)


def tokens(kind: type[RaggedTokens] | type[RaggedPairs]) -> Split:
    source = np.random.default_rng(0)
    sequences = 10 if kind is RaggedPairs else 5
    offsets = np.concatenate([[0], np.cumsum(source.integers(1, 7, sequences))]).astype(np.int64)
    return kind(source.integers(1, 200, offsets[-1]).astype(np.uint8), offsets, LABELS)


def samples(dtype: type, labels: NDArray[np.uint8] = LABELS) -> Samples:
    values: NDArray[Any] = np.random.default_rng(0).integers(0, 200, (5, 6, 3)).astype(dtype)
    return Samples(values, labels, shift=[1.3, 7.0, 100.0], scale=[2.3, 0.1, 61.7])


SPLITS = {
    "tokens": tokens(RaggedTokens),
    "pairs": tokens(RaggedPairs),
    "bytes": samples(np.uint8),
    "int16": samples(np.int16),
    "float16": samples(np.float16),
    "rows": Samples(
        np.arange(24, dtype=np.int16).reshape(12, 2, 1),
        np.arange(12, dtype=np.uint8),
        rows=np.array([11, 0, 7, 2, 5]),
    ),
    "crops": CroppedSamples(samples(np.int16, np.array([[1, 0]] * 4 + [[0, 1]], np.uint8)), 4, 2),
    "several labels": samples(np.uint8, np.array([[1, 0]] * 4 + [[0, 1]], np.uint8)),
}


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


def same(one: DeviceBatch, other: DeviceBatch) -> None:
    for name in ("inputs", "lengths", "labels"):
        a, b = getattr(one, name).cpu(), getattr(other, name).cpu()
        assert a.dtype == b.dtype, name
        assert torch.equal(a, b), name
    assert (one.tokens, one.positions) == (other.tokens, other.positions)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pad_to", [None, 9])
@pytest.mark.parametrize("kind", SPLITS)
def test_a_split_kept_on_the_device_gives_the_same_batches(
    kind: str, pad_to: int | None, device: str
) -> None:
    split, where = SPLITS[kind], torch.device(device)
    kept, plain = BatchLoader(split, where, room=2**20), BatchLoader(split, where)
    assert kept.resident_bytes > 0
    assert plain.resident_bytes == 0
    found = list(kept.batches(CHOSEN, pad_to))
    assert len(found) == len(CHOSEN)
    for indices, one, other in zip(CHOSEN, found, plain.batches(CHOSEN, pad_to), strict=True):
        same(one, other)
        same(one, send_batch(split.batch(indices, pad_to), CPU))


@pytest.mark.parametrize("device", DEVICES)
def test_each_epochs_crops_are_cut_from_one_copy_on_the_device(device: str) -> None:
    split, where = CroppedSamples(samples(np.int16), 4, 1), torch.device(device)
    loader = BatchLoader(split.augmented(0, 0), where, room=2**20)
    for epoch in (0, 1, 2):
        drawn = split.augmented(0, epoch)
        assert loader.turn_to(drawn)
        for indices, one in zip(CHOSEN, loader.batches(CHOSEN), strict=True):
            same(one, send_batch(drawn.batch(indices), CPU))
    assert not loader.turn_to(CroppedSamples(samples(np.int16), 4, 1)), "these are of other values"
    assert not BatchLoader(split, where).turn_to(split.augmented(0, 0)), "nothing is kept on the device"


def test_what_has_no_room_is_not_kept() -> None:
    split = samples(np.int16)
    size = split.values.nbytes
    assert BatchLoader(split, CPU, room=size - 1).resident_bytes == 0
    assert BatchLoader(split, CPU, room=size).resident_bytes == size


@dataclass
class Slow(Fixed):
    """Numbers of their own; notes who asked for what."""

    asked: list[tuple[int, str]] = field(default_factory=list)
    slow = True
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.ones(9, np.int64))
    targets: NDArray[np.int64] = field(default_factory=lambda: np.ones(9, np.int64))

    def __len__(self) -> int:
        return 9

    def batch(self, indices: NDArray[np.int64], pad_to: int | None = None) -> Batch:  # noqa: ARG002
        if indices[0] == 8:
            raise DataError("image 8 is cut")
        self.asked.append((int(indices[0]), threading.current_thread().name))
        ones = np.ones(1, np.int64)
        return Batch(indices.reshape(1, 1, 1).astype(np.float32), ones, ones)


def test_slow_batches_are_made_ahead_in_another_thread_and_in_order() -> None:
    split = Slow()
    found = BatchLoader(split, CPU).batches([np.array([number]) for number in range(8)])
    assert float(next(found).inputs) == 0
    assert [float(each.inputs) for each in found] == list(range(1, 8))
    assert [number for number, _ in split.asked] == list(range(8))
    assert {name.partition("_")[0] for _, name in split.asked} == {"batches"}


def test_no_more_is_made_ahead_than_asked_for_and_leaving_stops_it() -> None:
    split = Slow()
    found = BatchLoader(split, CPU).batches([np.array([number]) for number in range(8)])
    next(found)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(split.asked) <= 2 + batches.AHEAD
    assert not any(thread.name.startswith("feed") for thread in threading.enumerate())


def test_an_error_in_the_other_thread_arrives_here() -> None:
    with pytest.raises(DataError, match="image 8 is cut"):
        list(BatchLoader(Slow(), CPU).batches([np.array([7]), np.array([8])]))


LENGTHS = np.random.default_rng(0).integers(5, 200, size=1037)


@pytest.mark.parametrize("bucketing", [True, False])
@pytest.mark.parametrize("size", [1, 32, 64, 1037, 5000])
def test_each_example_comes_once(bucketing: bool, size: int) -> None:
    batches = draw_batches(LENGTHS, size, seed=3, epoch=1, bucketing=bucketing)
    assert sorted(np.concatenate(batches)) == list(range(1037))
    assert len(batches) == count_batches(1037, size)
    assert sum(len(batch) < size for batch in batches) <= 1


def test_seed_and_epoch_decide_the_order() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        batches = draw_batches(LENGTHS, 32, seed, epoch, bucketing=True)
        return [int(index) for index in np.concatenate(batches)]

    assert order(0, 0) == order(0, 0)
    assert order(0, 0) != order(0, 1)
    assert order(0, 0) != order(1, 0)


def test_buckets_hold_similar_lengths() -> None:
    def padded(bucketing: bool) -> int:
        batches = draw_batches(LENGTHS, 16, seed=0, epoch=0, bucketing=bucketing)
        return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)

    assert padded(bucketing=True) < 1.1 * LENGTHS.sum() < padded(bucketing=False)


def test_batches_of_all_lengths_come_early_too() -> None:
    batches = draw_batches(LENGTHS, 16, seed=0, epoch=0, bucketing=True)
    means = [LENGTHS[batch].mean() for batch in batches]
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.4


def test_evaluation_sees_all_and_the_longest_first() -> None:
    batches = sort_into_batches(LENGTHS, 100)
    assert sorted(np.concatenate(batches)) == list(range(1037))
    assert LENGTHS[batches[0][0]] == LENGTHS.max()


@pytest.mark.parametrize(("count", "size", "repeats"), [(90, 12, 3), (100, 16, 3), (7, 4, 2), (20, 8, 5)])
def test_repeats_of_fewer_examples_fill_an_epoch(count: int, size: int, repeats: int) -> None:
    lengths = np.full(count, 4)
    found = draw_batches(lengths, size, 0, 1, bucketing=True, repeats=repeats)
    assert [len(batch) for batch in found] == [len(batch) for batch in sort_into_batches(lengths, size)]
    numbers = np.concatenate(found)
    assert len(np.unique(numbers)) == count, "no augmentation twice"
    assert len(np.unique(numbers % count)) == -(-count // repeats)
    assert max(np.bincount(numbers % count)) == repeats
    if count == 90:
        for batch in found:
            assert np.bincount(batch % count)[batch % count].tolist() == [3] * len(batch)
            assert (batch[::2] % count != batch[1::2] % count).all(), "none is mixed with itself"
    again, other = (draw_batches(lengths, size, 0, each, bucketing=False, repeats=repeats) for each in (1, 2))
    assert all(map(np.array_equal, found, again))
    assert not all(map(np.array_equal, found, other))
