import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset
from torch.utils.data import random_split as torchs

from msbench.config.data import MnistConfig
from msbench.datasets.dataset import Samples
from msbench.datasets.pixels import PixelTokens, convert_to_grey, keep_colours, split_images, split_randomly
from msbench.errors import DataError


def test_grey_is_pillows() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (5000, 4, 3), dtype=np.uint8)
    rgb[:2, 0] = [[0, 0, 0], [255, 255, 255]]
    expected = np.asarray(Image.fromarray(rgb).convert("L"))
    assert np.array_equal(convert_to_grey(rgb)[..., 0], expected)


def test_no_grey_level_is_padding() -> None:
    split = PixelTokens(np.array([[[0], [255], [7]], [[1], [2], [3]]], np.uint8), np.array([4, 9], np.uint8))
    batch = split.batch(np.array([1, 0]))
    assert batch.inputs.tolist() == [[2, 3, 4], [1, 256, 8]]
    assert batch.inputs.dtype == np.int64
    assert (batch.lengths.tolist(), batch.labels.tolist()) == ([3, 3], [9, 4])
    assert split.lengths.tolist() == [3, 3]
    padded = split.batch(np.array([0]), pad_to=5)
    assert padded.inputs.tolist() == [[1, 256, 8, 0, 0]]
    assert padded.lengths.tolist() == [3]


def arrays(train: int) -> dict[str, dict[str, np.ndarray]]:
    images = np.arange(train, dtype=np.uint8).reshape(-1, 1, 1)
    return {split: {"images": images, "labels": images[:, 0, 0]} for split in ("train", "test")}


def test_validation_is_a_share_of_train() -> None:
    splits = split_images(MnistConfig(validation=0.25), arrays(20), keep_colours, Samples)
    shown = {name: split.batch(np.arange(len(split))) for name, split in splits.items()}
    assert {name: len(batch.labels) for name, batch in shown.items()} == {
        "train": 15,
        "validation": 5,
        "test": 20,
    }
    assert sorted([*shown["train"].labels, *shown["validation"].labels]) == list(range(20))
    for batch in shown.values():  # each image keeps its own label
        assert batch.inputs[:, 0, 0].tolist() == batch.labels.tolist()


def test_no_split_is_empty() -> None:
    with pytest.raises(
        DataError, match=r"mnist: data.validation 0\.9 of 5 train images leaves a split empty"
    ):
        split_images(MnistConfig(validation=0.9), arrays(5), keep_colours, Samples)


@pytest.mark.parametrize(
    ("count", "first", "seed"),
    [(2, 1, 0), (10, 3, 42), (1000, 900, 42), (50_000, 45_000, 42), (777, 1, 2**32 - 1)],
)
def test_it_is_torchs_own(count: int, first: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    parts = torchs(TensorDataset(torch.empty(count)), (first, count - first), generator)
    ours = split_randomly(count, first, seed)
    assert [part.tolist() for part in ours] == [list(part.indices) for part in parts]
    assert np.array_equal(np.sort(np.concatenate(ours)), np.arange(count))


def test_the_split_of_public_loaders() -> None:
    train, validation = split_randomly(50_000, 45_000, 42)
    assert (len(train), len(validation)) == (45_000, 5_000)
    assert not set(train) & set(validation)
