"""MNIST (LeCun et al. 1998) as sequences of 784 pixels, in reading order or permuted.

Validation is 10 % of the train split, as in S4's code: 54,000 / 6,000 / 10,000.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.archive import read_content
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import Samples, Split, TaskInfo, score_majority_rule
from msbench.datasets.disk import hash_file
from msbench.datasets.download import RemoteFile
from msbench.datasets.hub import HubLayout
from msbench.datasets.pixels import Bytes, keep_colours, split_images
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import MnistConfig

CLASSES, SIDE = 10, 28
PIXELS = SIDE * SIDE
MEAN, DEVIATION = 0.1307, 0.3081
PERMUTATION_SEED = 42
ABOUT = DatasetDescription(
    what="the four files train-images-idx3-ubyte.gz to t10k-labels-idx1-ubyte.gz, in one folder",
    licence="CC BY-SA 3.0, as is usually stated",
    where="https://ossci-datasets.s3.amazonaws.com/mnist/, then: msbench setup mnist --from FOLDER",
)


@dataclass(frozen=True)
class Published:
    """A published file: MD5 of the ``.gz``, its split, dimensions and number of entries."""

    stem: str
    md5: str
    split: str
    dimensions: int
    count: int


FILES = (
    Published("train-images-idx3-ubyte", "f68b3c2dcbeaaa9fbdd348bbdeb94873", "train", 3, 60_000),
    Published("train-labels-idx1-ubyte", "d53e105ee54ea40749a09fcbcd1e9432", "train", 1, 60_000),
    Published("t10k-images-idx3-ubyte", "9fb629c4189551a2d022fa330f9573f3", "test", 3, 10_000),
    Published("t10k-labels-idx1-ubyte", "ec29112dd5afa0611ce80d1b7f02629c", "test", 1, 10_000),
)
REMOTES = tuple(
    RemoteFile(
        url=f"https://ossci-datasets.s3.amazonaws.com/mnist/{file.stem}.gz",
        name=f"{file.stem}.gz",
        digest=f"md5:{file.md5}",
        kind="gzip",
        dataset="mnist",
        largest=2**24,
    )
    for file in FILES
)


HUB = HubLayout(
    name="ylecun/mnist",
    column="image",
    classes=tuple("0123456789"),
    digests={
        "train": (
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
        ),
        "test": (
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ),
    },
)


def find_files(sources: tuple[Path, ...]) -> dict[str, Path]:
    """Find the path of each file by its stem, among `sources` or anywhere in the one folder given.

    A file may be plain or ``.gz``, or both with the same content, and have a dot before ``idx``, as some
    copies have. Raises DataError for one that is missing, or differs from another of its name.
    """
    folders = [source for source in sources if source.is_dir()]
    paths = [path for folder in folders for path in sorted(folder.rglob("*-ubyte*"))] or list(sources)
    found: dict[str, Path] = {}
    for file in FILES:
        names = {file.stem, file.stem.replace("-idx", ".idx")}
        names |= {f"{name}.gz" for name in names}
        here = [path for path in paths if path.name in names and path.is_file()]
        if not here:
            where = sources[0] if len(sources) == 1 else sources[0].parent
            raise DataError(f"{where}: {file.stem}, plain or .gz, must be there, and is nowhere")
        first, *others = sorted(here, key=lambda path: path.suffix != ".gz")  # of .gz the digest is published
        for other in others:
            if read_content(other) != read_content(first):
                raise DataError(f"{first} and {other} differ: give --from the folder of the right one")
        found[file.stem] = first
    return found


def fill(config: MnistConfig, build: DatasetBuild) -> None:
    """Store the images of train and test, in the order of their files."""
    splits, notes = _read_files(build)
    described = {}
    for split, arrays in splits.items():
        images = arrays["images"].reshape(-1, PIXELS, 1)
        described[split] = manifest.save_split(
            build.folder, split, PIXELS, images=images, labels=arrays["labels"]
        )
    build.finish(config, described, notes=notes)


def _read_files(build: DatasetBuild) -> tuple[dict[str, dict[str, Bytes]], list[str]]:
    """Return images and labels of train and test, checked, and the differences from the published files."""
    splits: dict[str, dict[str, Bytes]] = {"train": {}, "test": {}}
    if build.copy is not None:
        for split, arrays in splits.items():
            arrays["images"], arrays["labels"] = build.copy.read_images(split, SIDE, "L")
        return splits, []
    paths = find_files(build.sources)
    for file in FILES:
        name, path = "images" if file.dimensions == 3 else "labels", paths[file.stem]
        try:
            splits[file.split][name] = parse_idx(read_content(path, build.progress), file.dimensions)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
    for split, arrays in splits.items():
        _check_arrays(paths, split, arrays["images"], arrays["labels"])
    counts = {split: len(arrays["labels"]) for split, arrays in splits.items()}
    return splits, list(_describe_differences(paths, counts))


def _check_arrays(paths: Mapping[str, Path], split: str, images: Bytes, labels: Bytes) -> None:
    of_images, of_labels = (paths[file.stem] for file in FILES if file.split == split)
    if images.shape[1:] != (SIDE, SIDE):
        raise DataError(f"{of_images}: images are {images.shape[1]} x {images.shape[2]}, not {SIDE} x {SIDE}")
    if not len(images) or len(images) != len(labels):
        raise DataError(
            f"{of_images} has {len(images):,} images, but {of_labels.name} {len(labels):,} labels"
        )
    if labels.max() >= CLASSES:
        number = int(np.argmax(labels >= CLASSES))
        raise DataError(f"{of_labels}: label {number:,} is {labels[number]}, no digit")


def _describe_differences(paths: Mapping[str, Path], counts: Mapping[str, int]) -> Iterator[str]:
    """Yield the differences from the published files; the MD5 of an uncompressed file is not checked."""
    for file in FILES:
        path = paths[file.stem]
        if counts[file.split] != file.count:
            yield f"{path.name} has {counts[file.split]:,} entries, the published file {file.count:,}"
        elif path.suffix == ".gz" and (md5 := hash_file(path, "md5")) != file.md5:
            yield f"{path.name} is not the published file: its md5 is {md5}, not {file.md5}"


def view(
    config: MnistConfig, arrays: manifest.Arrays, _facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Split]]:
    """Return the facts of the task and the splits for `config`."""
    splits = split_images(
        config,
        arrays,
        permute_pixels if config.permuted else keep_colours,
        partial(Samples, shift=255 * MEAN, scale=255 * DEVIATION),
    )
    rules = {"majority": score_majority_rule(arrays["train"]["labels"], arrays["test"]["labels"])}
    return _describe_task(rules), splits


def permute_pixels(images: Bytes) -> Bytes:
    """Return images (n, 784, 1) with their pixels permuted as in S4's code."""
    return images[:, np.random.RandomState(PERMUTATION_SEED).permutation(PIXELS)]


