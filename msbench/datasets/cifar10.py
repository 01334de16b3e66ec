"""CIFAR-10 (Krizhevsky 2009) as sequences of 1024 pixels: the paper's sCIFAR, and Long Range Arena's Image.

All images are stored once, in colour as published; colour, standardisation and split are chosen on opening.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import cifar10_batches, manifest
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.cifar10_batches import CLASSES, COLOURS, PIXELS, TEST
from msbench.datasets.dataset import Samples, Split, TaskInfo, score_majority_rule
from msbench.datasets.download import RemoteFile
from msbench.datasets.pixels import LEVELS, Bytes, PixelTokens, convert_to_grey, keep_colours, split_images

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import Cifar10Config

ABOUT = DatasetDescription(
    what="cifar-10-python.tar.gz, or the folder cifar-10-batches-py in it",
    licence="none is stated (research data; cite Krizhevsky 2009), so msbench does not pass it on",
    where="https://www.cs.toronto.edu/~kriz/cifar.html, then: msbench setup cifar10 --from PATH",
)
REMOTE = RemoteFile(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    name=cifar10_batches.ARCHIVE,
    size=None,
    digest="md5:c58f30108f718f92721af3b95e74349a",
    kind="gzip",
    dataset="cifar10",
)


def fill(config: Cifar10Config, making: DatasetBuild) -> None:
    """Store the images of train and test, in the order of their files."""
    found = cifar10_batches.read(making.sources[0], making.progress)
    described = {}
    for split in ("train", "test"):
        blocks = [block for name, block in found.items() if (name == TEST) == (split == "test")]
        images = np.concatenate([block.images for block in blocks])
        labels = np.concatenate([block.labels for block in blocks])
        manifest.save_array(making.folder, split, "images", images)
        manifest.save_array(making.folder, split, "labels", labels)
        described[split] = manifest.describe_split(labels, np.full(len(labels), PIXELS, np.int64))
    batches = {name: {"images": len(block.labels), "md5": block.md5} for name, block in found.items()}
    making.finish(config, described, batches=batches, notes=list(cifar10_batches.notes(found)))


def view(
    config: Cifar10Config, arrays: manifest.Arrays, _facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Split]]:
    """Return the facts of the task and the splits for `config`."""
    rules = {"majority": score_majority_rule(arrays["train"]["labels"], arrays["test"]["labels"])}
    look = keep_colours if config.colour == "rgb" else convert_to_grey
    return _info(config, rules), split_images(config, arrays, look, _splitting(config))


def outline(config: Cifar10Config) -> TaskInfo:
    """Return the facts known without data: all but the accuracy of trivial rules."""
    return _info(config, {})


def _splitting(config: Cifar10Config) -> Callable[[Bytes, Bytes], Split]:
    """Return a function that makes a split of values and labels."""
    if config.pixels == "tokens":
        return PixelTokens
    mean, deviation = (255 * np.asarray(moments) for moments in config.moments)
    return partial(Samples, shift=mean, scale=deviation)


def _info(config: Cifar10Config, rules: Mapping[str, float]) -> TaskInfo:
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
    version=1,
    about=ABOUT,
    fill=fill,
    view=view,
    outline=outline,
    remotes=(REMOTE,),
    views=frozenset({"colour", "pixels", "standardisation", "validation", "split_seed"}),
)
