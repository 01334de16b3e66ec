"""Layouts of ImageNet as users have them, and the ways in which they go wrong."""

import os
from pathlib import Path

import pytest
from image_files import flat_val, imagenet, jpeg, wnid

from msbench.datasets.imagenet.tree import CSV, describe_differences, find_images
from msbench.errors import DataError

CLASSES = [wnid(number) for number in (7, 3, 12)]


def test_folders_alone_are_enough(tmp_path: Path) -> None:
    tree = find_images(imagenet(tmp_path, CLASSES))
    assert tree.classes == (wnid(3), wnid(7), wnid(12))
    assert tree.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert tree.train.names[3] == f"train/{wnid(7)}/{wnid(7)}_0.JPEG"
    assert tree.test.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert tree.labels_from == "folders"


@pytest.mark.parametrize("below", ["ILSVRC/Data/CLS-LOC", "Data/CLS-LOC"])
def test_kaggles_folders_are_found(tmp_path: Path, below: str) -> None:
    imagenet(tmp_path / below, CLASSES)
    assert find_images(tmp_path).root == tmp_path / below


def test_val_may_be_spelled_out(tmp_path: Path) -> None:
    root = imagenet(tmp_path, CLASSES)
    (root / "val").rename(root / "validation")
    assert find_images(root).test.names[0].startswith("validation/")
    (root / "val").mkdir()
    with pytest.raises(DataError, match="holds both val and validation"):
        find_images(root)


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    tree = find_images(imagenet(tmp_path, map(str, range(12)), train=1, val=1))
    assert tree.classes == tuple(map(str, range(12)))
    assert [name.split("/")[1] for name in tree.train.names] == list(tree.classes)
    assert tree.test.labels.tolist() == list(range(12))


@pytest.mark.parametrize(
    "names", [["1", "2", "3"], ["00", "01", "02"], ["0", "1", "n01440764"], ["0", "1", "01"]]
)
def test_numbers_that_cannot_be_labels_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(DataError, match="train: folders named by numbers must be 0 to 2"):
        find_images(imagenet(tmp_path, names, train=1, val=1))


def test_what_is_hidden_is_passed_over_and_counted(tmp_path: Path) -> None:
    plain = find_images(imagenet(tmp_path / "plain", CLASSES))
    root = imagenet(tmp_path / "other", CLASSES)
    (root / "train" / ".ipynb_checkpoints").mkdir()
    (root / "train" / ".ipynb_checkpoints" / "a.JPEG").write_bytes(jpeg())
    (root / "train" / ".DS_Store").touch()
    (root / "train" / "train.txt").touch()
    (root / "train" / CLASSES[0] / "._a.JPEG").touch()
    (root / "val" / ".DS_Store").touch()
    tree = find_images(root)
    assert tree.classes == plain.classes
    assert tree.train.names == plain.train.names
    assert tree.test.labels.tolist() == plain.test.labels.tolist()
    assert tree.passed_over == 5
    assert "passed over 5 hidden entries" in next(describe_differences(tree))


@pytest.mark.parametrize("split", ["train", "val"])
def test_an_empty_class_is_an_error(tmp_path: Path, split: str) -> None:
    root = imagenet(tmp_path, CLASSES)
    empty = root / split / (CLASSES[0] if split == "val" else "tmp")
    for image in empty.glob("*"):
        image.unlink()
    empty.mkdir(exist_ok=True)
    (empty / ".DS_Store").touch()
    with pytest.raises(DataError, match=rf"{split}/\w+: is empty: delete it"):
        find_images(root)


def test_a_class_of_val_that_train_does_not_have_is_an_error(tmp_path: Path) -> None:
    root = imagenet(tmp_path, CLASSES)
    (root / "val" / wnid(99)).mkdir()
    with pytest.raises(DataError, match=f"val/{wnid(99)}: is a class that train does not have"):
        find_images(root)


def test_a_class_without_test_images_is_reported(tmp_path: Path) -> None:
    root = imagenet(tmp_path, CLASSES)
    (root / "val" / CLASSES[1]).rename(tmp_path / "aside")
    differences = list(describe_differences(find_images(root)))
    assert differences == [
        "train has 9 images, ImageNet-1K 1,281,167",
        "test has 4 images, ImageNet-1K 50,000",
        "3 classes, ImageNet-1K has 1,000",
        "1 classes have no image in test",
    ]


def test_names_that_are_not_imagenets_are_reported(tmp_path: Path) -> None:
    assert any(
        "not named as in ImageNet" in note
        for note in describe_differences(find_images(imagenet(tmp_path, ["cat", "dog"])))
    )


@pytest.mark.parametrize(
    ("classes", "fault"), [([], "no folders of classes"), ([wnid(1)], f"only the class {wnid(1)}")]
)
def test_there_are_never_0_classes_nor_1(tmp_path: Path, classes: list[str], fault: str) -> None:
    root = imagenet(tmp_path, classes)
    (root / "train").mkdir(exist_ok=True)
    (root / "train" / "a.JPEG").write_bytes(jpeg())
    with pytest.raises(DataError, match=f"train: holds {fault}"):
        find_images(root)


