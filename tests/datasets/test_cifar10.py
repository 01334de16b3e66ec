import hashlib
import pickle
import shutil
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from msbench import datasets as data
from msbench.config.data import Cifar10Config
from msbench.datasets import cifar10
from msbench.datasets.cifar10 import (
    BINARY,
    CIFAR10,
    PICKLE_MD5,
    PICKLED,
    PICKLED_DIGEST,
    TEST,
    TRAIN,
    describe_differences,
    parse_file,
)
from msbench.datasets.dataset import SPLITS, ignore_progress
from msbench.errors import DataError


def read_files(source: Path) -> dict[str, cifar10.Cifar10File]:
    return cifar10.read_files(source, ignore_progress)


FOLDER, PICKLED_FOLDER = "cifar-10-batches-bin", "cifar-10-batches-py"
DIGEST = "1475cf534fd5f0bcfdef13d7c7ed6467979ade82ab837d0454ffdb7efc2a3267"
GREY = Cifar10Config(colour="grey")
TOKENS = Cifar10Config(colour="grey", pixels="tokens")


def pixels_of(rows: int) -> Any:
    return np.arange(rows * 3072, dtype=np.uint32).astype(np.uint8).reshape(rows, 3072)


def records(rows: int = 3, labels: list[int] | None = None) -> bytes:
    """The bytes of a file of the binary version."""
    numbers = np.array(labels or [row % 10 for row in range(rows)], np.uint8)
    return np.column_stack([numbers, pixels_of(rows)]).tobytes()


def write(folder: Path, name: str, content: bytes | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.bin").write_bytes(records() if content is None else content)
    return folder


def both(folder: Path) -> Path:
    write(folder, TRAIN[0])
    return write(folder, TEST)


def write_pickles(folder: Path, patch: pytest.MonkeyPatch, rows: int = 3) -> Path:
    """Write every file of the pickled version; their digests are taken for the published ones."""
    folder.mkdir(parents=True, exist_ok=True)
    batch = {
        b"data": pixels_of(rows),
        b"labels": [row % 10 for row in range(rows)],
        b"filenames": [b"a"] * rows,
    }
    for name in PICKLE_MD5:
        (folder / name).write_bytes(pickle.dumps(batch, 2))
    take_as_published(folder, patch)
    return folder


def take_as_published(folder: Path, patch: pytest.MonkeyPatch) -> None:
    digests = {
        path.name: hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name in PICKLE_MD5
    }
    patch.setattr(cifar10, "PICKLE_MD5", {**PICKLE_MD5, **digests})


def archive(folder: Path, path: Path) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, folder.name)
    return path


def test_both_versions_give_the_same_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PICKLE_MD5:
        write(tmp_path / FOLDER, name, records(12))
    binary = read_files(archive(tmp_path / FOLDER, tmp_path / BINARY))
    write_pickles(tmp_path / PICKLED_FOLDER, monkeypatch, 12)
    pickled = read_files(archive(tmp_path / PICKLED_FOLDER, tmp_path / PICKLED))
    assert list(binary) == list(pickled) == [*TRAIN, TEST]
    for name, file in binary.items():
        assert np.array_equal(file.images, pickled[name].images)
        assert np.array_equal(file.labels, pickled[name].labels)
        assert file.images.dtype == file.labels.dtype == np.uint8
    digests = {
        data.setup(Cifar10Config(), tmp_path / folder / "data", source=tmp_path / folder).digest
        for folder in (FOLDER, PICKLED_FOLDER)
    }
    assert len(digests) == 1


def test_the_digest_of_the_data_is_that_of_earlier_releases(imported: Path, tmp_path: Path) -> None:
    """The run ids hold it, whichever version was imported."""
    dataset = data.setup(Cifar10Config(), tmp_path / "data", source=imported)
    assert dataset.digest == DIGEST


