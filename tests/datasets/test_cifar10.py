from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_cifar10_batches import FOLDER, content, write

from msbench import datasets as data
from msbench.config import Cifar10Config
from msbench.datasets.cifar10 import CIFAR10
from msbench.datasets.dataset import SPLITS
from msbench.errors import DataError

GREY = Cifar10Config(colour="grey")
TOKENS = Cifar10Config(colour="grey", pixels="tokens")


@pytest.fixture
def brought(tmp_path: Path) -> Path:
    write(tmp_path / FOLDER, "data_batch_1", content(20))
    return write(tmp_path / FOLDER, "test_batch", content(5))


@pytest.fixture(scope="module")
def small(sample: Callable[..., Path]) -> Path:
    return sample("cifar10")


def test_one_import_serves_all_views(brought: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    colour = data.setup(Cifar10Config(), root, source=brought)
    grey, tokens = data.setup(GREY, root), data.open_dataset(TOKENS, root)
    assert len(list((root / "cifar10").glob("*/manifest.json"))) == 1
    assert len({colour.digest, grey.digest, tokens.digest}) == 3
    assert [len(colour.splits[name]) for name in SPLITS] == [18, 2, 5]
    kinds = [(each.info.kind, each.info.channels, each.info.vocabulary) for each in (colour, grey, tokens)]
    assert kinds == [("signal", 3, 0), ("signal", 1, 0), ("tokens", 0, 257)]
    for dataset, config in ((colour, Cifar10Config()), (grey, GREY), (tokens, TOKENS)):
        assert dataset.info.baselines == {"majority": 0.2}
        assert dataset.manifest["config"] == config.model_dump(mode="json")
        assert [dataset.manifest["splits"][name]["examples"] for name in SPLITS] == [18, 2, 5]
        assert dataset.manifest["kept"]["train"]["labels"] == dict.fromkeys(map(str, range(10)), 2)
        outline = data.outline(config)
        assert (outline.kind, outline.longest) == (dataset.info.kind, dataset.info.longest)
        batch = dataset.splits["validation"].batch(np.array([1, 0]))
        assert batch.inputs.shape[:2] == (2, 1024)
        assert batch.lengths.tolist() == [1024, 1024]


@pytest.mark.parametrize(
    ("config", "mean", "deviation"),
    [
        (Cifar10Config(), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        (Cifar10Config(standardisation="s4"), (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
        (GREY, (122.6 / 255,), (61 / 255,)),
        (Cifar10Config(colour="grey", standardisation="mega"), (0.48,), (0.24,)),
    ],
)
def test_values_are_standardised_as_in_public_code(
    brought: Path, tmp_path: Path, config: Cifar10Config, mean: tuple[float], deviation: tuple[float]
) -> None:
    dataset = data.setup(config, tmp_path / "data", source=brought)
    images = content(5)[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    if config.colour == "grey":
        images = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[..., None]
    expected = (images / 255 - mean) / deviation
    batch = dataset.splits["test"].batch(np.arange(5))
    np.testing.assert_allclose(batch.inputs, expected.reshape(5, 1024, -1), atol=2e-6)


def test_a_damaged_file_is_found_and_named(brought: Path, tmp_path: Path) -> None:
    data.setup(Cifar10Config(), tmp_path / "data", source=brought)
    (file,) = (tmp_path / "data").rglob("train/images.npy")
    kept = bytearray(file.read_bytes())
    kept[-1000] ^= 1
    file.write_bytes(kept)
    with pytest.raises(DataError, match=r"train/images\.npy: is damaged"):
        data.open_dataset(Cifar10Config(), tmp_path / "data")


def test_what_is_published_can_be_fetched() -> None:
    (remote,) = CIFAR10.remotes
    assert remote.digest == "md5:c58f30108f718f92721af3b95e74349a"
    assert "none is stated" in CIFAR10.about.licence


def test_real_images(small: Path, tmp_path: Path) -> None:
    colour = data.setup(Cifar10Config(), tmp_path, source=small / "cifar-10-batches-py-small")
    assert [len(colour.splits[name]) for name in SPLITS] == [900, 100, 200]
    assert "data_batch_1 has 1,000 images, the published file 10,000" in colour.manifest["notes"]
    pixels = np.load(small / "cifar10_lossless_5000.npz")
    mean, deviation = (np.array(each) for each in Cifar10Config().moments)
    shown = colour.splits["test"].batch(np.arange(200))
    back = np.rint((shown.inputs * deviation + mean) * 255).reshape(200, 32, 32, 3)
    assert np.array_equal(back, pixels["x_test"][:200])
    assert np.array_equal(shown.labels, pixels["y_test"][:200])
    train = colour.splits["train"].batch(np.arange(900)).inputs
    assert np.abs(train.mean((0, 1))).max() < 0.02
    s4 = data.open_dataset(Cifar10Config(standardisation="s4"), tmp_path).splits["train"]
    assert np.abs(s4.batch(np.arange(900)).inputs.std((0, 1)) - 1).max() < 0.02


def test_real_images_in_grey(small: Path, tmp_path: Path) -> None:
    grey = data.setup(GREY, tmp_path, source=small / "cifar-10-batches-py-small")
    train = grey.splits["train"].batch(np.arange(900)).inputs
    assert abs(train.mean()) < 0.02
    assert abs(train.std() - 1) < 0.02
    tokens = data.open_dataset(TOKENS, tmp_path).splits["test"].batch(np.arange(200)).inputs
    colours = np.load(small / "cifar10_lossless_5000.npz")["x_test"][:200]
    expected = [np.asarray(Image.fromarray(image).convert("L")).reshape(-1) for image in colours]
    assert np.array_equal(tokens - 1, expected)
