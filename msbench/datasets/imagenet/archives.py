"""The published archives of ImageNet, unpacked once: 144 GB, from which the images are then read in place."""

from collections.abc import Iterator
from pathlib import Path

from msbench.datasets.archives import unpack
from msbench.datasets.dataset import Progress
from msbench.datasets.disk import HashCache
from msbench.errors import DataError

ARCHIVES = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar"}
MD5 = {
    "train": "1d675b47d978889d74fa0da5fadfb00e",
    "val": "29b22e2961454d5413ddabcf34fc5622",
}


def holds_archives(source: Path) -> bool:
    """Return True if `source` is a folder with the archives and without the unpacked images."""
    return not (source / "train").is_dir() and any((source / name).is_file() for name in ARCHIVES.values())


def unpacked(source: Path, folder: Path, progress: Progress) -> list[str]:
    """Unpack the archives in `source` into ``train`` and ``val`` of `folder`; return notes on their origin.

    Repeating it changes nothing. Raises DataError where one is missing, truncated or damaged.
    """
    for name in ARCHIVES.values():
        if not (source / name).is_file():
            raise DataError(f"{source / name}: no such file")
    for split, name in ARCHIVES.items():
        unpack(source / name, folder / split, progress, nested=split == "train")
    return list(_notes(source, progress))


def _notes(source: Path, progress: Progress) -> Iterator[str]:
    """Yield a note for each archive with another MD5 than published: a tar has no checksum of its files."""
    stamps = HashCache(source)
    for split, name in ARCHIVES.items():
        md5 = stamps.digest(source / name, "md5", progress)
        if md5 != MD5[split]:
            yield f"{name} is not the published file: its md5 is {md5}, not {MD5[split]}"
