"""Image files and classes of ImageNet, as found in its folders.

::

    <root>/train/<class>/<image>      <root> may be ILSVRC/Data/CLS-LOC below the given path, as from Kaggle
    <root>/val/<class>/<image>        or flat, with a list of labels next to it
    <root>/train, val/<image>         flat, with the class in each name, as from the Hub

The rules:

- Classes are the folders of train, sorted by name. Where names are numbers they must be 0 to n - 1 and are
  sorted as numbers: sorted as text, 10 would come before 2.
- Hidden files and folders are skipped and counted, and so are files that are not named as images, or are
  between the folders of classes.
- An empty class, a single class, a class of val that train does not have: each is an error.

Labels of a flat val folder are those of the first of these lists:

- ``LOC_val_solution.csv`` (Kaggle): for each image its class and boxes;
- ``imagenet_2012_validation_synset_labels.txt``: a class a line, in the order of the images' numbers;
- the devkit ``ILSVRC2012_devkit_t12``, as ``.tar.gz``, as a folder, or its two files ``meta.mat`` and
  ``ILSVRC2012_validation_ground_truth.txt``: the latter numbers classes in an order of its own, which is not
  that of their names and is given only by the former.
"""

import io
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archive import OWN, decode_text, read_csv, read_members
from msbench.datasets.archive_dataset import compare_counts
from msbench.errors import DataError
from msbench.results.files import read_bytes

