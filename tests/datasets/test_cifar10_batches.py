import hashlib
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from msbench.datasets import cifar10_batches
from msbench.datasets.cifar10_batches import ARCHIVE, MD5, notes, parse, read
from msbench.errors import DataError

FOLDER = "cifar-10-batches-py"


def content(rows: int = 3, **changed: Any) -> dict[bytes, Any]:
    data = np.arange(rows * 3072, dtype=np.uint32).astype(np.uint8).reshape(rows, 3072)
    batch = {b"data": data, b"labels": [row % 10 for row in range(rows)], b"filenames": [b"a"] * rows}
    return {**batch, **{name.encode(): value for name, value in changed.items()}}


def write(folder: Path, name: str, batch: Any = None, protocol: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(pickle.dumps(content() if batch is None else batch, protocol))
    return folder


def both(folder: Path) -> Path:
    write(folder, "data_batch_1")
    return write(folder, "test_batch")


def archive(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, FOLDER)
    return path


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_colours_of_a_pixel_come_together(tmp_path: Path, protocol: int) -> None:
    write(tmp_path, "data_batch_1", protocol=protocol)
    write(tmp_path, "test_batch", protocol=protocol)
    block = read(tmp_path)["data_batch_1"]
    planes = content()[b"data"].reshape(3, 3, 32, 32)
    assert block.images.shape == (3, 1024, 3)
    assert np.array_equal(block.images[1].reshape(32, 32, 3)[5, 7], planes[1, :, 5, 7])
    assert block.labels.tolist() == [0, 1, 2]


def test_keys_may_be_texts(tmp_path: Path) -> None:
    batch = {key.decode(): value for key, value in content().items()}
    write(tmp_path, "data_batch_1", batch)
    write(tmp_path, "test_batch", batch)
    assert read(tmp_path)["test_batch"].labels.tolist() == [0, 1, 2]


def test_the_archive_and_every_folder_will_do(tmp_path: Path) -> None:
    inner = both(tmp_path / "home" / FOLDER)
    places = [inner, inner.parent, archive(inner, tmp_path / "any.name")]
    holder = tmp_path / "downloads"
    holder.mkdir()
    shutil.copyfile(places[-1], holder / ARCHIVE)
    for place in (*places, holder):
        assert list(read(place)) == ["data_batch_1", "test_batch"]


def test_files_are_in_the_published_order(tmp_path: Path) -> None:
    for name in reversed(list(MD5)):
        write(tmp_path, name)
    assert list(read(tmp_path)) == [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def test_differences_from_the_published_files_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10_batches, "ROWS", 4)
    both(tmp_path)
    write(tmp_path, "data_batch_2", content(4))
    md5 = hashlib.md5((tmp_path / "data_batch_2").read_bytes()).hexdigest()
    told = list(notes(read(tmp_path)))
    assert told[0] == "data_batch_1 has 3 images, the published file 4"
    assert told[1] == f"data_batch_2 is not the published file: its md5 is {md5}, not {MD5['data_batch_2']}"
    assert told[2:] == [
        *(f"data_batch_{number} is missing" for number in (3, 4, 5)),
        "test_batch has 3 images, the published file 4",
    ]


@pytest.mark.parametrize(
    ("name", "missing"), [("test_batch", "data_batch_1 to data_batch_5"), ("data_batch_4", "test_batch")]
)
def test_a_split_without_files_is_an_error(tmp_path: Path, name: str, missing: str) -> None:
    with pytest.raises(DataError, match=f"holds no {missing} of CIFAR-10"):
        read(write(tmp_path, name))


def test_two_copies_are_both_named(tmp_path: Path) -> None:
    both(tmp_path / "a")
    write(tmp_path / "b", "test_batch", content(4))
    with pytest.raises(DataError, match=r"has test_batch twice, as a/test_batch and b/test_batch"):
        read(tmp_path)


class Harmful:
    """What a pickle can do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    for victim in (Harmful(tmp_path / "harm"), content(data=Harmful(tmp_path / "harm"))):
        with pytest.raises(DataError, match=r"where: is no CIFAR-10 batch: it asks for pathlib\.\w+"):
            parse("where", pickle.dumps(victim))
    assert not (tmp_path / "harm").exists()


def folded(depth: int) -> list[Any]:
    """A thousand references in each of so many lists: a thousand to that power numbers in some kilobytes."""
    return [0] * 1000 if depth == 1 else [folded(depth - 1)] * 1000


@pytest.mark.parametrize(
    ("batch", "fault"),
    [
        (content(labels=folded(5)), "labels are not whole numbers"),
        (content(data=folded(5)), "data are not whole numbers"),
        ([], "is no CIFAR-10 batch: it has no data"),
        ({b"labels": [1]}, "is no CIFAR-10 batch: it has no data"),
        ({b"data": np.zeros((1, 3072), np.uint8)}, "is no CIFAR-10 batch: it has no labels"),
        (content(labels=[0, 1]), "2 labels do not go with 3 images"),
        (content(labels=[0, 1, 10]), "labels go from 0 to 10, not from 0 to 9"),
        (content(labels=[0, -1, 1]), "labels go from -1 to 1, not from 0 to 9"),
        (content(labels=[0, 1.5, 1]), "labels are not whole numbers"),
        (content(labels=[0, [1], 1]), "labels are not whole numbers"),
        (
            content(data=np.zeros((3, 3071), np.uint8)),
            r"data must be uint8 \(n, 3072\), not uint8 \(3, 3071\)",
        ),
        (content(data=np.zeros((3, 3072), np.int16)), r"data must be uint8 \(n, 3072\), not int16"),
        (content(0, labels=np.zeros(0, np.int64)), "0 labels do not go with 0 images"),
    ],
)
def test_what_is_no_batch_is_named(batch: Any, fault: str) -> None:
    with pytest.raises(DataError, match=f"^where: {fault}"):
        parse("where", pickle.dumps(batch, 3))


@pytest.mark.parametrize("keep", [0, 1, 100, 5000])
def test_a_cut_file_is_named(keep: int) -> None:
    with pytest.raises(DataError, match="where: is no CIFAR-10 batch"):
        parse("where", pickle.dumps(content(), 2)[:keep])
