"""ImageNet-1K (ILSVRC 2012) as sequences of patches, read in place: only an index is stored, not the images.

::

    <root>/imagenet/<key>/train/, test/    names, offsets, sizes, checksums and labels of all files
    <root>/imagenet/images/                the images, where imported from the published archives or the Hub
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msbench.datasets import manifest
from msbench.datasets.archive import unpack, unpack_files
from msbench.datasets.archive_dataset import ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import Dataset, Progress, Split, TaskInfo, score_majority_rule
from msbench.datasets.disk import HashCache, find_reread_progress
from msbench.datasets.hub import HubCopy, HubLayout
from msbench.datasets.imagenet import pictures
from msbench.datasets.imagenet import tree as imagenet_tree
from msbench.datasets.imagenet.pictures import PictureSizes
from msbench.datasets.imagenet.split import Index, Numbers, Pictures, join_names
from msbench.datasets.imagenet.tree import ImageTree, Listed
from msbench.datasets.parallel import count_default_processes
from msbench.errors import DataError

if TYPE_CHECKING:  # pydantic stays out of the worker processes
    from msbench.config.data import ImageNetConfig

CLASSES = 1000
CheckedImages = tuple[Listed, PictureSizes]
"""The readable images of a split, and their sizes; the faults are those of the others."""
ABOUT = DatasetDescription(
    what="ILSVRC 2012: folders train and val, or ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and\n"
    "ILSVRC2012_devkit_t12.tar.gz",
    licence="non-commercial research; image-net.org asks for a registration, so msbench cannot fetch it",
    where="https://image-net.org/download-images or Kaggle, then: msbench setup imagenet --from FOLDER",
)


def fill(config: ImageNetConfig, build: DatasetBuild) -> None:
    """Find and check all images, and store the index."""
    tree, notes = _find_tree(build)
    found = {split: _check_images(config, build, tree, getattr(tree, split)) for split in ("train", "test")}
    _refuse_faults(config, tree, found)
    described = {}
    for split, (listed, each) in found.items():
        names, offsets = join_names(listed.names)
        described[split] = manifest.save_split(
            build.folder,
            split,
            config.positions,
            names=names,
            offsets=offsets,
            sizes=each.sizes,
            checksums=each.checksums,
            labels=listed.labels,
        )
    skipped = {split: each.faults for split, (_, each) in found.items() if each.faults}
    build.finish(
        config,
        described,
        images=str(tree.root.resolve()),
        classes=list(tree.classes),
        labels_from=tree.labels_from,
        skipped=skipped,
        notes=[*notes, *imagenet_tree.describe_differences(tree), *_describe_skips(found)],
    )


def _find_tree(build: DatasetBuild) -> tuple[ImageTree, list[str]]:
    images = build.folder.parent / "images"
    if build.copy is not None:
        unpack_copy(build.copy, images)
        return imagenet_tree.find_images(images), []
    (source,) = build.sources
    if not source.is_dir():
        raise DataError(f"{source}: is no folder: name the one that holds train and val, or the archives")
    if not has_archives(source):
        return imagenet_tree.find_images(source), []
    notes = unpack_archives(source, images, build.progress)
    return imagenet_tree.find_images(images, lists=(source,)), notes


def _check_images(
    config: ImageNetConfig, build: DatasetBuild, tree: ImageTree, listed: Listed
) -> CheckedImages:
    """Check the images of a split, and leave out those with faults."""
    seen = pictures.check_files(
        tree.root,
        listed.names,
        full=config.verify == "full",
        processes=build.processes or count_default_processes(),
        progress=build.progress,
    )
    kept = np.array([number for number, name in enumerate(listed.names) if name not in seen.faults], np.int64)
    return (
        Listed([listed.names[number] for number in kept], listed.labels[kept]),
        PictureSizes(seen.sizes[kept], seen.checksums[kept], seen.faults),
    )


def _refuse_faults(config: ImageNetConfig, tree: ImageTree, found: Mapping[str, CheckedImages]) -> None:
    """Raise DataError for images that cannot be decoded, unless they may be left out of train."""
    faults = found["test"][1].faults
    remedy = "put whole copies there"
    if config.unreadable == "refuse":
        faults = found["train"][1].faults | faults
        remedy += "; data.unreadable: skip leaves such files out of train"
    if faults:
        lines = [f"{tree.root / name}: {fault}" for name, fault in faults.items()]
        count = f"{len(lines):,} file{'s' if len(lines) > 1 else ''}"
        raise DataError(
            "\n".join((f"imagenet: {count} cannot be used: {remedy}", *pictures.list_first(lines)))
        )
    if len(np.unique(found["train"][0].labels)) < len(tree.classes):
        raise DataError(f"{tree.root}: a class of train has no image that can be decoded")


def _describe_skips(found: Mapping[str, CheckedImages]) -> Iterator[str]:
    if count := sum(len(each.faults) for _, each in found.values()):
        yield f"left {count:,} images out of train, which cannot be decoded; the manifest names them"


def view(
    config: ImageNetConfig, arrays: manifest.Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Split]]:
    """Return facts and splits; validation is drawn from train. Raises DataError if the images are missing."""
    root = Path(facts["images"])
    if not root.is_dir():
        raise DataError(
            f"{root}: no such folder, but the images of imagenet are read there: put them back, or delete"
            " what was set up (`msbench list datasets` says where) and set it up anew"
        )
    train, test = (Index(root, **arrays[split]) for split in ("train", "test"))
    held_back, rest = _draw_validation(config, len(train.labels))
    splits: dict[str, Split] = {
        "train": Pictures(config, train, rest),
        "validation": Pictures(config, train, held_back),
        "test": Pictures(config, test, np.arange(len(test.labels), dtype=np.int64)),
    }
    rules = {"majority": score_majority_rule(train.labels, test.labels)}
    return _describe_task(config, len(facts["classes"]), rules), splits


def _draw_validation(config: ImageNetConfig, count: int) -> tuple[Numbers, Numbers]:
    """Return numbers of the validation images and of the rest, at least one each, in file order."""
    held_back = min(max(1, int(count * config.validation)), count - 1)
    order = np.random.default_rng(config.split_seed).permutation(count)
    return np.sort(order[:held_back]), np.sort(order[held_back:])


def _describe_task(config: ImageNetConfig, classes: int, rules: Mapping[str, float]) -> TaskInfo:
    return TaskInfo(
        kind="patches",
        vocabulary=0,
        classes=classes,
        longest=config.positions,
        metric="accuracy",
        chance=1 / classes,
        baselines=rules,
        channels=config.channels,
        patch=config.patch,
    )


@dataclass(frozen=True)
class ImageNet(ArchiveDataset["ImageNetConfig"]):
    """The ImageNet dataset; where everything is to be read again, its images are checked too."""

    def open_dataset(self, config: ImageNetConfig, root: Path) -> Dataset:
        """Open the dataset, verified. Raises DataError saying what is wrong and what to run."""
        dataset = super().open_dataset(config, root)
        if (progress := find_reread_progress()) is not None:
            for split in ("train", "test"):
                pictures = dataset.splits[split]
                assert isinstance(pictures, Pictures)
                _refuse_changes(config, pictures.index, progress)
        return dataset


def _refuse_changes(config: ImageNetConfig, index: Index, progress: Progress) -> None:
    """Raise DataError where images differ from those at set-up."""
    names = [index.name(number) for number in range(len(index.labels))]
    seen = pictures.check_files(
        index.root,
        names,
        full=config.verify == "full",
        processes=count_default_processes(),
        progress=progress,
    )
    changed = np.flatnonzero((seen.sizes != index.sizes) | (seen.checksums != index.checksums))
    if len(changed):
        fault = f"imagenet: {len(changed):,} of {len(names):,} images are not those that were set up"
        lines = pictures.list_first([str(index.path(number)) for number in changed.tolist()])
        raise DataError("\n".join((f"{fault}: put them back, or set the images up again", *lines)))


IMAGENET = ImageNet(
    name="imagenet",
    about=ABOUT,
    fill=fill,
    view=view,
    outline=lambda config: _describe_task(config, CLASSES, {}),
    views=frozenset(
        {"image_size", "patch", "crop", "augmentation", "erasing", "repeats", "validation", "split_seed"}
    ),
    ways=frozenset({"repeats"}),
    hub=HubLayout(name="ILSVRC/imagenet-1k", column="image", splits={"train": "train", "test": "validation"}),
)


ARCHIVES = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar"}
MD5 = {
    "train": "1d675b47d978889d74fa0da5fadfb00e",
    "val": "29b22e2961454d5413ddabcf34fc5622",
}


def has_archives(source: Path) -> bool:
    """Return True if `source` is a folder with the archives and without the unpacked images."""
    return not (source / "train").is_dir() and any((source / name).is_file() for name in ARCHIVES.values())


def unpack_archives(source: Path, folder: Path, progress: Progress) -> list[str]:
    """Unpack the archives in `source` into ``train`` and ``val`` of `folder`; return notes on their origin.

    Repeating it changes nothing. Raises DataError where one is missing, truncated or damaged.
    """
    for name in ARCHIVES.values():
        if not (source / name).is_file():
            raise DataError(f"{source / name}: no such file")
    for split, name in ARCHIVES.items():
        unpack(source / name, folder / split, progress, nested=split == "train")
    hashes = HashCache(source)
    found = {name: hashes.digest(source / name, "md5", progress) for name in ARCHIVES.values()}
    return [  # a tar has no checksum of its files
        f"{name} is not the published file: its md5 is {found[name]}, not {MD5[split]}"
        for split, name in ARCHIVES.items()
        if found[name] != MD5[split]
    ]


def unpack_copy(copy: HubCopy, folder: Path) -> None:
    """Write the images of a copy on the Hub, undecoded, into ``train`` and ``val`` as the archives have them.

    Their names on the Hub end in their class. Raises DataError for one without, or with another's label.
    """
    classes: dict[int, str] = {}
    for ours, name in {"train": "train", "test": "val"}.items():
        origin: dict[str, str | int] = {"archive": f"{copy.where} on the Hub", "bytes": 0}
        unpack_files(folder / name, origin, partial(_read_copy, copy, ours, classes), copy.progress)


def _read_copy(copy: HubCopy, split: str, classes: dict[int, str]) -> Iterator[tuple[str, bytes]]:
    """Yield path below train or val and bytes of each image, then the list of classes of val."""
    solution = [f"{','.join(imagenet_tree.CSV_COLUMNS)}\n"]
    for number, (image, label) in enumerate(copy.read_rows(split)):
        named = imagenet_tree.NAMED.fullmatch(Path(image["path"] or "").name)
        if named is None or not image["bytes"]:
            raise copy.fault(
                split, number, "has no bytes, or no name that ends in its class (..._n01440764.JPEG)"
            )
        if classes.setdefault(label, named[2]) != named[2]:
            raise copy.fault(split, number, f"{named[0]} has the label of class {classes[label]}")
        file = f"{named[1]}{named[3]}"
        yield file if split == "test" else f"{named[2]}/{file}", image["bytes"]
        solution.append(f"{named[1]},{named[2]}\n")
    if list(dict(sorted(classes.items())).values()) != sorted(classes.values()):
        raise DataError(f"{copy.where}: the labels do not number the classes in the order of their names")
    if split == "test":
        yield imagenet_tree.CSV, "".join(solution).encode()
