import numpy as np

from msbench.data.dataset import RaggedTokens


def test_batches_are_padded_on_the_right() -> None:
    offsets = np.array([0, 3, 4, 6], np.int64)
    split = RaggedTokens(np.array([5, 6, 7, 8, 9, 2], np.uint8), offsets, np.array([1, 0, 3], np.uint8))
    batch = split.batch(np.array([2, 0]))
    assert batch.inputs.tolist() == [[9, 2, 0], [5, 6, 7]]
    assert batch.lengths.tolist() == [2, 3]
    assert batch.labels.tolist() == [3, 1]
    assert split.batch(np.array([1]), pad_to=4).inputs.tolist() == [[8, 0, 0, 0]]
    assert {array.dtype for array in (batch.inputs, batch.lengths, batch.labels)} == {np.dtype(np.int64)}
