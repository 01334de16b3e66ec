"""CIFAR-10 (Krizhevsky 2009) as sequences of 1024 pixels: the paper's sCIFAR, and Long Range Arena's Image.

All images are stored once, in colour as published; colour, standardisation and split are chosen on opening.
Both published versions give the same arrays:

- the binary one, ``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``: records of a label and
  3 x 1024 bytes, all red ones first;
- the pickled one, the same names without ``.bin``. A pickle can run any code when it is loaded, so only files
  with their published digest are.

A copy on the Hugging Face Hub has the batches in the order of the pickled archive's tar: 4, 3, 2, 5, 1.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets import manifest
from msbench.datasets.archive import read_members
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import Progress, Samples, Split, TaskInfo, score_majority_rule
from msbench.datasets.download import RemoteFile
from msbench.datasets.hub import HubCopy, HubLayout
from msbench.datasets.pixels import LEVELS, Bytes, PixelTokens, convert_to_grey, keep_colours, split_images
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import Cifar10Config

BINARY, PICKLED = "cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"
ABOUT = DatasetDescription(
    what=f"{BINARY} or {PICKLED}, or the folder of files in it",
    licence="none is stated (research data; cite Krizhevsky 2009), so msbench does not pass it on",
    where="https://www.cs.toronto.edu/~kriz/cifar.html, then: msbench setup cifar10 --from PATH",
)
REMOTE = RemoteFile(
    url=f"https://www.cs.toronto.edu/~kriz/{BINARY}",
    name=BINARY,
    digest="md5:c32a1d4ab5d03f1284b67883e8d87530",
    kind="gzip",
    dataset="cifar10",
    largest=2**28,
)
PICKLED_DIGEST = "md5:c58f30108f718f92721af3b95e74349a"
PICKLE_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
*TRAIN, TEST = PICKLE_MD5
ROWS = 10_000
CLASSES, PIXELS, COLOURS = 10, 32 * 32, 3
HUB = HubLayout(
    name="uoft-cs/cifar10",
    column="img",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    digests={
        "train": (
            "c5b8e1d062f7373a5bc758689b1b9c2a7caf093109b95ceb98cecaf2bd266807",
            "d6d2fe5c7528f766adb2e13bf983d1e4707936c06b4ccf240ef3d2dcd72c986d",
        ),
        "test": (
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
    },
)
HUB_BATCHES = ("data_batch_4", "data_batch_3", "data_batch_2", "data_batch_5", "data_batch_1")
LARGEST_FILE = 2**25
"""Bytes: a published file has 31 million at most."""
RECORD = 1 + COLOURS * PIXELS
"""Bytes of an image with its label in the binary version."""


@dataclass(frozen=True)
class Cifar10File:
    """Images (n, 1024, 3) and labels (n,) of one file; `md5` is of its bytes."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    md5: str


def read_files(source: Path, progress: Progress) -> dict[str, Cifar10File]:
    """Read the files by name, in order; `source` is an archive, a folder, or a folder that holds either.

    Raises DataError where the test file or all train files are missing, and for a file that occurs twice, is
    malformed, or is a pickle other than the published one.
    """
    if source.is_dir() and not any(_find_batch_name(path.name) == TEST for path in source.rglob(f"{TEST}*")):
        source = next((source / name for name in (BINARY, PICKLED) if (source / name).is_file()), source)
    found: dict[str, Cifar10File] = {}
    paths: dict[str, str] = {}
    for path, content in read_members(
        source, lambda path: _find_batch_name(path) in PICKLE_MD5, progress, largest=LARGEST_FILE
    ):
        name = _find_batch_name(path)
        if name in paths:
            raise DataError(
                f"{source}: has {name} twice, as {paths[name]} and {path}: give --from the folder of one"
            )
        paths[name] = path
        found[name] = parse_file(f"{source / path}", content)
    if TEST not in found or len(found) == 1:
        missing = TEST if TEST not in found else f"{TRAIN[0]} to {TRAIN[-1]}"
        raise DataError(f"{source}: holds no {missing} of CIFAR-10's binary or python version")
    return {name: found[name] for name in PICKLE_MD5 if name in found}


def read_copy(copy: HubCopy) -> dict[str, Cifar10File]:
    """Read the batches of a copy by name, in order. Raises DataError for images that are not five batches."""
    images, labels = copy.read_images("train", 32, "RGB")
    if len(labels) % len(HUB_BATCHES):
        raise DataError(
            f"{copy.where}: train has {len(labels):,} images, which are not five batches of one size"
        )
    parts = np.split(np.arange(len(labels)), len(HUB_BATCHES))
    found = {
        name: Cifar10File(images[part], labels[part], md5="")
        for name, part in zip(HUB_BATCHES, parts, strict=True)
    }
    found[TEST] = Cifar10File(*copy.read_images("test", 32, "RGB"), md5="")
    return {name: found[name] for name in PICKLE_MD5}