def test_colours_of_a_pixel_come_together(tmp_path: Path) -> None:
    block = read_files(both(tmp_path))[TRAIN[0]]
    planes = pixels_of(3).reshape(3, 3, 32, 32)
    assert block.images.shape == (3, 1024, 3)
    assert np.array_equal(block.images[1].reshape(32, 32, 3)[5, 7], planes[1, :, 5, 7])
    assert block.labels.tolist() == [0, 1, 2]


def test_the_archive_and_every_folder_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = both(tmp_path / "home" / FOLDER)
    places = [inner, inner.parent, archive(inner, tmp_path / "any.name")]
    pickles = archive(
        write_pickles(tmp_path / "pickles" / PICKLED_FOLDER, monkeypatch), tmp_path / "any.pickles"
    )
    for name, source in ((BINARY, places[-1]), (PICKLED, pickles)):
        holder = tmp_path / f"downloads of {name}"
        holder.mkdir()
        shutil.copyfile(source, holder / name)
        places.append(holder)
    for place in places:
        assert {TRAIN[0], TEST} <= set(read_files(place))


def test_files_are_in_the_published_order(tmp_path: Path) -> None:
    for name in reversed(list(PICKLE_MD5)):
        write(tmp_path, name)
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    assert list(read_files(tmp_path)) == names


def test_differences_from_the_published_files_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cifar10, "ROWS", 4)
    both(tmp_path)
    write(tmp_path, "data_batch_2", records(4))
    assert list(describe_differences(read_files(tmp_path))) == [
        "data_batch_1 has 3 images, the published file 4",
        *(f"data_batch_{number} is missing" for number in (3, 4, 5)),
        "test_batch has 3 images, the published file 4",
    ]


def test_binary_files_of_a_folder_are_reported_as_unverified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both(tmp_path / FOLDER)
    dataset = data.setup(Cifar10Config(), tmp_path / "binary", source=tmp_path / FOLDER)
    assert dataset.manifest["notes"][-1].startswith(f"the binary files in {FOLDER} were not verified")
    write_pickles(tmp_path / PICKLED_FOLDER, monkeypatch)
    dataset = data.setup(Cifar10Config(), tmp_path / "pickled", source=tmp_path / PICKLED_FOLDER)
    assert not [note for note in dataset.manifest["notes"] if "not verified" in note]


def test_a_file_of_a_similar_name_does_not_hide_the_archive(tmp_path: Path) -> None:
    both(tmp_path / "files" / FOLDER)
    (tmp_path / "given").mkdir()
    archive(tmp_path / "files" / FOLDER, tmp_path / "given" / BINARY)
    (tmp_path / "given" / "test_batch.txt").write_text("notes", encoding="utf-8")
    assert TEST in read_files(tmp_path / "given")


@pytest.mark.parametrize("name", [BINARY, PICKLED])
def test_an_archive_with_another_digest_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    both(tmp_path / FOLDER)
    write_pickles(tmp_path / PICKLED_FOLDER, monkeypatch)
    source = archive(tmp_path / {BINARY: FOLDER, PICKLED: PICKLED_FOLDER}[name], tmp_path / name)
    dataset = data.setup(Cifar10Config(), tmp_path / "data", source=source)
    assert dataset.manifest["notes"][0] == f"{name} is not the published file: its digest is another"


@pytest.mark.parametrize(
    ("name", "missing"), [("test_batch", "data_batch_1 to data_batch_5"), ("data_batch_4", "test_batch")]
)
def test_a_split_without_files_is_an_error(tmp_path: Path, name: str, missing: str) -> None:
    with pytest.raises(DataError, match=f"holds no {missing} of CIFAR-10"):
        read_files(write(tmp_path, name))


def test_two_copies_are_both_named(tmp_path: Path) -> None:
    both(tmp_path / "a")
    write(tmp_path / "b", "test_batch", records(4))
    with pytest.raises(DataError, match=r"has test_batch twice, as a/test_batch.bin and b/test_batch.bin"):
        read_files(tmp_path)


