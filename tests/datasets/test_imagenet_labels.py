import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from image_files import wnid
from scipy.io import savemat

from msbench.datasets.imagenet.tree import CSV, DEVKIT, META, SYNSETS, TRUTH, find_labels
from msbench.errors import DataError

CLASSES = [wnid(number) for number in (3, 7, 12)]
SHOWN = [2, 0, 1, 1]
IMAGES = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, 5)]
NUMBERS = {CLASSES[0]: 2, CLASSES[1]: 3, CLASSES[2]: 1}
"""The devkit's own, which are not in the order of names."""


def csv(folder: Path, shown: list[int] = SHOWN) -> None:
    rows = [f"{image[:-5]},{CLASSES[label]} 1 2 3 4 " for image, label in zip(IMAGES, shown, strict=False)]
    (folder / CSV).write_text("\r\n".join(["ImageId,PredictionString", *reversed(rows)]))


def synsets(folder: Path, shown: list[int] = SHOWN) -> None:
    (folder / SYNSETS).write_text("".join(f"{CLASSES[label]}\n" for label in shown))


def meta(folder: Path) -> None:
    dtype = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object), ("num_children", object)]
    rows = [(number, name, "a thing", 0) for name, number in NUMBERS.items()]
    rows.append((1001, wnid(1), "things", 3))
    savemat(folder / META, {"synsets": np.array(rows, dtype=dtype)})


def truth(folder: Path, shown: list[int] = SHOWN) -> None:
    (folder / TRUTH).write_text("".join(f"{NUMBERS[CLASSES[label]]}\n" for label in shown))


def devkit(folder: Path) -> None:
    data = folder / DEVKIT / "data"
    data.mkdir(parents=True)
    meta(data)
    truth(data)


def devkit_archive(folder: Path) -> None:
    devkit(folder / "aside")
    with tarfile.open(folder / f"{DEVKIT}.tar.gz", "w:gz") as tar:
        tar.add(folder / "aside" / DEVKIT, DEVKIT)


def both_files(folder: Path) -> None:
    meta(folder)
    truth(folder)


@pytest.mark.parametrize(
    ("write", "name"),
    [(csv, CSV), (synsets, SYNSETS), (devkit, DEVKIT), (devkit_archive, DEVKIT), (both_files, DEVKIT)],
)
def test_every_list_gives_the_labels(tmp_path: Path, write: object, name: str) -> None:
    assert callable(write)
    write(tmp_path)
    assert find_labels(IMAGES, [tmp_path / "nowhere", tmp_path], CLASSES) == (SHOWN, name)


def test_the_first_folder_and_list_count(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    synsets(tmp_path / "first", [0, 0, 0, 0])
    csv(tmp_path, [1, 1, 1, 1])
    synsets(tmp_path, [2, 2, 2, 2])
    assert find_labels(IMAGES, [tmp_path / "first", tmp_path], CLASSES) == ([0] * 4, SYNSETS)
    assert find_labels(IMAGES, [tmp_path], CLASSES) == ([1] * 4, CSV)


def test_there_must_be_a_list(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=f"holds 4 images and no folders of classes; put {CSV}, .* next to it"
    ):
        find_labels(IMAGES, [tmp_path], CLASSES)


def test_numbers_of_the_devkit_need_its_table(tmp_path: Path) -> None:
    truth(tmp_path)
    with pytest.raises(DataError, match=r"holds no meta\.mat, which is needed to know the classes"):
        find_labels(IMAGES, [tmp_path], CLASSES)


def test_every_image_must_be_in_the_list(tmp_path: Path) -> None:
    csv(tmp_path, SHOWN[:3])
    with pytest.raises(DataError, match=rf"{CSV}: names no class of {IMAGES[3]}"):
        find_labels(IMAGES, [tmp_path], CLASSES)
    (tmp_path / CSV).unlink()
    synsets(tmp_path, SHOWN[:3])
    with pytest.raises(DataError, match=rf"{SYNSETS}: has 3 lines, and none for {IMAGES[3]}"):
        find_labels(IMAGES, [tmp_path], CLASSES)


def test_classes_must_be_those_of_train(tmp_path: Path) -> None:
    synsets(tmp_path)
    with pytest.raises(
        DataError, match=f"{IMAGES[0]} is of the class {CLASSES[2]}, which train does not have"
    ):
        find_labels(IMAGES, [tmp_path], CLASSES[:2])


def test_lists_by_number_need_numbered_images(tmp_path: Path) -> None:
    synsets(tmp_path)
    with pytest.raises(DataError, match=r"needs the numbers in names like .*; cat\.JPEG has none"):
        find_labels(["cat.JPEG"], [tmp_path], CLASSES)


def test_blank_lines_of_a_csv_are_skipped(tmp_path: Path) -> None:
    csv(tmp_path)
    expected = find_labels(IMAGES, [tmp_path], CLASSES)
    path = tmp_path / CSV
    path.write_text(path.read_text().replace("\n", "\n\n", 2) + "\n\n")
    assert find_labels(IMAGES, [tmp_path], CLASSES) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("image,label\na,b\n", "line 1: the header must name these columns once: ImageId, Pred"),
        ("ImageId,PredictionString\na,\n", "line 2: names no"),
        ("ImageId,PredictionString\n\na,\n", "line 3: names no"),
    ],
)
def test_a_bad_csv_is_named(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / CSV).write_text(text)
    with pytest.raises(DataError, match=fault):
        find_labels(IMAGES, [tmp_path], CLASSES)


def test_a_bad_devkit_is_named(tmp_path: Path) -> None:
    meta(tmp_path)
    (tmp_path / TRUTH).write_text("1\n4\n")
    with pytest.raises(DataError, match=f"{TRUTH}: has a line that is no class of {META}: 4"):
        find_labels(IMAGES, [tmp_path], CLASSES)
    (tmp_path / META).write_bytes(io.BytesIO(b"no matrix" * 50).getvalue())
    with pytest.raises(DataError, match=f"{META}: is not the table of ImageNet's classes"):
        find_labels(IMAGES, [tmp_path], CLASSES)


@pytest.mark.parametrize("name", [CSV, SYNSETS])
def test_a_list_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    {CSV: csv, SYNSETS: synsets}[name](tmp_path)
    path = tmp_path / name
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff" + b"".join(lines[1:]))
    with pytest.raises(DataError, match=rf"{name}, line 2: is not UTF-8"):
        find_labels(IMAGES, (tmp_path,), CLASSES)
