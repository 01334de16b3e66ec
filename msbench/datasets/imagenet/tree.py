"""Image files and classes of ImageNet, as found in its folders.

::

    <root>/train/<class>/<image>      <root> may be ILSVRC/Data/CLS-LOC below the given path, as from Kaggle
    <root>/val/<class>/<image>        or flat, with a list of labels next to it

The rules:

- Classes are the folders of train, sorted by name. Where names are numbers they must be 0 to n - 1 and are
  sorted as numbers: sorted as text, 10 would come before 2.
- Hidden files and folders are skipped and counted, and so are files between the folders of classes.
- An empty class, a single class, a class of val that train does not have: each is an error.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.archives.entries import OWN
from msbench.datasets.imagenet.labels import LISTS, labels_of
from msbench.errors import DataError

ROOTS = (".", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
VALS = ("val", "validation")
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
    train: Listed = field(default_factory=lambda: _listed([]))
    test: Listed = field(default_factory=lambda: _listed([]))
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
                else:
                    files.append(entry.name)
        return sorted(folders), sorted(files)


def find(source: Path, beside: Sequence[Path] = ()) -> ImageTree:
    """Find the images of `source`; lists of labels are searched for there, around val, and in `beside`.

    Raises DataError naming the folder that is wrong.
    """
    tree = ImageTree(_root(source))
    folders, files = tree.entries("train")
    tree.passed_over += len(files)
    tree.classes = _classes(tree.root / "train", folders)
    tree.train = _listed(
        [(label, path) for label, name in enumerate(tree.classes) for path in _images(tree, f"train/{name}")]
    )
    _find_test(tree, [tree.root, *beside, source])
    return tree


def _root(source: Path) -> Path:
    for below in ROOTS:
        if (source / below / "train").is_dir():
            return source / below
    raise DataError(f"{source}: holds no folder train, nor below {' or '.join(ROOTS[1:])}")


def _classes(folder: Path, names: list[str]) -> tuple[str, ...]:
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


def _images(tree: ImageTree, name: str) -> list[str]:
    folders, files = tree.entries(name)
    if folders:
        raise DataError(
            f"{tree.root / name / folders[0]}: is a folder within a class, where only images can be"
        )
    if not files:
        raise DataError(f"{tree.root / name}: is empty: delete it, or fill it with the images of this class")
    return [f"{name}/{file}" for file in files]


def _find_test(tree: ImageTree, beside: Sequence[Path]) -> None:
    name = _val(tree.root)
    folders, files = tree.entries(name)
    images = [file for file in files if file not in LISTS]
    if folders and images:
        raise DataError(
            f"{tree.root / name}: holds both folders and images, such as {images[0]}: keep either"
        )
    if folders:
        tree.test = _listed(list(_by_folder(tree, name, folders)))
        return
    if not images:
        raise DataError(f"{tree.root / name}: holds no images")
    labels, tree.labels_from = labels_of(images, [tree.root / name, *beside], tree.classes)
    tree.test = _listed([(label, f"{name}/{image}") for label, image in zip(labels, images, strict=True)])


def _val(root: Path) -> str:
    found = [name for name in VALS if (root / name).is_dir()]
    if len(found) != 1:
        raise DataError(
            f"{root}: holds both {' and '.join(VALS)}" if found else f"{root}: holds no folder {VALS[0]}"
        )
    return found[0]


def _by_folder(tree: ImageTree, name: str, folders: list[str]) -> Iterator[tuple[int, str]]:
    labels = {known: label for label, known in enumerate(tree.classes)}
    for folder in sorted(folders, key=lambda each: labels.get(each, -1)):
        if folder not in labels:
            raise DataError(f"{tree.root / name / folder}: is a class that train does not have")
        for path in _images(tree, f"{name}/{folder}"):
            yield labels[folder], path


def _listed(pairs: list[tuple[int, str]]) -> Listed:
    return Listed([path for _, path in pairs], np.array([label for label, _ in pairs], np.uint16))


def differences(tree: ImageTree) -> Iterator[str]:
    """Yield the differences from ImageNet-1K as published."""
    if tree.passed_over:
        yield f"passed over {tree.passed_over:,} hidden entries and files between the folders of classes"
    named = {"train": 1_281_167, "test": 50_000}
    for split, count in named.items():
        found = len(getattr(tree, split).names)
        if found != count:
            yield f"{split} has {found:,} images, ImageNet-1K {count:,}"
    if len(tree.classes) != 1000:
        yield f"{len(tree.classes):,} classes, ImageNet-1K has 1,000"
    if not all(WNID.fullmatch(name) for name in tree.classes):
        yield "classes are not named as in ImageNet (n01440764 and so on): their order is that of their names"
    if absent := len(tree.classes) - len(np.unique(tree.test.labels)):
        yield f"{absent:,} classes have no image in test"
