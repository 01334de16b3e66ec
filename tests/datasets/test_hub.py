"""Copies in the layout of the Hugging Face Hub, in little: columns, features, names and order as there."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import image_files
import numpy as np
import pytest
from image_files import wnid
from PIL import Image
from test_mnist import idx
from text_sources import reviews, write_archive

from msbench import datasets as data
from msbench.config.data import Cifar10Config, ImageNetConfig, ImdbConfig, ListOpsConfig, MnistConfig
from msbench.datasets import cifar10, imdb, mnist
from msbench.datasets.cifar10 import TEST, TRAIN
from msbench.datasets.dataset import ignore_progress
from msbench.datasets.hub import HubLayout, find_copy
from msbench.datasets.imdb import IMDB, order_as_tar
from msbench.errors import ConfigError, DataError

library = pytest.importorskip("datasets")
TEXTS = ImdbConfig(min_frequency=1)
IMAGES = ImageNetConfig(image_size=16, patch=8, validation=0.34)
EACH = 130
"""Reviews of each label: more than the 128 that are next to each other."""
Rows = list[tuple[Any, int]]


def write_parquet(path: Path, column: str, content: Any, names: tuple[str, ...], rows: Rows) -> None:
    features = library.Features({column: content, "label": library.ClassLabel(names=list(names))})
    columns = {column: [row[0] for row in rows], "label": [row[1] for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    library.Dataset.from_dict(columns, features=features).to_parquet(str(path))


def write_copy(folder: Path, layout: HubLayout, **splits: Rows) -> Path:
    """Write one parquet file a split, with the column and the features of the Hub."""
    content = library.Value("string") if layout.column == "text" else library.Image()
    names = layout.classes or tuple(
        f"class {number}" for number in range(1 + max(row[1] for row in splits["train"]))
    )
    for name, rows in splits.items():
        path = folder / "plain_text" / f"{name}-00000-of-00001.parquet"
        write_parquet(path, layout.column, content, names, rows)
    return folder


def review_rows(half: str) -> Rows:
    texts = reviews(EACH)
    ratings = {0: ("neg", 1), 1: ("pos", 10)}
    return [
        (texts[f"aclImdb/{half}/{ratings[label][0]}/{number}_{ratings[label][1]}.txt"].decode(), label)
        for label in ratings
        for number in [*reversed(range(128)), *reversed(range(128, EACH))]
    ]


@pytest.fixture
def imdb_copy(tmp_path: Path) -> Path:
    return write_copy(tmp_path / "copy", imdb.HUB, train=review_rows("train"), test=review_rows("test"))


@pytest.fixture
def imdb_root(tmp_path: Path) -> Path:
    """A data folder with the archive's import."""
    archive = write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews(EACH))
    data.setup(TEXTS, tmp_path / "data", source=archive)
    return tmp_path / "data"


