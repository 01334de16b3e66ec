import numpy as np
import pytest

from msbench.datasets.dataset import (
    CroppedSamples,
    RaggedPairs,
    RaggedSamples,
    RaggedTokens,
    Samples,
    score_majority_rule,
)


def test_batches_are_padded_on_the_right() -> None:
    offsets = np.array([0, 3, 4, 6], np.int64)
    split = RaggedTokens(np.array([5, 6, 7, 8, 9, 2], np.uint8), offsets, np.array([1, 0, 3], np.uint8))
    batch = split.batch(np.array([2, 0]))
    assert batch.inputs.tolist() == [[9, 2, 0], [5, 6, 7]]
    assert batch.lengths.tolist() == [2, 3]
    assert batch.labels.tolist() == [3, 1]
    assert split.batch(np.array([1]), pad_to=4).inputs.tolist() == [[8, 0, 0, 0]]
    assert {array.dtype for array in (batch.inputs, batch.lengths, batch.labels)} == {np.dtype(np.int64)}


def test_numbers_of_any_length_are_scaled_and_padded_with_zeros() -> None:
    values = np.array([[1, 10], [3, 20], [5, 30]], np.float32)
    split = RaggedSamples(values, np.array([0, 1, 3]), np.array([1, 0], np.uint8), [1, 10], [2, 10])
    batch = split.batch(np.array([1, 0]))
    assert batch.inputs.dtype == np.float32
    assert batch.inputs.tolist() == [[[1, 1], [2, 2]], [[0, 0], [0, 0]]]
    assert (split.lengths.tolist(), batch.lengths.tolist(), batch.labels.tolist()) == ([1, 2], [2, 1], [0, 1])
    assert split.batch(np.array([0]), pad_to=3).inputs.shape == (1, 3, 2)
    assert (len(split), split.targets.tolist()) == (2, [1, 0])


def test_pairs_are_padded_to_one_width() -> None:
    offsets = np.array([0, 1, 4, 6, 7], np.int64)
    split = RaggedPairs(np.array([5, 6, 7, 2, 8, 2, 9], np.uint8), offsets, np.array([1, 0], np.uint8))
    assert split.lengths.tolist() == [3, 2]
    batch = split.batch(np.array([1, 0]))
    assert batch.inputs.tolist() == [[[8, 2, 0], [9, 0, 0]], [[5, 0, 0], [6, 7, 2]]]
    assert batch.lengths.tolist() == [[2, 1], [1, 3]]
    assert batch.labels.tolist() == [0, 1]
    assert batch.positions == 12
    assert split.batch(np.array([1]), pad_to=3).inputs.tolist() == [[[8, 2, 0], [9, 0, 0]]]


def test_samples_are_standardised_when_they_are_read() -> None:
    values = np.array([[[0, 10], [255, 30]], [[51, 20], [102, 20]]], np.uint8)
    split = Samples(values, np.array([3, 1], np.uint8), shift=[51, 20], scale=[51, 10])
    batch = split.batch(np.array([1, 0]))
    assert batch.inputs.dtype == np.float32
    np.testing.assert_allclose(batch.inputs, [[[0, 0], [1, 0]], [[-1, -1], [4, 1]]], atol=1e-6)
    assert batch.lengths.tolist() == [2, 2]
    assert batch.labels.tolist() == [1, 3]
    # Beyond its length an example is 0, not what 0 would be before it is standardised.
    padded = split.batch(np.array([0]), pad_to=3)
    np.testing.assert_allclose(padded.inputs, [[[-1, -1], [4, 1], [0, 0]]], atol=1e-6)
    assert padded.lengths.tolist() == [2]


@pytest.mark.parametrize("labels", [np.array([[1, 0, 1]], np.uint8), np.array([999], np.uint16)])
def test_labels_of_samples_may_be_several_or_many(labels: np.ndarray) -> None:
    batch = Samples(np.zeros((1, 2, 1), np.int16), labels).batch(np.array([0]))
    assert batch.labels.dtype == np.int64
    assert batch.labels.tolist() == labels.tolist()


def test_nothing_is_random_about_these_splits() -> None:
    split = Samples(np.zeros((1, 2, 1), np.int16), np.array([0], np.uint8))
    assert split.augmented(1, 2) is split


