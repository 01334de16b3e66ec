import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from image_files import damaged_inside, encoded, imagenet, jpeg, pixels, wnid

from msbench import datasets as data
from msbench.config.data import ImageNetConfig
from msbench.datasets.dataset import SPLITS
from msbench.datasets.disk import distrust_stamps
from msbench.errors import DataError

CLASSES = [wnid(number) for number in (3, 7, 12)]
CONFIG = ImageNetConfig(image_size=16, patch=8, validation=0.34)
SKIPS = CONFIG.model_copy(update={"unreadable": "skip"})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return imagenet(tmp_path / "tree", CLASSES)


def first(tree: Path, split: str = "train") -> Path:
    return tree / split / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"


def test_folders_are_indexed_in_place(tree: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    assert not data.is_ready(CONFIG, root)
    dataset = data.setup(CONFIG, root, source=tree)
    assert data.is_ready(CONFIG, root)
    assert [len(dataset.splits[name]) for name in SPLITS] == [6, 3, 6]
    info = dataset.info
    assert (info.kind, info.longest, info.channels, info.classes) == ("patches", 4, 192, 3)
    assert info.baselines == {"majority": 1 / 3}
    assert dataset.manifest["splits"]["test"]["labels"] == {"0": 2, "1": 2, "2": 2}
    assert dataset.manifest["splits"]["validation"]["examples"] == 3
    assert not list(root.rglob("*.JPEG"))
    assert data.open_dataset(CONFIG, root).digest == dataset.digest


def test_the_published_size() -> None:
    info = data.outline(ImageNetConfig())
    assert (info.longest, info.channels, info.classes, info.chance) == (196, 768, 1000, 0.001)


def test_train_and_validation_share_no_image(tree: Path, tmp_path: Path) -> None:
    dataset = data.setup(CONFIG, tmp_path / "data", source=tree)
    shown = {name: dataset.splits[name].batch(np.arange(len(dataset.splits[name]))) for name in SPLITS}
    seen = {name: {row.tobytes() for row in batch.inputs} for name, batch in shown.items()}
    assert (len(seen["train"]), len(seen["validation"]), len(seen["test"])) == (6, 3, 6)
    assert not seen["train"] & seen["validation"]
    other = data.open_dataset(CONFIG.model_copy(update={"split_seed": 1}), tmp_path / "data")
    rest = {row.tobytes() for row in other.splits["validation"].batch(np.arange(3)).inputs}
    assert rest != seen["validation"]
    assert other.digest != dataset.digest


def test_the_digest_is_of_the_images_not_of_their_place(tree: Path, tmp_path: Path) -> None:
    here = data.setup(CONFIG, tmp_path / "here", source=tree)
    shutil.copytree(tree, tmp_path / "copy")
    there = data.setup(CONFIG, tmp_path / "there", source=tmp_path / "copy")
    assert there.digest == here.digest
    first(tmp_path / "copy").write_bytes(jpeg(999))
    changed = data.setup(CONFIG, tmp_path / "changed", source=tmp_path / "copy")
    assert changed.digest != here.digest


def test_no_split_is_empty(tree: Path, tmp_path: Path) -> None:
    most = CONFIG.model_copy(update={"validation": 0.999})
    assert [len(data.setup(most, tmp_path / "data", source=tree).splits[name]) for name in SPLITS] == [
        1,
        8,
        6,
    ]
    least = CONFIG.model_copy(update={"validation": 0.001})
    assert len(data.open_dataset(least, tmp_path / "data").splits["validation"]) == 1


def test_strange_images_are_images(tree: Path, tmp_path: Path) -> None:
    folder = tree / "train" / CLASSES[0]
    (folder / "a_png.JPEG").write_bytes(encoded(pixels(), "PNG"))
    (folder / "b_cmyk.JPEG").write_bytes(encoded(pixels(), "JPEG", "CMYK"))
    (folder / "c_grey.JPEG").write_bytes(encoded(pixels(colours=1)))
    exif = b"\xff\xe1\x00\x10Exif\0\0" + b"\xff" * 8
    (folder / "d_exif.JPEG").write_bytes(jpeg()[:2] + exif + jpeg()[2:])
    dataset = data.setup(CONFIG, tmp_path / "data", source=tree)
    splits = [dataset.splits[name] for name in ("train", "validation")]
    shown = [split.batch(np.arange(len(split))).inputs for split in splits]
    assert sum(map(len, shown)) == 13
    assert all(np.isfinite(each).all() for each in shown)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_cut_image_is_named_at_set_up(tree: Path, tmp_path: Path) -> None:
    cut(first(tree))
    with pytest.raises(DataError) as caught:
        data.setup(CONFIG, tmp_path / "data", source=tree)
    head, line = str(caught.value).splitlines()
    assert head.startswith("imagenet: 1 file cannot be used: put whole copies there; data.unreadable: skip")
    assert line.startswith(f"{first(tree)}: cannot be decoded")
    assert not data.is_ready(CONFIG, tmp_path / "data")


def test_cut_images_can_be_left_out_of_train(tree: Path, tmp_path: Path) -> None:
    cut(first(tree))
    dataset = data.setup(SKIPS, tmp_path / "data", source=tree)
    assert [len(dataset.splits[name]) for name in SPLITS] == [6, 2, 6]
    assert list(dataset.manifest["skipped"]["train"]) == [first(tree).relative_to(tree).as_posix()]
    assert any(note.startswith("left 1 images out of train") for note in dataset.manifest["notes"])


def test_no_image_is_left_out_of_test(tree: Path, tmp_path: Path) -> None:
    cut(first(tree, "val"))
    with pytest.raises(DataError, match=r"1 file cannot be used: put whole copies there\n.*val/"):
        data.setup(SKIPS, tmp_path / "data", source=tree)


def test_no_class_is_left_without_images(tree: Path, tmp_path: Path) -> None:
    for path in first(tree).parent.iterdir():
        path.write_bytes(b"")
    with pytest.raises(DataError, match="a class of train has no image that can be decoded"):
        data.setup(SKIPS, tmp_path / "data", source=tree)


def test_damage_that_only_decoding_shows_is_found_in_full(tree: Path, tmp_path: Path) -> None:
    first(tree).write_bytes(damaged_inside())
    data.setup(CONFIG, tmp_path / "data", source=tree)
    full = CONFIG.model_copy(update={"verify": "full"})
    with pytest.raises(DataError, match="1 file cannot be used"):
        data.setup(full, tmp_path / "full", source=tree)


def test_images_that_are_gone_are_reported(tree: Path, tmp_path: Path) -> None:
    data.setup(CONFIG, tmp_path / "data", source=tree)
    tree.rename(tmp_path / "moved")
    with pytest.raises(DataError, match="tree: no such folder, but the images of imagenet are read there"):
        data.open_dataset(CONFIG, tmp_path / "data")


@pytest.mark.parametrize("verify", ["ends", "full"])
def test_where_all_is_read_again_images_are_too(verify: str, tree: Path, tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"verify": verify})
    data.setup(config, tmp_path / "data", source=tree)
    stages: list[str] = []
    with distrust_stamps(lambda stage, *_: stages.append(stage)):
        data.open_dataset(config, tmp_path / "data")
    assert "looking at images" in stages
    first(tree, "val").write_bytes(jpeg(999))
    data.open_dataset(config, tmp_path / "data")
    with distrust_stamps(), pytest.raises(DataError) as caught:
        data.open_dataset(config, tmp_path / "data")
    head, line = str(caught.value).splitlines()
    assert head.startswith("imagenet: 1 of 6 images are not those that were set up")
    assert line == str(first(tree, "val"))
    first(tree).unlink()
    with distrust_stamps(), pytest.raises(DataError, match=f"{first(tree)}: cannot be read"):
        data.open_dataset(config, tmp_path / "data")


def test_nothing_can_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)imagenet: the data are not available.*licence.*--from FOLDER"):
        data.setup(CONFIG, tmp_path)


def test_a_file_is_no_folder(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder: name the one that holds train and val"):
        data.setup(CONFIG, tmp_path / "data", source=first(tree))


def test_real_images(sample: Callable[..., Path], tmp_path: Path) -> None:
    folder = sample("imagenette224")
    config = ImageNetConfig(validation=1 / 6)
    dataset = data.setup(config, tmp_path, source=folder)
    assert [len(dataset.splits[name]) for name in SPLITS] == [500, 100, 200]
    assert (dataset.info.classes, dataset.info.longest, dataset.info.channels) == (10, 196, 768)
    batch = dataset.splits["test"].batch(np.arange(0, 200, 4))
    assert batch.labels.tolist() == [label for label in range(10) for _ in range(5)]
    assert abs(batch.inputs.mean()) < 0.2
    assert abs(batch.inputs.std() - 1.25) < 0.15