def test_missing_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no folder train, nor below ILSVRC/Data/CLS-LOC"):
        find_images(tmp_path)
    imagenet(tmp_path, CLASSES, val=1)
    (tmp_path / "val").rename(tmp_path / "aside")
    with pytest.raises(DataError, match="holds no folder val"):
        find_images(tmp_path)


def test_folders_within_a_class_are_refused(tmp_path: Path) -> None:
    root = imagenet(tmp_path, CLASSES)
    (root / "train" / CLASSES[0] / "images").mkdir()
    with pytest.raises(DataError, match=f"{CLASSES[0]}/images: is a folder within a class"):
        find_images(root)


def flat(tmp_path: Path) -> tuple[Path, list[str]]:
    root = imagenet(tmp_path, CLASSES, val=0)
    for folder in (root / "val").iterdir():
        folder.rmdir()
    (root / "val").rmdir()
    return root, flat_val(root, CLASSES, 6)


def test_a_flat_val_needs_a_list(tmp_path: Path) -> None:
    root, shown = flat(tmp_path)
    with pytest.raises(DataError, match=r"val: holds 6 images and no folders of classes; put LOC_val"):
        find_images(root)
    rows = [f"ILSVRC2012_val_{number:08d},{name} 1 2 3 4" for number, name in enumerate(shown, 1)]
    (root / CSV).write_text("\n".join(["ImageId,PredictionString", *rows]))
    tree = find_images(root)
    assert tree.labels_from == CSV
    assert [tree.classes[label] for label in tree.test.labels] == shown
    assert tree.test.names[0] == "val/ILSVRC2012_val_00000001.JPEG"


def test_kaggles_list_is_above_its_folders(tmp_path: Path) -> None:
    root, shown = flat(tmp_path / "ILSVRC/Data/CLS-LOC")
    rows = [f"ILSVRC2012_val_{number:08d},{name} 1 2 3 4" for number, name in enumerate(shown, 1)]
    (tmp_path / CSV).write_text("\n".join(["ImageId,PredictionString", *rows]))
    tree = find_images(tmp_path)
    assert tree.root == root
    assert [tree.classes[label] for label in tree.test.labels] == shown


def test_a_list_within_val_is_no_image(tmp_path: Path) -> None:
    root, shown = flat(tmp_path)
    rows = [f"ILSVRC2012_val_{number:08d},{name} 1 2 3 4" for number, name in enumerate(shown, 1)]
    (root / "val" / CSV).write_text("\n".join(["ImageId,PredictionString", *rows]))
    assert len(find_images(root).test.names) == 6


def test_images_next_to_folders_are_refused(tmp_path: Path) -> None:
    root, _ = flat(tmp_path)
    (root / "val" / CLASSES[0]).mkdir()
    with pytest.raises(
        DataError, match="val: holds both folders and images, such as ILSVRC2012_val_00000001"
    ):
        find_images(root)


def test_an_empty_val_is_an_error(tmp_path: Path) -> None:
    root, _ = flat(tmp_path)
    for image in (root / "val").iterdir():
        image.unlink()
    with pytest.raises(DataError, match="val: holds no images"):
        find_images(root)


def test_names_of_the_hub_have_the_class(tmp_path: Path) -> None:
    plain = find_images(imagenet(tmp_path / "plain", CLASSES))
    for split in ("train", "val"):
        (tmp_path / "flat" / split).mkdir(parents=True)
    for name in plain.train.names:
        _, label, file = name.split("/")
        (tmp_path / "flat" / "train" / f"{label}_{file[:-5]}_{label}.JPEG").touch()
    for number, label in enumerate(plain.test.labels.tolist(), start=1):
        name = f"ILSVRC2012_val_{number:08d}_{plain.classes[label]}.JPEG"
        (tmp_path / "flat" / "val" / name).touch()
    tree = find_images(tmp_path / "flat")
    assert tree.classes == plain.classes
    assert tree.train.labels.tolist() == plain.train.labels.tolist()
    assert tree.test.labels.tolist() == plain.test.labels.tolist()
    assert tree.labels_from == "names"
    (tmp_path / "flat" / "val" / "ILSVRC2012_val_00000099_n99999999.JPEG").touch()
    with pytest.raises(DataError, match=r"n99999999\.JPEG: is of a class that train does not have"):
        find_images(tmp_path / "flat")


def test_files_that_are_not_named_as_images_are_passed_over(tmp_path: Path) -> None:
    root = imagenet(tmp_path, CLASSES)
    count = len(find_images(root).train.names)
    (root / "train" / CLASSES[0] / "Thumbs.db").write_bytes(b"x")
    (root / "val" / CLASSES[0] / "desktop.ini").write_bytes(b"x")
    tree = find_images(root)
    assert len(tree.train.names) == count
    assert tree.passed_over == 2


@pytest.mark.parametrize("name", ["train/{}/x.JPEG", "val/{}/x.JPEG"])
def test_a_pipe_among_images_is_refused_at_once(tmp_path: Path, name: str) -> None:
    root = imagenet(tmp_path, CLASSES)
    os.mkfifo(root / name.format(wnid(3)))
    with pytest.raises(DataError, match="JPEG: is not a regular file"):
        find_images(root)