def test_rows_choose_and_order_the_examples_of_a_split() -> None:
    values = np.arange(12, dtype=np.int16).reshape(6, 2, 1)
    labels = np.array([0, 1, 2, 3, 4, 5], np.uint8)
    split = Samples(values, labels, 1.0, 2.0, np.array([5, 0, 3]))
    batch = split.batch(np.array([0, 2]))
    assert len(split) == len(split.lengths) == 3
    assert batch.inputs[..., 0].tolist() == [[4.5, 5.0], [2.5, 3.0]]
    assert batch.labels.tolist() == [5, 3]
    assert split.bytes == 3 * 2 * 2


def record(count: int = 4, length: int = 20) -> Samples:
    """Examples of two channels whose values say example, position and channel."""
    values = np.arange(count * length * 2, dtype=np.int16).reshape(count, length, 2)
    rows = np.array([2, 0, 3])
    return Samples(
        values, np.arange(2 * count, dtype=np.uint8).reshape(count, 2), [1.0, 2.0], [2.0, 4.0], rows
    )


def test_an_example_is_evaluated_by_all_crops_that_end_within_it() -> None:
    whole = record()
    split = CroppedSamples(whole, 8, 4)
    assert (len(split), split.crops, split.length) == (3, 4, 8)
    assert split.lengths.tolist() == [8, 8, 8]
    assert split.targets.tolist() == whole.targets.tolist()
    everything, batch = whole.batch(np.arange(3)), split.batch(np.array([2, 0]), pad_to=9)
    assert batch.inputs.shape == (8, 9, 2)
    assert not batch.inputs[:, 8:].any()
    for row, (example, start) in enumerate((example, start) for example in (2, 0) for start in (0, 4, 8, 12)):
        assert np.array_equal(batch.inputs[row, :8], everything.inputs[example, start : start + 8])
        assert np.array_equal(batch.labels[row], everything.labels[example])
    assert batch.lengths.tolist() == [8] * 8


@pytest.mark.parametrize(("step", "crops"), [(5, 3), (6, 3), (7, 2), (20, 1)])
def test_what_is_left_of_an_example_behind_the_last_whole_crop_has_none(step: int, crops: int) -> None:
    assert CroppedSamples(record(), 8, step).crops == crops


def test_training_sees_one_crop_an_example_drawn_by_seed_epoch_and_example() -> None:
    split, chosen = CroppedSamples(record(), 8, 4), np.array([1, 2, 0])
    drawn = split.augmented(2**62, 5)
    batch = drawn.batch(chosen)
    assert batch.inputs.shape == (3, 8, 2)
    everything = split.whole.batch(np.arange(3)).inputs
    for row, example in enumerate(chosen):
        start = int(drawn.starts[example, 0])
        assert np.array_equal(batch.inputs[row], everything[example, start : start + 8])
        alone = split.augmented(2**62, 5).batch(np.array([example]))
        assert np.array_equal(alone.inputs[0], batch.inputs[row])
    assert split.crops == 4, "the split itself stays as it was"
    many = CroppedSamples(Samples(np.zeros((3000, 20, 1)), np.zeros(3000, np.uint8)), 8, 4)
    first, second, other = (many.augmented(*each).starts for each in ((1, 0), (1, 1), (2, 0)))
    assert np.unique(first, return_counts=True)[0].tolist() == list(range(13)), "any place, both ends too"
    assert max(abs(np.bincount(first[:, 0]) - 3000 / 13)) < 80
    assert (first == second).mean() < 0.1 > (first == other).mean()


def test_a_crop_may_be_the_whole() -> None:
    split = CroppedSamples(record(), 20, 10)
    for one in (split, split.augmented(0, 0)):
        assert np.array_equal(one.batch(np.arange(3)).inputs, split.whole.batch(np.arange(3)).inputs)


def test_it_is_learned_on_train_and_counted_on_test() -> None:
    assert score_majority_rule(np.array([1, 0, 1]), np.array([1, 0, 0, 0])) == 0.25
    assert score_majority_rule(np.array([1, 0]), np.array([0, 0, 0, 1])) == 0.75