ROOTS = (".", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
VALS = ("val", "validation")
SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")
NAMED = re.compile(r"(.+)_(n\d{8})(\.[A-Za-z]+)")
"""An image of the Hub's flat layout, with its class in its name: ILSVRC2012_val_00000001_n01440764.JPEG."""
PUBLISHED = {"train": 1_281_167, "test": 50_000}
WNID = re.compile(r"n\d{8}")


@dataclass(frozen=True)
class Listed:
    """Images of a split: paths relative to the root with ``/``, by class and name, and labels (n,) uint16."""

    names: list[str]
    labels: NDArray[np.uint16]


@dataclass
class ImageTree:
    """All images below `root`; `passed_over` counts entries hidden or between the folders of classes."""

    root: Path
    classes: tuple[str, ...] = ()
    train: Listed = field(default_factory=lambda: _build_list([]))
    test: Listed = field(default_factory=lambda: _build_list([]))
    passed_over: int = 0
    labels_from: str = "folders"

    def entries(self, name: str) -> tuple[list[str], list[str]]:
        """Return the names of the visible folders and files in a folder below the root, sorted."""
        folders, files = [], []
        with os.scandir(self.root / name) as scan:
            for entry in scan:
                if entry.name.startswith("."):
                    self.passed_over += entry.name not in OWN
                elif entry.is_dir():
                    folders.append(entry.name)
                elif not entry.name.lower().endswith(SUFFIXES):
                    self.passed_over += entry.name not in LISTS
                elif entry.is_file() or not os.path.exists(entry.path):
                    files.append(entry.name)
                else:  # a pipe or a device: reading it could wait forever
                    raise DataError(f"{entry.path}: is not a regular file: remove it")
        return sorted(folders), sorted(files)


def find_images(source: Path, lists: Sequence[Path] = ()) -> ImageTree:
    """Find the images of `source`; lists of labels are searched for there, around val, and in `lists`.

    Raises DataError naming the folder that is wrong.
    """
    tree = ImageTree(_find_root(source))
    folders, files = tree.entries("train")
    named = [] if folders else _read_names(files)
    tree.classes = _order_classes(tree.root / "train", sorted(set(named)) or folders)
    if named:
        labels = {name: label for label, name in enumerate(tree.classes)}
        pairs = zip(named, files, strict=True)
        tree.train = _build_list(sorted((labels[name], f"train/{file}") for name, file in pairs))
    else:
        tree.passed_over += len(files)
        tree.train = _build_list(
            [
                (label, path)
                for label, name in enumerate(tree.classes)
                for path in _list_images(tree, f"train/{name}")
            ]
        )
    _find_test(tree, [tree.root, *lists, source])
    return tree


def _read_names(files: Sequence[str]) -> list[str]:
    """Return the class in the name of each file; empty where one has none."""
    found = [NAMED.fullmatch(file) for file in files]
    return [name[2] for name in found if name] if all(found) else []


def _find_root(source: Path) -> Path:
    for below in ROOTS:
        if (source / below / "train").is_dir():
            return source / below
    raise DataError(f"{source}: holds no folder train, nor below {' or '.join(ROOTS[1:])}")


def _order_classes(folder: Path, names: list[str]) -> tuple[str, ...]:
    """Return the classes in the order of their numbers."""
    if len(names) < 2:
        what = f"only the class {names[0]}" if names else "no folders of classes"
        raise DataError(f"{folder}: holds {what}")
    numbered = [name for name in names if name.isdecimal()]
    if not numbered:
        return tuple(names)
    ordered = tuple(str(number) for number in range(len(names)))
    if set(names) != set(ordered):
        raise DataError(
            f"{folder}: folders named by numbers must be 0 to {len(names) - 1}, without zeros before them,"
            f" not {', '.join(numbered[:3])}, ...: give them the names of classes"
        )
    return ordered


def _list_images(tree: ImageTree, name: str) -> list[str]:
    folders, files = tree.entries(name)
    if folders:
        raise DataError(
            f"{tree.root / name / folders[0]}: is a folder within a class, where only images can be"
        )
    if not files:
        raise DataError(f"{tree.root / name}: is empty: delete it, or fill it with the images of this class")
    return [f"{name}/{file}" for file in files]


def _find_test(tree: ImageTree, lists: Sequence[Path]) -> None:
    name = _find_val(tree.root)
    folders, images = tree.entries(name)
    if folders and images:
        raise DataError(
            f"{tree.root / name}: holds both folders and images, such as {images[0]}: keep either"
        )
    if folders:
        tree.test = _build_list(list(_label_by_folder(tree, name, folders)))
        return
    if not images:
        raise DataError(f"{tree.root / name}: holds no images")
    if named := _read_names(images):
        known = {each: label for label, each in enumerate(tree.classes)}
        for image, each in zip(images, named, strict=True):
            if each not in known:
                raise DataError(f"{tree.root / name / image}: is of a class that train does not have")
        labels, tree.labels_from = [known[each] for each in named], "names"
    else:
        labels, tree.labels_from = find_labels(images, [tree.root / name, *lists], tree.classes)
    tree.test = _build_list([(label, f"{name}/{image}") for label, image in zip(labels, images, strict=True)])


def _find_val(root: Path) -> str:
    found = [name for name in VALS if (root / name).is_dir()]
    if len(found) != 1:
        raise DataError(
            f"{root}: holds both {' and '.join(VALS)}" if found else f"{root}: holds no folder {VALS[0]}"
        )
    return found[0]


def _label_by_folder(tree: ImageTree, name: str, folders: list[str]) -> Iterator[tuple[int, str]]:
    labels = {known: label for label, known in enumerate(tree.classes)}
    for folder in sorted(folders, key=lambda each: labels.get(each, -1)):
        if folder not in labels:
            raise DataError(f"{tree.root / name / folder}: is a class that train does not have")
        for path in _list_images(tree, f"{name}/{folder}"):
            yield labels[folder], path


def _build_list(pairs: list[tuple[int, str]]) -> Listed:
    return Listed([path for _, path in pairs], np.array([label for label, _ in pairs], np.uint16))


def describe_differences(tree: ImageTree) -> Iterator[str]:
    """Yield the differences from ImageNet-1K as published."""
    if tree.passed_over:
        yield f"passed over {tree.passed_over:,} hidden entries and files between the folders of classes"
    found = {"train": len(tree.train.names), "test": len(tree.test.names)}
    yield from compare_counts(found, PUBLISHED, "images", "ImageNet-1K")
    if len(tree.classes) != 1000:
        yield f"{len(tree.classes):,} classes, ImageNet-1K has 1,000"
    if not all(WNID.fullmatch(name) for name in tree.classes):
        yield "classes are not named as in ImageNet (n01440764 and so on): their order is that of their names"
    if absent := len(tree.classes) - len(np.unique(tree.test.labels)):
        yield f"{absent:,} classes have no image in test"


CSV = "LOC_val_solution.csv"
CSV_COLUMNS = ("ImageId", "PredictionString")
SYNSETS = "imagenet_2012_validation_synset_labels.txt"
DEVKIT = "ILSVRC2012_devkit_t12"
LARGEST_LIST = 2**24
"""Bytes of a file of the devkit, of which the largest has fewer than a million."""
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
LISTS = frozenset({CSV, SYNSETS, f"{DEVKIT}.tar.gz", META, TRUTH})
IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.[A-Za-z]+")


def find_labels(
    images: Sequence[str], folders: Sequence[Path], classes: Sequence[str]
) -> tuple[list[int], str]:
    """Return the label of each image, by the list in the first of `folders` with one, and that list's name.

    Raises DataError where there is no list, or it does not match images and classes.
    """
    for folder in dict.fromkeys(folders):
        for name, read in {CSV: _read_csv, SYNSETS: _read_synsets, DEVKIT: _read_devkit}.items():
            if known := read(folder, images):
                labels = {each: label for label, each in enumerate(classes)}
                return [_find_label(folder / name, image, known, labels) for image in images], name
    raise DataError(
        f"{folders[0]}: holds {len(images):,} images and no folders of classes; put {CSV}, {SYNSETS} or"
        f" {DEVKIT}.tar.gz next to it, or its images into folders named as those of train"
    )


def _find_label(where: Path, image: str, known: dict[str, str], labels: dict[str, int]) -> int:
    name = known.get(image.rpartition(".")[0])
    if name is None:
        raise DataError(f"{where}: names no class of {image}")
    if name not in labels:
        raise DataError(f"{where}: {image} is of the class {name}, which train does not have")
    return labels[name]


def _read_csv(folder: Path, _images: Sequence[str]) -> dict[str, str]:
    """Return the class by image without suffix; empty where the list is missing."""
    path = folder / CSV
    if not path.is_file():
        return {}
    known: dict[str, str] = {}
    for where, row in read_csv(read_bytes(path), str(path), CSV_COLUMNS):
        words = row["PredictionString"].split()
        if not words:
            raise DataError(f"{where}: names no class of {row['ImageId']}")
        known[row["ImageId"]] = words[0]
    return known


def _read_synsets(folder: Path, images: Sequence[str]) -> dict[str, str]:
    path = folder / SYNSETS
    if not path.is_file():
        return {}
    return _label_by_number(path, decode_text(read_bytes(path), str(path)).split(), images)


def _read_devkit(folder: Path, images: Sequence[str]) -> dict[str, str]:
    places = (folder / f"{DEVKIT}.tar.gz", folder / DEVKIT / "data", folder / "data", folder)
    for place in places:
        if not place.is_file() and not ((place / META).is_file() or (place / TRUTH).is_file()):
            continue
        files = _read_devkit_files(place)
        if missing := [name for name in (META, TRUTH) if name not in files]:
            raise DataError(f"{place}: holds no {missing[0]}, which is needed to know the classes")
        wnids = _read_wnids(f"{place / META}", files[META])
        try:
            classes = [wnids[int(line)] for line in files[TRUTH].split()]
        except (ValueError, KeyError) as error:
            raise DataError(f"{place / TRUTH}: has a line that is no class of {META}: {error}") from None
        return _label_by_number(place / TRUTH, classes, images)
    return {}


def _read_devkit_files(place: Path) -> dict[str, bytes]:
    if place.is_dir():
        return {name: read_bytes(place / name) for name in (META, TRUTH) if (place / name).is_file()}
    found = read_members(place, lambda name: name.rpartition("/")[2] in (META, TRUTH), largest=LARGEST_LIST)
    return {name.rpartition("/")[2]: content for name, content in found}


def _read_wnids(where: str, content: bytes) -> dict[int, str]:
    """Return the names of the classes by the devkit's numbers, from MATLAB's table of all synsets."""
    from scipy.io import loadmat  # slow import (0.2 s) that other lists do not need

    try:
        table: Any = loadmat(io.BytesIO(content), squeeze_me=True)["synsets"]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in table}
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise DataError(f"{where}: is not the table of ImageNet's classes: {error}") from None


def _label_by_number(path: Path, classes: Sequence[str], images: Sequence[str]) -> dict[str, str]:
    """Return the class by image without suffix; line i belongs to image number i, counted from 1."""
    known = {}
    for image in images:
        number = IMAGE.fullmatch(image)
        if number is None:
            raise DataError(
                f"{path}: needs the numbers in names like ILSVRC2012_val_00000001.JPEG; {image} has none"
            )
        if not 1 <= int(number[1]) <= len(classes):
            raise DataError(f"{path}: has {len(classes):,} lines, and none for {image}")
        known[image.rpartition(".")[0]] = classes[int(number[1]) - 1]
    return known