def _find_batch_name(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".bin")


def parse_file(path: str, content: bytes) -> Cifar10File:
    """Parse one file, binary if its name ends in .bin. Raises DataError, whose message begins with `path`."""
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if path.endswith(".bin"):
        if not content or len(content) % RECORD:
            raise DataError(f"{path}: has {len(content):,} bytes, which are no images of {RECORD:,} bytes")
        records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
        labels, pixels = records[:, 0].copy(), records[:, 1:]
        if labels.max() >= CLASSES:
            raise DataError(f"{path}: labels go up to {labels.max()}, not to {CLASSES - 1}")
    else:
        published = PICKLE_MD5[_find_batch_name(path)]
        if md5 != published:
            raise DataError(
                f"{path}: is not the published file: its md5 is {md5}, not {published}; other pickles are not"
                f" loaded, as they can run any code: use {BINARY}"
            )
        batch = pickle.loads(content, encoding="bytes")
        pixels, labels = batch[b"data"], np.array(batch[b"labels"], np.uint8)
    images = np.ascontiguousarray(pixels.reshape(-1, COLOURS, PIXELS).transpose(0, 2, 1))
    return Cifar10File(images, labels, md5)


def describe_differences(found: Mapping[str, Cifar10File]) -> Iterator[str]:
    """Yield the differences from the published files."""
    for name in PICKLE_MD5:
        if name not in found:
            yield f"{name} is missing"
        elif (count := len(found[name].labels)) != ROWS:
            yield f"{name} has {count:,} images, the published file {ROWS:,}"


def fill(config: Cifar10Config, build: DatasetBuild) -> None:
    """Store the images of train and test, in the order of their files."""
    found = read_files(build.sources[0], build.progress) if build.copy is None else read_copy(build.copy)
    described = {}
    for split in ("train", "test"):
        blocks = [block for name, block in found.items() if (name == TEST) == (split == "test")]
        images = np.concatenate([block.images for block in blocks])
        labels = np.concatenate([block.labels for block in blocks])
        described[split] = manifest.save_split(build.folder, split, PIXELS, images=images, labels=labels)
    batches = {name: {"images": len(block.labels), "md5": block.md5} for name, block in found.items()}
    notes = [*describe_differences(found), *_describe_unverified(build.sources, found)]
    build.finish(config, described, batches=batches, notes=notes)


def _describe_unverified(sources: tuple[Path, ...], found: Mapping[str, Cifar10File]) -> Iterator[str]:
    """Yield a note on binary files in a folder: only their archive has a published digest."""
    differ = any(file.md5 != PICKLE_MD5[name] for name, file in found.items())
    for source in (each for each in sources if differ and each.is_dir()):
        yield f"the binary files in {source.name} were not verified: only {BINARY} has a published digest"


def view(
    config: Cifar10Config, arrays: manifest.Arrays, _facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Split]]:
    """Return the facts of the task and the splits for `config`."""
    rules = {"majority": score_majority_rule(arrays["train"]["labels"], arrays["test"]["labels"])}
    look = keep_colours if config.colour == "rgb" else convert_to_grey
    return _describe_task(config, rules), split_images(config, arrays, look, _choose_split(config))


def _choose_split(config: Cifar10Config) -> Callable[[Bytes, Bytes], Split]:
    """Return a function that makes a split of values and labels."""
    if config.pixels == "tokens":
        return PixelTokens
    mean, deviation = (255 * np.asarray(moments) for moments in config.moments)
    return partial(Samples, shift=mean, scale=deviation)


def _describe_task(config: Cifar10Config, rules: Mapping[str, float]) -> TaskInfo:
    tokens = config.pixels == "tokens"
    return TaskInfo(
        kind="tokens" if tokens else "signal",
        vocabulary=LEVELS + 1 if tokens else 0,
        classes=CLASSES,
        longest=PIXELS,
        metric="accuracy",
        chance=1 / CLASSES,
        baselines=rules,
        channels=0 if tokens else COLOURS if config.colour == "rgb" else 1,
    )


CIFAR10: ArchiveDataset[Cifar10Config] = ArchiveDataset(
    name="cifar10",
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(config, {}),
    remotes=(REMOTE,),
    other_digests=frozenset({PICKLED_DIGEST}),
    hub=HUB,
    views=frozenset({"colour", "pixels", "standardisation", "validation", "split_seed"}),
)
