"""Shares: each example in one of them, whatever the numbers."""

import numpy as np
import pytest

from msbench.training.processes import SINGLE, Processes, deal_batches


class Member(Processes):
    """One of several processes."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count


@pytest.mark.parametrize("count", [2, 3, 8])
def test_each_example_counts_once_and_shares_are_even(count: int) -> None:
    batches = [np.arange(8), np.arange(8, 15), np.array([15])]
    lengths = np.arange(100, 116)
    dealt = [deal_batches(batches, lambda: lengths, None, Member(rank, count)) for rank in range(count)]
    for number, batch in enumerate(batches):
        shares = [each[number] for each in dealt]
        counted = [index for share in shares for index in share.indices[: share.examples]]
        assert sorted(counted) == batch.tolist()
        sizes = [share.examples for share in shares]
        assert max(sizes) - min(sizes) <= 1
        assert {share.most for share in shares} == {max(sizes)}
        # Nobody is left without work, which others would wait for.
        assert all(len(share.indices) == max(share.examples, 1) for share in shares)
        assert {(share.whole, share.pad_to) for share in shares} == {(len(batch), int(lengths[batch].max()))}


def test_one_process_has_batches_as_they_are() -> None:
    batch = np.arange(3)
    (share,) = deal_batches([batch], lambda: pytest.fail("lengths are not needed"), 20, SINGLE)
    assert share.indices is batch
    assert (share.examples, share.whole, share.most, share.pad_to) == (3, 3, 3, 20)
