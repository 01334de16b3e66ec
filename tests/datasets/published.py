"""Every dataset as it is published, in little: its archives, what is in them, and what it is run with."""

import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import image_files
from ecg_files import write_small
from release_images import write_release
from test_cifar10 import FOLDER as BATCHES
from test_cifar10 import archive, records, write
from test_mnist import idx, images, labels
from text_sources import pairs, reviews, write_archive

from msbench.datasets.cifar10 import TEST, TRAIN
from msbench.datasets.mnist import FILES
from msbench.datasets.pathfinder.parameters import find_preset

Counts = tuple[int, int, int]
"""Examples to train, validate and test on."""


@dataclass(frozen=True)
class Published:
    """A dataset in little.

    `build` writes what is published into a folder and says where: the archives in the order of the dataset's
    remotes, or one to bring; nothing for what is generated. `sets` choose the data; `implied` are settings
    that set-up has from ``--from``, or does without. `counts` are of each task.
    """

    dataset: str
    build: Callable[[Path], list[Path]]
    suite: str
    counts: dict[str, Counts]
    sets: tuple[str, ...] = ()
    implied: tuple[str, ...] = ()
    fetched: bool = False


def imdb(folder: Path) -> list[Path]:
    return [write_archive(folder / "aclImdb_v1.tar.gz", reviews())]


def aan(folder: Path) -> list[Path]:
    others = {"lra_release/listops-1000/basic_test.tsv": b"Source\tTarget\n"}
    return [write_archive(folder / "lra_release.gz", {**others, **pairs()})]


def cifar10(folder: Path) -> list[Path]:
    for number, name in enumerate(TRAIN):
        write(folder / BATCHES, name, records(20, labels=[(number + row) % 10 for row in range(20)]))
    write(folder / BATCHES, TEST, records(10))
    (folder / BATCHES / "batches.meta.txt").write_text("airplane\n")
    (folder / BATCHES / "readme.html").write_text("<html></html>")
    return [archive(folder / BATCHES, folder / "cifar-10-binary.tar.gz")]


def mnist(folder: Path) -> list[Path]:
    counts = {"train": 20, "test": 10}
    for file in FILES:
        made = images if file.dimensions == 3 else labels
        (folder / f"{file.stem}.gz").write_bytes(gzip.compress(idx(made(counts[file.split]))))
    return [folder / f"{file.stem}.gz" for file in FILES]


def imagenet(folder: Path) -> list[Path]:
    return [image_files.published(folder, [image_files.wnid(3), image_files.wnid(7)])]


def generated(_folder: Path) -> list[Path]:
    return []


def pathfinder(size: int, count: int) -> Callable[[Path], list[Path]]:
    def build(folder: Path) -> list[Path]:
        hard = "curv_contour_length_14"
        inner = f"lra_release/lra_release/pathfinder{size}"
        write_release(folder / inner / hard, find_preset(size, hard), 0, count)
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in _files(folder)}
        return [write_archive(folder / "lra_release.gz", files)]

    return build


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


CODES = (
    "{'NORM': 100.0, 'SR': 0.0}",
    "{'IMI': 100.0, 'LVOLT': 0.0, 'AFIB': 0.0}",
    "{'NDT': 50.0, 'SR': 0.0}",
    "{'LVOLT': 0.0}",
)
FOLDS = (1, 8, 9, 10)
"""Of which the first two are trained on."""


def ptbxl(folder: Path) -> list[Path]:
    numbered = enumerate(((codes, fold) for fold in FOLDS for codes in CODES), start=1)
    records = [(number, codes, fold) for number, (codes, fold) in numbered]
    write_small(folder / "zip" / "ptb-xl-a-large-publicly-available-1.0.3", records=records)
    return [Path(shutil.make_archive(str(folder / "ptb-xl-1.0.3"), "zip", folder / "zip"))]


DIAGNOSED = (6, 3, 3)
PUBLISHED = {
    "recall": Published(
        "recall",
        generated,
        "laptop-recall",
        {"recall": (40, 10, 14)},
        (
            "data.train=40",
            "data.validation=10",
            "data.test=14",
            # Those of the suite are not those of the dataset.
            "data.pairs=4",
            "data.test_distances=[25, 50]",
        ),
    ),
    "imdb": Published("imdb", imdb, "lra", {"text": (36, 4, 40)}, fetched=True),
    "aan": Published("aan", aan, "lra", {"retrieval": (2, 2, 2)}),
    "cifar10-rgb": Published("cifar10", cifar10, "scifar", {"scifar": (90, 10, 10)}, fetched=True),
    "cifar10-grey": Published(
        "cifar10", cifar10, "lra", {"image": (90, 10, 10)}, ("data.colour=grey",), fetched=True
    ),
    "mnist": Published("mnist", mnist, "smnist", {"smnist": (18, 2, 10)}, fetched=True),
    "imagenet": Published(
        "imagenet", imagenet, "imagenet", {"imagenet": (5, 1, 3)}, implied=("data.image_size=32",)
    ),
    "pathfinder32": Published(
        "pathfinder", generated, "lra", {"pathfinder": (32, 4, 4)}, ("data.images=40",)
    ),
    "pathfinder128": Published(
        "pathfinder", generated, "lra", {"pathx": (8, 1, 1)}, ("data.images=10", "data.size=128")
    ),
    "pathfinder32-release": Published(
        "pathfinder", pathfinder(32, 20), "lra", {"pathfinder": (16, 2, 2)}, implied=("data.source=release",)
    ),
    "pathfinder128-release": Published(
        "pathfinder",
        pathfinder(128, 10),
        "lra",
        {"pathx": (8, 1, 1)},
        ("data.size=128",),
        ("data.source=release",),
    ),
    "ptbxl": Published(
        "ptbxl",
        ptbxl,
        "ptbxl",
        {
            "all": (8, 4, 4),
            **dict.fromkeys(("diagnostic", "subdiagnostic", "superdiagnostic"), DIAGNOSED),
            "form": DIAGNOSED,
            "rhythm": DIAGNOSED,
        },
        fetched=True,
    ),
}
