import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset
from torch.utils.data import random_split as torchs

from msbench.datasets.random_split import random_split


@pytest.mark.parametrize(
    ("count", "first", "seed"),
    [(2, 1, 0), (10, 3, 42), (1000, 900, 42), (50_000, 45_000, 42), (777, 1, 2**32 - 1)],
)
def test_it_is_torchs_own(count: int, first: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = torchs(TensorDataset(torch.empty(count)), (first, count - first), generator)
    ours = random_split(count, first, seed)
    assert [part.tolist() for part in ours] == [list(part.indices) for part in parts]
    assert np.array_equal(np.sort(np.concatenate(ours)), np.arange(count))


def test_the_split_of_public_loaders() -> None:
    train, validation = random_split(50_000, 45_000, 42)
    assert (len(train), len(validation)) == (45_000, 5_000)
    assert not set(train) & set(validation)
