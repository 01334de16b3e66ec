"""Labels of a flat val folder of ImageNet, from the lists distributed with it.

The first list found counts, in this order:

- ``LOC_val_solution.csv`` (Kaggle): for each image its class and boxes;
- ``imagenet_2012_validation_synset_labels.txt``: a class a line, in the order of the images' numbers;
- the devkit ``ILSVRC2012_devkit_t12``, as ``.tar.gz``, as a folder, or its two files ``meta.mat`` and
  ``ILSVRC2012_validation_ground_truth.txt``: the latter numbers classes in an order of its own, which is not
  that of their names and is given only by the former.
"""

import csv
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msbench.datasets.archives import members
from msbench.errors import DataError

CSV = "LOC_val_solution.csv"
SYNSETS = "imagenet_2012_validation_synset_labels.txt"
DEVKIT = "ILSVRC2012_devkit_t12"
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
LISTS = frozenset({CSV, SYNSETS, f"{DEVKIT}.tar.gz", META, TRUTH})
IMAGE = re.compile(r"ILSVRC2012_val_(\d{8})\.[A-Za-z]+")


def labels_of(
    images: Sequence[str], folders: Sequence[Path], classes: Sequence[str]
) -> tuple[list[int], str]:
    """Return the label of each image, by the list in the first of `folders` with one, and that list's name.

    Raises DataError where there is no list, or it does not match images and classes.
    """
    for folder in dict.fromkeys(folders):
        for name, read in {CSV: _from_csv, SYNSETS: _from_synsets, DEVKIT: _from_devkit}.items():
            if known := read(folder, images):
                labels = {each: label for label, each in enumerate(classes)}
                return [_label(folder / name, image, known, labels) for image in images], name
    raise DataError(
        f"{folders[0]}: holds {len(images):,} images and no folders of classes; put {CSV}, {SYNSETS} or"
        f" {DEVKIT}.tar.gz beside it, or its images into folders named as those of train"
    )


def _label(where: Path, image: str, known: dict[str, str], labels: dict[str, int]) -> int:
    name = known.get(image.rpartition(".")[0])
    if name is None:
        raise DataError(f"{where}: names no class of {image}")
    if name not in labels:
        raise DataError(f"{where}: {image} is of the class {name}, which train does not have")
    return labels[name]


def _from_csv(folder: Path, _images: Sequence[str]) -> dict[str, str]:
    """Return the class by image without suffix; empty where the list is missing."""
    path = folder / CSV
    if not path.is_file():
        return {}
    rows = csv.DictReader(io.StringIO(_text(path)))
    if not {"ImageId", "PredictionString"} <= set(rows.fieldnames or ()):
        raise DataError(f"{path}, line 1: must name the columns ImageId and PredictionString")
    known: dict[str, str] = {}
    try:
        for row in rows:
            words = (row["PredictionString"] or "").split()
            if not words:
                raise DataError(f"{path}, line {rows.line_num}: names no class of {row['ImageId']}")
            known[row["ImageId"]] = words[0]
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num}: {error}") from None
    return known


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: is not UTF-8") from None


def _from_synsets(folder: Path, images: Sequence[str]) -> dict[str, str]:
    path = folder / SYNSETS
    if not path.is_file():
        return {}
    return _by_number(path, _text(path).split(), images)


def _from_devkit(folder: Path, images: Sequence[str]) -> dict[str, str]:
    places = (folder / f"{DEVKIT}.tar.gz", folder / DEVKIT / "data", folder / "data", folder)
    for place in places:
        if not place.is_file() and not ((place / META).is_file() or (place / TRUTH).is_file()):
            continue
        files = _devkit_files(place)
        if missing := [name for name in (META, TRUTH) if name not in files]:
            raise DataError(f"{place}: holds no {missing[0]}, without which the classes cannot be told")
        wnids = _wnids(f"{place / META}", files[META])
        try:
            classes = [wnids[int(line)] for line in files[TRUTH].split()]
        except (ValueError, KeyError) as error:
            raise DataError(f"{place / TRUTH}: has a line that is no class of {META}: {error}") from None
        return _by_number(place / TRUTH, classes, images)
    return {}


def _devkit_files(place: Path) -> dict[str, bytes]:
    if place.is_dir():
        return {name: (place / name).read_bytes() for name in (META, TRUTH) if (place / name).is_file()}
    found = members(place, lambda name: name.rpartition("/")[2] in (META, TRUTH))
    return {name.rpartition("/")[2]: content for name, content in found}


def _wnids(where: str, content: bytes) -> dict[int, str]:
    """Return the names of the classes by the devkit's numbers, from MATLAB's table of all synsets."""
    from scipy.io import loadmat  # slow import (0.2 s) that other lists do not need

    try:
        table: Any = loadmat(io.BytesIO(content), squeeze_me=True)["synsets"]
        return {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in table}
    except (ValueError, KeyError, TypeError, IndexError, OSError) as error:
        raise DataError(f"{where}: is not the table of ImageNet's classes: {error}") from None


def _by_number(path: Path, classes: Sequence[str], images: Sequence[str]) -> dict[str, str]:
    """Return the class by image without suffix; line i belongs to image number i, counted from 1."""
    known = {}
    for image in images:
        number = IMAGE.fullmatch(image)
        if number is None:
            raise DataError(
                f"{path}: goes by the numbers of ILSVRC2012_val_00000001.JPEG, which {image} has not"
            )
        if not 1 <= int(number[1]) <= len(classes):
            raise DataError(f"{path}: has {len(classes):,} lines, and none for {image}")
        known[image.rpartition(".")[0]] = classes[int(number[1]) - 1]
    return known
