"""The published files of CIFAR-10, ``data_batch_1`` to ``data_batch_5`` and ``test_batch``, read strictly.

They are pickles, and a pickle is a program: none is run here, `inert_pickle` only extracts the values.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import inert_pickle
from msbench.datasets.archives import members
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.errors import DataError

ARCHIVE = "cifar-10-python.tar.gz"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
ROWS = 10_000
CLASSES, PIXELS, COLOURS = 10, 32 * 32, 3


@dataclass(frozen=True)
class Cifar10File:
    """Images (n, 1024, 3) and labels (n,) of one file; `md5` is of its bytes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    md5: str


def read(source: Path, progress: Progress = ignore_progress) -> dict[str, Cifar10File]:
    """Read the files by name, in order; `source` is an archive, a folder, or a folder that holds either.

    Raises DataError where the test file or all train files are missing, and for a file that occurs twice or
    is malformed.
    """
    if source.is_dir() and (source / ARCHIVE).is_file() and not _holds_files(source):
        source = source / ARCHIVE
    found: dict[str, Cifar10File] = {}
    paths: dict[str, str] = {}
    for path, content in members(source, lambda name: _base(name) in MD5, progress):
        name = _base(path)
        if name in paths:
            raise DataError(
                f"{source}: has {name} twice, as {paths[name]} and {path}: name one folder of them"
            )
        paths[name] = path
        found[name] = parse(f"{source / path}", content)
    if TEST not in found or len(found) == 1:
        missing = TEST if TEST not in found else f"{TRAIN[0]} to {TRAIN[-1]}"
        raise DataError(f"{source}: holds no {missing} of CIFAR-10's python version")
    return {name: found[name] for name in MD5 if name in found}


def notes(found: Mapping[str, Cifar10File]) -> Iterator[str]:
    """Yield the differences from the published files."""
    for name, md5 in MD5.items():
        if name not in found:
            yield f"{name} is missing"
        elif len(found[name].labels) != ROWS:
            yield f"{name} has {len(found[name].labels):,} images, the published file {ROWS:,}"
        elif found[name].md5 != md5:
            yield f"{name} is not the published file: its md5 is {found[name].md5}, not {md5}"


def parse(where: str, content: bytes) -> Cifar10File:
    """Parse one file. Raises DataError, whose message begins with `where`."""
    try:
        batch = inert_pickle.values(content)
    except Exception as error:  # a damaged pickle can raise any exception
        raise DataError(f"{where}: is no CIFAR-10 batch: {error}") from None
    try:
        pixels, labels = _array(batch, "data"), _array(batch, "labels")
        _check(pixels, labels)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    images = np.ascontiguousarray(pixels.reshape(-1, COLOURS, PIXELS).transpose(0, 2, 1))
    return Cifar10File(
        images, labels.astype(np.uint8), hashlib.md5(content, usedforsecurity=False).hexdigest()
    )


def _array(batch: Any, key: str) -> NDArray[Any]:
    found = batch.get(key.encode(), batch.get(key)) if isinstance(batch, dict) else None
    if found is None:
        raise ValueError(f"is no CIFAR-10 batch: it has no {key}")
    # Lists are checked first: nested lists that repeat one list can make an array larger than any memory.
    flat = isinstance(found, np.ndarray) or (
        isinstance(found, list) and all(isinstance(each, int) for each in found)
    )
    array = np.asarray(found if flat else None)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{key} are not whole numbers")
    return array


def _check(pixels: NDArray[Any], labels: NDArray[Any]) -> None:
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != COLOURS * PIXELS:
        raise ValueError(
            f"data must be uint8 (n, {COLOURS * PIXELS}), not {pixels.dtype} {tuple(pixels.shape)}"
        )
    if labels.shape != (len(pixels),) or not len(labels):
        raise ValueError(f"{labels.size:,} labels do not go with {len(pixels):,} images")
    if labels.min() < 0 or labels.max() >= CLASSES:
        raise ValueError(f"labels go from {labels.min()} to {labels.max()}, not from 0 to {CLASSES - 1}")


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _holds_files(folder: Path) -> bool:
    return next(folder.rglob(TEST), None) is not None