def png(pixels: np.ndarray) -> dict[str, Any]:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def draw(seed: int, count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def cifar_rows(seed: int) -> Rows:
    return [(png(pixels), number % 10) for number, pixels in enumerate(draw(seed, 4, 32, 32, 3))]


def cifar_sources(folder: Path) -> tuple[Path, Path]:
    """The binary version, and the copy with its batches in another order."""
    batches = folder / "binary"
    batches.mkdir()
    for seed, name in enumerate((*TRAIN, TEST)):
        pixels = draw(seed, 4, 32, 32, 3).transpose(0, 3, 1, 2).reshape(4, -1)
        content = np.column_stack([np.arange(4, dtype=np.uint8), pixels]).tobytes()
        (batches / f"{name}.bin").write_bytes(content)
    train = [row for number in (4, 3, 2, 5, 1) for row in cifar_rows(number - 1)]
    return batches, write_copy(folder / "copy", cifar10.HUB, train=train, test=cifar_rows(5))


def mnist_sources(folder: Path) -> tuple[Path, Path]:
    files, rows = folder / "files", {}
    files.mkdir()
    for seed, (split, stem) in enumerate({"train": "train", "test": "t10k"}.items()):
        pixels, labels = draw(seed, 20, 28, 28), np.arange(20, dtype=np.uint8) % 10
        (files / f"{stem}-images-idx3-ubyte").write_bytes(idx(pixels))
        (files / f"{stem}-labels-idx1-ubyte").write_bytes(idx(labels))
        rows[split] = [(png(each), int(label)) for each, label in zip(pixels, labels, strict=True)]
    return files, write_copy(folder / "copy", mnist.HUB, **rows)


def imdb_sources(folder: Path) -> tuple[Path, Path]:
    archive = write_archive(folder / "aclImdb_v1.tar.gz", reviews(EACH))
    return archive, write_copy(
        folder / "copy", imdb.HUB, train=review_rows("train"), test=review_rows("test")
    )


def imagenet_rows(tree: Path, split: str) -> Rows:
    """The images of unpacked archives, mixed, with their class at the end of their names."""
    classes, rows = [wnid(3), wnid(7)], []
    for image in sorted((tree / split).rglob("*.JPEG"), key=lambda path: path.name[::-1]):
        number = int(image.stem.rpartition("_")[2])
        label = classes.index(image.parent.name) if split == "train" else number % 2
        named = {"bytes": image.read_bytes(), "path": f"{image.stem}_{classes[label]}.JPEG"}
        rows.append((named, label))
    return rows


def imagenet_sources(folder: Path) -> tuple[Path, Path]:
    archives = image_files.published(folder, [wnid(3), wnid(7)])
    data.setup(IMAGES, folder / "unpacked", source=archives)
    tree, layout = folder / "unpacked" / "imagenet" / "images", data.DATASETS["imagenet"].hub
    assert layout is not None
    return archives, write_copy(
        folder / "copy", layout, train=imagenet_rows(tree, "train"), validation=imagenet_rows(tree, "val")
    )


def take_as_published(patch: pytest.MonkeyPatch, dataset: str) -> None:
    """Take whatever is in a copy for the published data."""
    patch.setattr("msbench.datasets.hub.HubCopy.require_published", lambda *_args: None)
    assert data.DATASETS[dataset].hub is not None


SOURCES: dict[str, tuple[Any, Callable[[Path], tuple[Path, Path]]]] = {
    "imdb": (TEXTS, imdb_sources),
    "cifar10": (Cifar10Config(), cifar_sources),
    "mnist": (MnistConfig(), mnist_sources),
    "imagenet": (IMAGES, imagenet_sources),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_copy_gives_the_digest_of_the_archive(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, write = SOURCES[name]
    archive, copy = write(tmp_path)
    from_archive = data.setup(config, tmp_path / "data", source=archive)
    take_as_published(monkeypatch, name)
    from_copy = data.setup(config, tmp_path / "other", source=Path(f"hub:{copy}"))
    assert from_copy.digest == from_archive.digest
    assert from_copy.manifest["hub"] == data.DATASETS[name].hub.name  # type: ignore[union-attr]
    assert data.setup(config, tmp_path / "other", source=copy).digest == from_archive.digest, (
        "nothing to replace"
    )


@pytest.mark.parametrize("name", ["imdb", "cifar10", "mnist"])
def test_a_copy_and_an_archive_are_compared(name: str, tmp_path: Path) -> None:
    config, write = SOURCES[name]
    archive, copy = write(tmp_path)
    digest = data.setup(config, tmp_path / "data", source=archive).digest
    assert data.setup(config, tmp_path / "data", source=copy).digest == digest
    assert not list((tmp_path / "data" / name).glob(".compared*"))


@pytest.mark.parametrize(("split", "example"), [("train", 3), ("test", 140)])
def test_one_changed_byte_is_refused(split: str, example: int, imdb_copy: Path, imdb_root: Path) -> None:
    rows = review_rows(split)
    rows[example] = (rows[example][0].replace("film", "fiIm"), rows[example][1])
    label, number = divmod(example, EACH)
    number = order_as_tar(EACH)[number]
    write_copy(imdb_copy, imdb.HUB, **{split: rows})
    before = IMDB.stored_digest(TEXTS, imdb_root)
    with pytest.raises(
        DataError, match=r"copy is not what is in .*: example (\d+) of (train|validation|test)"
    ) as error:
        data.setup(TEXTS, imdb_root, source=imdb_copy)
    words = str(error.value).split(": example ")[1].split()
    folder = IMDB.folder_of(TEXTS, imdb_root) / words[2]
    place = int(words[0])
    assert (np.load(folder / "labels.npy")[place], np.load(folder / "ids.npy")[place]) == (label, number)
    assert IMDB.stored_digest(TEXTS, imdb_root) == before


@pytest.mark.parametrize("name", ["cifar10", "mnist"])
def test_one_changed_pixel_is_refused(name: str, tmp_path: Path) -> None:
    config, write = SOURCES[name]
    archive, copy = write(tmp_path)
    data.setup(config, tmp_path / "data", source=archive)
    layout = data.DATASETS[name].hub
    assert layout is not None
    side = (32, 32, 3) if name == "cifar10" else (28, 28)
    pixels = [np.zeros(side, np.uint8) for _ in range(4)]
    write_copy(copy, layout, test=[(png(each), number) for number, each in enumerate(pixels)])
    with pytest.raises(
        DataError, match="example 0 of test is another" if name == "cifar10" else "test has 4 examples"
    ):
        data.setup(config, tmp_path / "data", source=copy)


def test_without_an_archive_only_the_published_data_are_imported(imdb_copy: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train is not that of stanfordnlp/imdb: its sha256 is another"):
        data.setup(TEXTS, tmp_path / "data", source=imdb_copy)
    assert not list((tmp_path / "data").rglob("*.npy"))


def test_reviews_in_another_order_are_refused(imdb_copy: Path, imdb_root: Path) -> None:
    write_copy(imdb_copy, imdb.HUB, train=review_rows("train")[::-1])
    with pytest.raises(DataError, match="train, example 130: is neg after pos"):
        data.setup(TEXTS, imdb_root, source=imdb_copy)


def test_the_order_of_the_tar() -> None:
    assert order_as_tar(3) == [2, 1, 0]
    whole = order_as_tar(12_500)
    assert (whole[0], whole[127], whole[128], whole[-84], whole[-1]) == (127, 0, 255, 12_499, 12_416)
    assert sorted(whole) == list(range(12_500))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def damage(path: Path) -> None:
    """Change bytes of a page, which leaves the file's end whole."""
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)
    path.write_bytes(content)


def rename_column(path: Path) -> None:
    write_parquet(path, "review", library.Value("string"), imdb.LABELS, review_rows("test"))


def swap_classes(path: Path) -> None:
    write_parquet(path, "text", library.Value("string"), imdb.LABELS[::-1], review_rows("test"))


def count_more_shards(path: Path) -> None:
    path.rename(path.with_name("test-00000-of-00002.parquet"))


def copy_elsewhere(path: Path) -> None:
    (path.parents[1] / "again").mkdir()
    shutil.copy(path, path.parents[1] / "again")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (Path.unlink, r"copy: holds no test: no parquet or arrow file is named so"),
        (cut, r"test-00000-of-00001.parquet: is cut short or no parquet file .*: get it again"),
        (damage, r"copy: test, example 0 cannot be read \(.*\): get a whole copy"),
        (
            rename_column,
            r"test has no column 'text', but review, label: a copy of stanfordnlp/imdb has text and",
        ),
        (swap_classes, r"test has the classes pos, neg, not those of stanfordnlp/imdb"),
        (count_more_shards, r"plain_text: holds 1 of the 2 files of test: get all"),
        (copy_elsewhere, r"copy: holds test twice, as .*: name the folder of one"),
    ],
)
def test_a_damaged_copy_is_one_clear_error(
    change: Callable[[Path], object], fault: str, imdb_copy: Path, imdb_root: Path
) -> None:
    change(imdb_copy / "plain_text" / "test-00000-of-00001.parquet")
    with pytest.raises(DataError, match=fault):
        data.setup(TEXTS, imdb_root, source=Path(f"hub:{imdb_copy}"))


@pytest.mark.parametrize(
    ("image", "fault"),
    [
        (png(np.zeros((27, 28), np.uint8)), "is 28 x 27 pixels of L; images are 28 x 28 of L"),
        ({"bytes": png(np.zeros((28, 28), np.uint8))["bytes"][:50], "path": None}, "images are 28 x 28 of L"),
    ],
)
def test_an_image_of_another_form_is_named(image: dict[str, Any], fault: str, tmp_path: Path) -> None:
    whole = [(png(np.zeros((28, 28), np.uint8)), 1)]
    copy = write_copy(tmp_path / "copy", mnist.HUB, train=[*whole, (image, 2)], test=whole)
    with pytest.raises(DataError, match=f"train, example 1: .*{fault}"):
        data.setup(MnistConfig(), tmp_path / "data", source=copy)


@pytest.mark.parametrize(
    ("path", "label", "fault"),
    [
        (None, 0, "example 2: has no bytes, or no name that ends in its class"),
        (
            f"{wnid(7)}_9_{wnid(7)}.JPEG",
            0,
            f"example 2: {wnid(7)}_9_{wnid(7)}.JPEG has the label of class {wnid(3)}",
        ),
        (
            f"{wnid(1)}_9_{wnid(1)}.JPEG",
            2,
            "the labels do not number the classes in the order of their names",
        ),
    ],
)
def test_images_without_their_class_are_refused(
    path: str | None, label: int, fault: str, tmp_path: Path
) -> None:
    jpeg = image_files.jpeg()
    rows = [
        ({"bytes": jpeg, "path": f"{wnid(name)}_1_{wnid(name)}.JPEG"}, number)
        for number, name in enumerate((3, 7))
    ]
    layout = data.DATASETS["imagenet"].hub
    assert layout is not None
    wrong = ({"bytes": jpeg, "path": path}, label)
    copy = write_copy(tmp_path / "copy", layout, train=[*rows, wrong], validation=rows)
    with pytest.raises(DataError, match=fault):
        data.setup(IMAGES, tmp_path / "data", source=copy)
    assert not list((tmp_path / "data").rglob("*.JPEG"))


def load_through_cache(copy: Path, cache: Path) -> Any:
    names = ("train", "test")
    files = {name: str(copy / "plain_text" / f"{name}-00000-of-00001.parquet") for name in names}
    return library.load_dataset("parquet", data_files=files, cache_dir=str(cache))


def test_saved_and_cached_copies_are_read(imdb_copy: Path, imdb_root: Path, tmp_path: Path) -> None:
    loaded = load_through_cache(imdb_copy, tmp_path / "cache")
    loaded.save_to_disk(str(tmp_path / "saved"))
    before = IMDB.stored_digest(TEXTS, imdb_root)
    for folder in (tmp_path / "saved", Path(f"hub:{tmp_path / 'cache'}")):
        assert data.setup(TEXTS, imdb_root, source=folder).manifest["digest"]
        assert IMDB.stored_digest(TEXTS, imdb_root) == before


def test_a_name_is_read_offline_from_the_cache(imdb_copy: Path, imdb_root: Path, tmp_path: Path) -> None:
    """`stanfordnlp/imdb` in the library's own cache, as it is after one load with a network."""
    loaded = load_through_cache(imdb_copy, tmp_path / "first")
    made = Path(loaded["train"].cache_files[0]["filename"]).parent
    cached = tmp_path / "home" / "datasets" / "stanfordnlp___imdb" / "plain_text" / "0.0.0" / "e6281661"
    cached.mkdir(parents=True)
    for split in ("train", "test"):
        shutil.copy(made / f"parquet-{split}.arrow", cached / f"imdb-{split}.arrow")
    facts = json.loads((made / "dataset_info.json").read_text())
    facts |= {"config_name": "plain_text", "dataset_name": "imdb"}
    (cached / "dataset_info.json").write_text(json.dumps(facts))
    words = [sys.executable, "-m", "msbench", "setup", "--quiet", "--from", "hub"]
    changed = {"HF_HOME": str(tmp_path / "home"), "MSBENCH_OFFLINE": "1", "MSBENCH_DATA": str(imdb_root)}
    done = [
        subprocess.run([*words, *name], env={**os.environ, **changed}, capture_output=True, text=True)
        for name in (["imdb", "--set", "data.min_frequency=1"], ["mnist"])
    ]
    assert done[0].returncode == 0, done[0].stderr
    assert done[1].returncode == 6
    assert "ylecun/mnist: train cannot be read" in done[1].stderr
    assert "load it once with a network, or give its parquet files: --from hub:FOLDER" in done[1].stderr


def test_a_missing_extra_says_how_to_install_it(
    imdb_copy: Path, imdb_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"datasets is not installed: pip install 'msssm-bench\[hub\]'"):
        data.setup(TEXTS, imdb_root, source=imdb_copy)


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("hub:no/such/folder", "no/such/folder: is no folder, and no name on the Hub"),
        ("hub:a b", "a b: is no folder"),
    ],
)
def test_what_is_no_copy_is_named(source: str, fault: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=fault):
        data.setup(TEXTS, tmp_path, source=Path(source))


def test_other_datasets_are_not_read_from_the_hub(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="listops is not read from the Hub"):
        data.setup(ListOpsConfig(source="release"), tmp_path, source=Path("hub"))


def test_an_archive_and_other_folders_are_no_copies(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for source in (tmp_path, tmp_path / "aclImdb_v1.tar.gz", tmp_path / "nothing"):
        assert find_copy(source, imdb.HUB, "imdb", ignore_progress) is None
    named = find_copy(Path("hub:imdb"), imdb.HUB, "imdb", ignore_progress)
    assert named is not None
    assert named.where == "imdb"


def test_the_library_is_loaded_only_when_it_is_needed() -> None:
    code = "import sys, msbench.datasets; assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