class Harmful:
    """What a pickle can do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[Path]]:
        return Path.touch, (self.path,)


def test_a_pickle_that_is_not_the_published_one_is_not_loaded(tmp_path: Path) -> None:
    content = pickle.dumps({b"data": Harmful(tmp_path / "harm"), b"labels": [0]})
    for name in PICKLE_MD5:
        with pytest.raises(
            DataError, match=rf"^top/{name}: is not the published file: its md5 is .*{BINARY}"
        ):
            parse_file(f"top/{name}", content)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("keep", [0, 1, 100, 5000])
def test_a_cut_pickle_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int) -> None:
    write_pickles(tmp_path, monkeypatch)
    with pytest.raises(DataError, match="test_batch: is not the published file"):
        parse_file("test_batch", (tmp_path / TEST).read_bytes()[:keep])


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (records()[:-1], "has 9,218 bytes, which are no images of 3,073 bytes"),
        (records() + b"x", "has 9,220 bytes, which are no images of 3,073 bytes"),
        (b"", "has 0 bytes, which are no images of 3,073 bytes"),
        (records(labels=[0, 1, 10]), "labels go up to 10, not to 9"),
    ],
)
def test_a_malformed_binary_file_is_named(content: bytes, fault: str) -> None:
    with pytest.raises(DataError, match=f"^top/test_batch.bin: {fault}"):
        parse_file("top/test_batch.bin", content)


@pytest.fixture
def imported(tmp_path: Path) -> Path:
    write(tmp_path / FOLDER, "data_batch_1", records(20))
    return write(tmp_path / FOLDER, "test_batch", records(5))


@pytest.fixture(scope="module")
def small(sample: Callable[..., Path]) -> Path:
    return sample("cifar10")


@pytest.fixture
def batches(small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files of the pickled version with real images."""
    take_as_published(small / "cifar-10-batches-py-small", monkeypatch)
    return small / "cifar-10-batches-py-small"