def _describe_task(rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo(
        kind="signal",
        vocabulary=0,
        classes=CLASSES,
        longest=PIXELS,
        metric="accuracy",
        chance=1 / CLASSES,
        baselines=rules,
        channels=1,
    )


MNIST: ArchiveDataset[MnistConfig] = ArchiveDataset(
    name="mnist",
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda _config: _describe_task({}),
    remotes=REMOTES,
    hub=HUB,
    views=frozenset({"permuted", "validation", "split_seed"}),
)


UNSIGNED_BYTES = 0x08


def parse_idx(content: bytes, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of unsigned bytes in a file of this many dimensions.

    Raises ValueError where the magic differs, the file is truncated, or bytes follow its end.
    """
    magic = UNSIGNED_BYTES << 8 | dimensions
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise ValueError(f"has {len(content)} bytes, fewer than its header of {header}")
    found, *shape = struct.unpack(f">{1 + dimensions}I", content[:header])
    if found != magic:
        raise ValueError(f"begins with {found:#010x}, not {magic:#010x}: is no IDX file of this kind")
    expected = header + math.prod(shape)
    if len(content) != expected:
        sizes = " x ".join(map(str, shape))
        raise ValueError(f"has {len(content):,} bytes instead of {expected:,} for {sizes}")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
