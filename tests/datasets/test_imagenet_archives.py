from pathlib import Path

import image_files
import pytest
from image_files import wnid

from msbench import datasets as data
from msbench.config.data import ImageNetConfig
from msbench.datasets.dataset import SPLITS
from msbench.datasets.imagenet.dataset import ARCHIVES
from msbench.errors import DataError

CLASSES = [wnid(3), wnid(7)]
CONFIG = ImageNetConfig(image_size=16, patch=8, validation=0.34)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return image_files.published(tmp_path, CLASSES)


def test_archives_are_unpacked_and_read_in_place(published: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    dataset = data.setup(CONFIG, root, source=published)
    assert [len(dataset.splits[name]) for name in SPLITS] == [4, 2, 3]
    assert dataset.manifest["classes"] == CLASSES
    assert dataset.manifest["images"] == str(root / "imagenet" / "images")
    notes = dataset.manifest["notes"]
    assert notes[0].startswith(f"{ARCHIVES['train']} is not the published file")
    assert not any("passed over" in note for note in notes), "what msbench left there is nothing to tell of"
    assert dataset.splits["test"].batch(range(3)).labels.tolist() == [1, 0, 1]  # type: ignore[arg-type]


def test_an_image_deleted_after_unpacking_is_missed(published: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    data.setup(CONFIG, root, source=published)
    next((root / "imagenet" / "images" / "train").glob("*/*.JPEG")).unlink()
    other = CONFIG.model_copy(update={"verify": "full"})
    with pytest.raises(DataError, match=r"images/train: holds 5 files .* but 6 of .* were unpacked"):
        data.setup(other, root, source=published)


def test_both_archives_are_needed(published: Path, tmp_path: Path) -> None:
    (published / ARCHIVES["val"]).unlink()
    with pytest.raises(DataError, match=rf"{ARCHIVES['val']}: no such file"):
        data.setup(CONFIG, tmp_path / "data", source=published)


def test_a_cut_archive_leaves_nothing(published: Path, tmp_path: Path) -> None:
    archive = published / ARCHIVES["train"]
    archive.write_bytes(archive.read_bytes()[:4000])
    with pytest.raises(DataError, match=f"{ARCHIVES['train']}: is cut short or damaged"):
        data.setup(CONFIG, tmp_path / "data", source=published)
    assert not (tmp_path / "data" / "imagenet" / "images" / "train").exists()