def test_one_import_serves_all_views(imported: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    colour = data.setup(Cifar10Config(), root, source=imported)
    grey, tokens = data.setup(GREY, root), data.open_dataset(TOKENS, root)
    assert len(list((root / "cifar10").glob("*/manifest.json"))) == 1
    assert len({colour.digest, grey.digest, tokens.digest}) == 3
    assert [len(colour.splits[name]) for name in SPLITS] == [18, 2, 5]
    kinds = [(each.info.kind, each.info.channels, each.info.vocabulary) for each in (colour, grey, tokens)]
    assert kinds == [("signal", 3, 0), ("signal", 1, 0), ("tokens", 0, 257)]
    for dataset, config in ((colour, Cifar10Config()), (grey, GREY), (tokens, TOKENS)):
        assert dataset.info.baselines == {"majority": 0.2}
        assert dataset.manifest["config"] == config.model_dump(mode="json")
        assert [dataset.manifest["splits"][name]["examples"] for name in SPLITS] == [18, 2, 5]
        assert dataset.manifest["kept"]["train"]["labels"] == dict.fromkeys(map(str, range(10)), 2)
        outline = data.outline(config)
        assert (outline.kind, outline.longest) == (dataset.info.kind, dataset.info.longest)
        batch = dataset.splits["validation"].batch(np.array([1, 0]))
        assert batch.inputs.shape[:2] == (2, 1024)
        assert batch.lengths.tolist() == [1024, 1024]


@pytest.mark.parametrize(
    ("config", "mean", "deviation"),
    [
        (Cifar10Config(), (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        (Cifar10Config(standardisation="s4"), (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
        (GREY, (122.6 / 255,), (61 / 255,)),
        (Cifar10Config(colour="grey", standardisation="mega"), (0.48,), (0.24,)),
    ],
)
def test_values_are_standardised_as_in_public_code(
    imported: Path, tmp_path: Path, config: Cifar10Config, mean: tuple[float], deviation: tuple[float]
) -> None:
    dataset = data.setup(config, tmp_path / "data", source=imported)
    images = pixels_of(5).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    if config.colour == "grey":
        images = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])[..., None]
    expected = (images / 255 - mean) / deviation
    batch = dataset.splits["test"].batch(np.arange(5))
    np.testing.assert_allclose(batch.inputs, expected.reshape(5, 1024, -1), atol=2e-6)


def test_a_damaged_file_is_found_and_named(imported: Path, tmp_path: Path) -> None:
    data.setup(Cifar10Config(), tmp_path / "data", source=imported)
    (file,) = (tmp_path / "data").rglob("train/images.npy")
    kept = bytearray(file.read_bytes())
    kept[-1000] ^= 1
    file.write_bytes(kept)
    with pytest.raises(DataError, match=r"train/images\.npy: is damaged"):
        data.open_dataset(Cifar10Config(), tmp_path / "data")


def test_what_is_published_can_be_fetched() -> None:
    (remote,) = CIFAR10.remotes
    assert remote.digest == "md5:c32a1d4ab5d03f1284b67883e8d87530"
    assert CIFAR10.other_digests == {PICKLED_DIGEST}
    assert "none is stated" in CIFAR10.about.licence


def test_real_images(batches: Path, small: Path, tmp_path: Path) -> None:
    colour = data.setup(Cifar10Config(), tmp_path, source=batches)
    assert [len(colour.splits[name]) for name in SPLITS] == [900, 100, 200]
    assert "data_batch_1 has 1,000 images, the published file 10,000" in colour.manifest["notes"]
    pixels = np.load(small / "cifar10_lossless_5000.npz")
    mean, deviation = (np.array(each) for each in Cifar10Config().moments)
    shown = colour.splits["test"].batch(np.arange(200))
    back = np.rint((shown.inputs * deviation + mean) * 255).reshape(200, 32, 32, 3)
    assert np.array_equal(back, pixels["x_test"][:200])
    assert np.array_equal(shown.labels, pixels["y_test"][:200])
    train = colour.splits["train"].batch(np.arange(900)).inputs
    assert np.abs(train.mean((0, 1))).max() < 0.02
    s4 = data.open_dataset(Cifar10Config(standardisation="s4"), tmp_path).splits["train"]
    assert np.abs(s4.batch(np.arange(900)).inputs.std((0, 1)) - 1).max() < 0.02


def test_real_images_in_grey(batches: Path, small: Path, tmp_path: Path) -> None:
    grey = data.setup(GREY, tmp_path, source=batches)
    train = grey.splits["train"].batch(np.arange(900)).inputs
    assert abs(train.mean()) < 0.02
    assert abs(train.std() - 1) < 0.02
    tokens = data.open_dataset(TOKENS, tmp_path).splits["test"].batch(np.arange(200)).inputs
    colours = np.load(small / "cifar10_lossless_5000.npz")["x_test"][:200]
    expected = [np.asarray(Image.fromarray(image).convert("L")).reshape(-1) for image in colours]
    assert np.array_equal(tokens - 1, expected)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pickle_that_builds_much_from_little_is_not_loaded(tmp_path: Path, packed: bool) -> None:
    """REDUCE calls ``bytearray(2**20)``, again and again: 24 bytes of the file a call, a MiB of memory."""
    call = b"cbuiltins\nbytearray\nq\x00J\x00\x00\x10\x00\x85R"
    again = b"h\x00J\x00\x00\x10\x00\x85R" * 2000
    content = b"\x80\x02](" + call + again + b"e."
    (tmp_path / PICKLED_FOLDER).mkdir()
    for name in (*TRAIN, TEST):
        (tmp_path / PICKLED_FOLDER / name).write_bytes(content)
    source = tmp_path / PICKLED_FOLDER
    source = archive(source, tmp_path / "small.tar.gz") if packed else source
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"is not the published file: .* other pickles are not loaded"):
            read_files(source)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
