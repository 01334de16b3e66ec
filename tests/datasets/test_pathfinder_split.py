import numpy as np
import torch
from torch.utils.data import TensorDataset, random_split

from msbench.datasets.pathfinder.split import public_split


def test_the_split_is_that_of_the_public_loaders() -> None:
    images = TensorDataset(torch.arange(1_019))
    expected = random_split(images, [817, 101, 101], torch.Generator().manual_seed(42))
    found = public_split(1_019)
    assert list(found) == ["train", "validation", "test"]
    for part, indices in zip(expected, found.values(), strict=True):
        assert list(part.indices) == indices.tolist()


def test_published_sizes() -> None:
    parts = public_split(200_000)
    assert [len(part) for part in parts.values()] == [160_000, 20_000, 20_000]
    assert (np.sort(np.concatenate(list(parts.values()))) == np.arange(200_000)).all()
    assert [len(part) for part in public_split(199_999).values()] == [160_001, 19_999, 19_999]
