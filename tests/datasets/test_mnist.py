import gzip
import hashlib
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from msbench import datasets as data
from msbench.config.data import MnistConfig
from msbench.datasets.dataset import SPLITS
from msbench.datasets.mnist import FILES, MNIST, find_files, parse_idx
from msbench.errors import DataError

PERMUTED = MnistConfig(permuted=True)


def idx(array: np.ndarray, magic: int | None = None) -> bytes:
    word = 0x0800 | array.ndim if magic is None else magic
    return struct.pack(f">{1 + array.ndim}I", word, *array.shape) + array.tobytes()


def images(count: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)


def labels(count: int) -> np.ndarray:
    return (np.arange(count) % 10).astype(np.uint8)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    """20 images to train and 10 to test: two files plain, two compressed, one with a dot in its name."""
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(idx(images(20)))
    (folder / "train-labels.idx1-ubyte").write_bytes(idx(labels(20)))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images(10))))
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels(10))))
    return folder


def test_all_is_read_and_reported(imported: Path, tmp_path: Path) -> None:
    dataset = data.setup(MnistConfig(), tmp_path / "data", source=imported)
    assert [len(dataset.splits[name]) for name in SPLITS] == [18, 2, 10]
    info, outline = dataset.info, data.outline(MnistConfig())
    assert (info.kind, info.longest, info.channels) == (outline.kind, 784, 1)
    batch = dataset.splits["test"].batch(np.arange(10))
    expected = (images(10).reshape(10, 784, 1) / 255 - 0.1307) / 0.3081
    np.testing.assert_allclose(batch.inputs, expected, atol=2e-6)
    assert batch.labels.tolist() == list(range(10))
    counts = {name: dataset.manifest["splits"][name]["labels"] for name in SPLITS}
    assert sum(counts["train"].values()) == 18
    assert Counter(counts["train"]) + Counter(counts["validation"]) == dict.fromkeys(map(str, range(10)), 2)
    assert "train-images-idx3-ubyte has 20 entries, the published file 60,000" in dataset.manifest["notes"]


def test_a_permutation_is_one_for_all(imported: Path, tmp_path: Path) -> None:
    plain = data.setup(MnistConfig(), tmp_path / "data", source=imported)
    mixed = data.open_dataset(PERMUTED, tmp_path / "data")
    assert mixed.digest != plain.digest
    order = np.random.RandomState(42).permutation(784)
    for name in SPLITS:
        everything = np.arange(len(plain.splits[name]))
        given, moved = (each.splits[name].batch(everything) for each in (plain, mixed))
        assert np.array_equal(moved.inputs, given.inputs[:, order])
        assert np.array_equal(moved.labels, given.labels)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("train-images-idx3-ubyte", idx(images(20))[:-1], "bytes instead of"),
        ("train-images-idx3-ubyte", idx(images(19)), "has 19 images, but train-labels.idx1-ubyte 20 labels"),
        ("train-images-idx3-ubyte", idx(np.zeros((20, 28, 27), np.uint8)), "images are 28 x 27, not 28 x 28"),
        ("train-labels.idx1-ubyte", idx(labels(20) + np.uint8(1)), "label 9 is 10, no digit"),
        ("t10k-images-idx3-ubyte.gz", gzip.compress(idx(images(10)))[:-9], "is cut short or damaged"),
        ("t10k-labels-idx1-ubyte.gz", gzip.compress(idx(images(10))), "begins with 0x00000803"),
    ],
)
def test_a_bad_file_is_named(imported: Path, tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (imported / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{fault}"):
        data.setup(MnistConfig(), tmp_path / "data", source=imported)
    assert not data.is_ready(MnistConfig(), tmp_path / "data")


def test_a_folder_as_torchvision_leaves_it(imported: Path, tmp_path: Path) -> None:
    for file in FILES:
        (path,) = imported.glob(f"{file.stem.replace('-idx', '?idx')}*")
        content = path.read_bytes()
        path.unlink()
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        raw = tmp_path / "root" / "MNIST" / "raw"
        raw.mkdir(parents=True, exist_ok=True)
        (raw / file.stem).write_bytes(plain)
        (raw / f"{file.stem}.gz").write_bytes(gzip.compress(plain))
    (tmp_path / "root" / "MNIST" / "processed").mkdir()
    (tmp_path / "root" / ".DS_Store").touch()
    (tmp_path / "root" / "MNIST" / ".#notes.txt").symlink_to("somebody@host.1:2")
    for source in (raw, tmp_path / "root"):
        assert find_files((source,)) == {file.stem: raw / f"{file.stem}.gz" for file in FILES}
        dataset = data.setup(MnistConfig(), tmp_path / source.name / "data", source=source)
        assert len(dataset.splits["test"]) == 10


def test_each_file_must_be_there_and_one(imported: Path) -> None:
    path = imported / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(images(21))))
    with pytest.raises(DataError, match=r"-ubyte\.gz and .*-ubyte differ: give --from"):
        find_files((imported,))
    (imported / "other").mkdir()
    path.rename(imported / "other" / "train-images-idx3-ubyte")  # such as FashionMNIST's next to it
    with pytest.raises(DataError, match="differ: give --from"):
        find_files((imported,))
    for path in imported.rglob("train-images*"):
        path.unlink()
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte, plain .* must be there, and is nowhere"):
        find_files((imported,))


def test_fetched_files_are_found_by_their_names(imported: Path) -> None:
    assert find_files(tuple(imported.iterdir())) == find_files((imported,))
    assert [remote.name for remote in MNIST.remotes] == [f"{file.stem}.gz" for file in FILES]
    assert len({remote.digest for remote in MNIST.remotes}) == 4


def test_real_digits(sample: Callable[..., Path], tmp_path: Path) -> None:
    folder = sample("mnist")
    dataset = data.setup(MnistConfig(), tmp_path, source=folder)
    assert [len(dataset.splits[name]) for name in SPLITS] == [54_000, 6_000, 10_000]
    assert dataset.info.baselines == {"majority": 0.1135}
    train = dataset.splits["train"].batch(np.arange(0, 54_000, 10)).inputs
    assert abs(train.mean()) < 0.01
    assert abs(train.std() - 1) < 0.01
    given = [
        name
        for name, file in ((f"{file.stem}.gz", file) for file in FILES)
        if _md5(folder / name) != file.md5
    ]
    assert [note.partition(" ")[0] for note in dataset.manifest["notes"]] == given


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("shape", [(4,), (2, 3, 5)])
def test_the_shape_is_in_the_file(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(parse_idx(idx(array), len(shape)), array)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "has 0 bytes, fewer than its header of 8"),
        (idx(np.zeros(3, np.uint8))[:-1], "has 10 bytes instead of 11 for 3"),
        (idx(np.zeros(3, np.uint8)) + b"x", "has 12 bytes instead of 11 for 3"),
        (idx(np.zeros(3, np.uint8), magic=0x0D01), "begins with 0x00000d01, not 0x00000801"),
        (idx(np.zeros((1, 1, 1), np.uint8)), "begins with 0x00000803, not 0x00000801"),
    ],
)
def test_what_is_no_such_file_is_refused(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_idx(content, 1)
