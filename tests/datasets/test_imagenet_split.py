from pathlib import Path

import numpy as np
import pytest
from image_files import damaged_inside, encoded, imagenet, jpeg, pixels, wnid
from PIL import Image

from msbench import datasets as data
from msbench.config import ImageNetConfig
from msbench.datasets.imagenet import crops
from msbench.datasets.imagenet.split import Pictures
from msbench.datasets.pictures import decode
from msbench.errors import DataError

CLASSES = [wnid(number) for number in (3, 7)]
CONFIG = ImageNetConfig(image_size=16, patch=4, validation=0.2)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return imagenet(tmp_path / "tree", CLASSES, train=5)


def train_of(tree: Path, root: Path, **options: object) -> Pictures:
    config = CONFIG.model_copy(update=options)
    split = data.setup(config, root, source=tree).splits["train"]
    assert isinstance(split, Pictures)
    return split


def test_evaluation_shows_the_centre(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    batch = split.batch(np.array([3, 0]))
    assert batch.inputs.shape == (2, 16, 48)
    assert batch.inputs.dtype == np.float32
    assert split.slow
    for row, number in enumerate(split.numbers[[3, 0]]):
        picture = decode(split.index.path(int(number)).read_bytes())
        square = np.asarray(crops.centre_crop(picture, 16, 0.9)) / 255
        expected = crops.patches(((square - crops.MEAN) / crops.DEVIATION).astype(np.float32), 4)
        np.testing.assert_allclose(batch.inputs[row], expected, atol=2e-6)
        assert CLASSES[batch.labels[row]] in split.index.path(int(number)).name


def test_batches_are_padded_on_the_right(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    batch = split.batch(np.array([1]), pad_to=20)
    assert batch.inputs.shape == (1, 20, 48)
    assert not batch.inputs[:, 16:].any()
    assert batch.lengths.tolist() == [16]
    assert np.array_equal(batch.inputs[:, :16], split.batch(np.array([1])).inputs)


@pytest.mark.parametrize("augmentation", ["crop-flip", "rand-m9-mstd0.5-inc1"])
def test_chance_is_of_seed_epoch_and_image(tree: Path, tmp_path: Path, augmentation: str) -> None:
    split = train_of(tree, tmp_path / "data", augmentation=augmentation, erasing=0.5)
    everything = np.arange(len(split))
    first = split.augmented(2**62, 0).batch(everything).inputs
    assert np.array_equal(split.augmented(2**62, 0).batch(everything).inputs, first)
    # in any batch and order
    assert np.array_equal(split.augmented(2**62, 0).batch(everything[::-1]).inputs[::-1], first)
    assert np.array_equal(split.augmented(2**62, 0).batch(everything[4:5]).inputs[0], first[4])
    for other in (split, split.augmented(2**62, 1), split.augmented(1, 0)):
        changed = other.batch(everything).inputs
        assert (changed != first).any(axis=(1, 2)).mean() > 0.9
    assert np.array_equal(split.augmented(2**62, 0).batch(everything).labels, split.batch(everything).labels)


def test_without_augmentation_every_epoch_is_the_same(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data", augmentation="none")
    assert split.augmented(1, 2) is split


def test_half_are_flipped(tmp_path: Path) -> None:
    slope = np.repeat(np.linspace(0, 255, 24).astype(np.uint8)[None, :, None], 24, axis=0).repeat(3, axis=2)
    tree = imagenet(tmp_path / "tree", CLASSES, train=5)
    for path in (tree / "train").rglob("*.JPEG"):
        path.write_bytes(encoded(slope, "PNG"))
    split = train_of(tree, tmp_path / "data")
    flipped = 0
    for epoch in range(20):
        inputs = split.augmented(0, epoch).batch(np.arange(8)).inputs
        flipped += int((inputs[:, 0, 0] > inputs[:, 3, -3]).sum())  # the slope falls along the first row
    assert 55 < flipped < 105


def test_an_image_that_changed_is_named(tree: Path, tmp_path: Path) -> None:
    split = train_of(tree, tmp_path / "data")
    path = split.index.path(int(split.numbers[2]))
    path.write_bytes(jpeg(12345, side=30))
    with pytest.raises(DataError, match=rf"{path.name}: is not the file that was set up"):
        split.batch(np.arange(len(split)))
    assert len(split.batch(np.array([0, 1])).labels) == 2


def test_an_image_that_cannot_be_decoded_is_named(tree: Path, tmp_path: Path) -> None:
    (tree / "train" / CLASSES[0] / "a.JPEG").write_bytes(damaged_inside())
    split = train_of(tree, tmp_path / "data")
    with pytest.raises(DataError, match=r"a\.JPEG: cannot be decoded.*data\.verify: full"):
        split.pixels(0)


def test_names_may_be_any(tmp_path: Path) -> None:
    tree = imagenet(tmp_path / "tree", CLASSES)
    (tree / "train" / CLASSES[0] / "été 1.JPEG").write_bytes(jpeg())
    Image.fromarray(pixels()).save(tree / "train" / CLASSES[1] / "a,b.png")
    split = train_of(tree, tmp_path / "data")
    names = {split.index.path(number).name for number in range(len(split.index.labels))}
    assert {"été 1.JPEG", "a,b.png"} <= names
