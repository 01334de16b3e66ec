import errno
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from release_images import write_release
from torch.utils.data import TensorDataset, random_split

from msbench import datasets as data
from msbench.config.data import PathfinderConfig
from msbench.datasets.dataset import SPLITS, Dataset, Samples
from msbench.datasets.pathfinder import dataset as pathfinder
from msbench.datasets.pathfinder.dataset import PATHFINDER, split_as_published
from msbench.datasets.pathfinder.generate import VERSION
from msbench.datasets.pathfinder.parameters import find_preset
from msbench.errors import ConfigError, DataError, Interrupted

HARD = "curv_contour_length_14"
TINY = PathfinderConfig(images=40)
RELEASE = PathfinderConfig(source="release")


def samples_of(dataset: Dataset, split: str) -> Samples:
    found = dataset.splits[split]
    assert isinstance(found, Samples)
    return found


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty hard images in the release's layout."""
    folder = tmp_path_factory.mktemp("release") / "pathfinder32"
    write_release(folder / HARD, find_preset(32, HARD), 0, 20)
    return folder


def test_generated_images_are_split_as_public_loaders_do(tmp_path: Path) -> None:
    dataset = data.setup(TINY, tmp_path)
    assert {name: len(dataset.splits[name]) for name in SPLITS} == {"train": 32, "validation": 4, "test": 4}
    rows = split_as_published(40)
    assert sorted(np.concatenate([*rows.values()]).tolist()) == list(range(40))
    batch = dataset.splits["test"].batch(np.arange(4))
    values = samples_of(dataset, "test").values
    np.testing.assert_allclose(batch.inputs, values[rows["test"]] / 127.5 - 1, atol=1e-6)
    assert batch.inputs.shape == (4, 1024, 1)
    assert dataset.info.longest == 1024
    assert sum(dataset.manifest["kept"]["images"]["labels"].values()) == 40
    assert set(dataset.info.baselines) == {"majority"}


def test_a_view_is_from_0_to_1(tmp_path: Path) -> None:
    plain = TINY.model_copy(update={"centred": False})
    one, other = data.setup(TINY, tmp_path), data.setup(plain, tmp_path)
    a, b = (dataset.splits["train"].batch(np.array([5])).inputs for dataset in (one, other))
    np.testing.assert_allclose(a, 2 * b - 1, atol=1e-6)
    assert (float(b.min()), float(b.max())) == (0, 1)
    assert one.digest != other.digest


def test_the_number_of_processes_changes_nothing(tmp_path: Path) -> None:
    config = TINY.model_copy(update={"images": 120})
    one, two = (data.setup(config, tmp_path / str(number), processes=number) for number in (1, 2))
    assert one.digest == two.digest


def test_who_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathfinder, "BATCH", 50)
    config = TINY.model_copy(update={"images": 200})

    def stop(what: str, done: int, _total: int) -> None:
        if what.startswith("generating") and done == 150:
            raise Interrupted(2)

    with pytest.raises(Interrupted):
        data.setup(config, tmp_path / "stopped", processes=1, progress=stop)
    folder = PATHFINDER.folder_of(config, tmp_path / "stopped")
    assert not folder.exists()
    began: list[int] = []

    def first(what: str, _done: int, total: int) -> None:
        if what.startswith("generating"):
            began.append(total)

    resumed = data.setup(config, tmp_path / "stopped", processes=1, progress=first)
    assert began[0] == 50, "three batches of four were there"
    assert resumed.digest == data.setup(config, tmp_path / "whole", processes=1).digest
    assert not list(folder.parent.glob(".*.drawn"))


@pytest.mark.parametrize("linked", ["values", "labels"])
def test_nothing_is_drawn_through_a_link(tmp_path: Path, linked: str) -> None:
    kept = tmp_path / "pathfinder" / f".{PATHFINDER.folder_of(TINY, tmp_path).name}.drawn"
    (kept / "all").mkdir(parents=True)
    (kept / "done.json").write_text(json.dumps({"version": VERSION, "images": 0}))
    precious = np.full((TINY.images, TINY.size**2, 1), 7, np.uint8)
    arrays = {"values": precious, "labels": precious[:, 0, 0].copy()}
    for name, array in arrays.items():
        np.save((tmp_path if name == linked else kept / "all") / f"{name}.npy", array)
    (kept / "all" / f"{linked}.npy").symlink_to(tmp_path / f"{linked}.npy")
    data.setup(TINY, tmp_path)
    assert (np.load(tmp_path / f"{linked}.npy") == 7).all()


def test_what_was_drawn_and_cannot_be_opened_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "pathfinder" / f".{PATHFINDER.folder_of(TINY, tmp_path).name}.drawn"
    kept.mkdir(parents=True)
    (kept / "done.json").write_text("{}")

    def busy(path: Path) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))

    monkeypatch.setattr(pathfinder, "read_bytes", busy)
    with pytest.raises(DataError, match="Too many open files"):
        data.setup(TINY, tmp_path)
    assert [path.name for path in kept.iterdir()] == ["done.json"]


def test_what_another_version_began_is_not_gone_on_with(tmp_path: Path) -> None:
    kept = tmp_path / "pathfinder" / f".{PATHFINDER.folder_of(TINY, tmp_path).name}.drawn"
    kept.mkdir(parents=True)
    (kept / "done.json").write_text('{"version": 0, "images": 40}')
    (kept / "images").mkdir()
    for name in ("values", "labels"):
        np.save(kept / "images" / f"{name}.npy", np.zeros(40, np.uint8))
    dataset = data.setup(TINY, tmp_path)
    assert samples_of(dataset, "train").values.any()


def packed(folder: Path, archive: Path, name: str) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, name)
    return archive


def test_a_release_is_read_from_its_folder_and_from_the_archive(release: Path, tmp_path: Path) -> None:
    one = data.setup(RELEASE, tmp_path / "one", source=release.parent)
    archive = packed(release, tmp_path / "lra_release.gz", "lra_release/lra_release/pathfinder32")
    two = data.setup(RELEASE, tmp_path / "two", source=archive)
    three = data.setup(RELEASE, tmp_path / "three", source=release)
    assert one.digest == two.digest == three.digest
    assert one.manifest["read_from"] == "pathfinder32"
    assert two.manifest["read_from"] == "lra_release/lra_release/pathfinder32"
    assert "20 images; the release has 200,000" in two.manifest["notes"]
    drawn = data.setup(TINY.model_copy(update={"images": 20}), tmp_path / "four")
    np.testing.assert_array_equal(samples_of(drawn, "train").values, samples_of(two, "train").values)
    folder = PATHFINDER.folder_of(RELEASE, tmp_path / "two")
    assert {path.name for path in folder.iterdir()} >= {"images", "manifest.json"}
    assert not list(folder.parent.glob("**/*unpacked*"))


@pytest.mark.parametrize("packing", ["folder", "archive"])
def test_of_two_copies_the_inner_one_is_read(release: Path, tmp_path: Path, packing: str) -> None:
    source = tmp_path / "source"
    shutil.copytree(release, source / "lra_release" / "lra_release" / "pathfinder32")
    outer = source / "lra_release" / "pathfinder32"
    write_release(outer / HARD, find_preset(32, HARD), 1, 20)
    if packing == "archive":
        source = packed(source / "lra_release", tmp_path / "lra_release.gz", "lra_release")
    dataset = data.setup(RELEASE, tmp_path / "data", source=source)
    assert dataset.digest == data.setup(RELEASE, tmp_path / "alone", source=release).digest
    (note,) = (note for note in dataset.manifest["notes"] if "copy" in note)
    assert note.startswith("lra_release/pathfinder32 is another copy, and was not read")


def test_the_difficulty_and_the_size_are_part_of_what_is_kept(release: Path, tmp_path: Path) -> None:
    easy = RELEASE.model_copy(update={"difficulty": "curv_baseline"})
    with pytest.raises(DataError, match="no pathfinder32/curv_baseline in it"):
        data.setup(easy, tmp_path, source=release)
    assert PATHFINDER.folder_of(easy, tmp_path) != PATHFINDER.folder_of(RELEASE, tmp_path)
    large = RELEASE.model_copy(update={"size": 128})
    with pytest.raises(DataError, match="32 x 32 pixels instead of 128 x 128"):
        data.setup(large, tmp_path, source=release)
    assert not PATHFINDER.folder_of(large, tmp_path).exists()


@pytest.mark.parametrize(("images", "fault"), [(1, "no images"), (10, "9 images")])
def test_a_release_with_too_few_images_leaves_nothing(tmp_path: Path, images: int, fault: str) -> None:
    folder = tmp_path / "pathfinder32" / "curv_baseline"
    write_release(folder, find_preset(32, "curv_baseline"), 0, images)
    first, metadata = folder / "imgs" / "0" / "sample_0.png", folder / "metadata" / "0.npy"
    first.unlink()
    first.with_name("sample_172.png").touch()
    metadata.write_text(metadata.read_text().replace("sample_0.png", "sample_172.png"))
    easy = RELEASE.model_copy(update={"difficulty": "curv_baseline"})
    with pytest.raises(DataError, match=f"{fault} in pathfinder32/curv_baseline; at least 10 are needed"):
        data.setup(easy, tmp_path / "data", source=tmp_path)
    assert not PATHFINDER.folder_of(easy, tmp_path / "data").exists()


def test_the_image_that_is_known_to_be_empty_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "pathfinder32" / "curv_baseline"
    write_release(folder, find_preset(32, "curv_baseline"), 0, 180)
    (folder / "imgs" / "0" / "sample_172.png").write_bytes(b"")
    easy = RELEASE.model_copy(update={"difficulty": "curv_baseline"})
    dataset = data.setup(easy, tmp_path / "data", source=tmp_path)
    assert dataset.manifest["skipped"] == 1
    assert dataset.manifest["kept"]["images"]["examples"] == 179
    assert sum(len(split) for split in dataset.splits.values()) == 179
    (folder / "imgs" / "0" / "sample_7.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"sample_7\.png: an empty file"):
        data.setup(easy, tmp_path / "other", source=tmp_path)


@pytest.mark.parametrize(("key", "value"), [("images", 77), ("seed", 77), ("documented_distractors", True)])
def test_options_of_the_generator_mean_nothing_to_a_release(key: str, value: int) -> None:
    given = {"source": "release", "size": 128, key: value}
    with pytest.raises(ValueError, match=f"remove {key}"):
        PathfinderConfig.model_validate(given)


def test_documented_distractors_are_of_path_x() -> None:
    with pytest.raises(ValueError, match="needs size: 128"):
        PathfinderConfig(documented_distractors=True)


def test_an_archive_for_what_is_generated_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is generated here"):
        data.setup(TINY, tmp_path, source=tmp_path)


@pytest.mark.parametrize(("size", "images"), [(32, 1_000), (128, 32)])
def test_published_images_are_read(
    sample: Callable[..., Path], tmp_path: Path, size: int, images: int
) -> None:
    folder = sample("pathfinder")
    config = RELEASE.model_copy(update={"size": size})
    dataset = data.setup(config, tmp_path, source=folder)
    counts = dataset.manifest["kept"]["images"]
    assert counts["examples"] == images
    assert counts["labels"]["1"] == round({32: 0.481, 128: 0.5625}[size] * images)


def test_the_split_is_that_of_the_public_loaders() -> None:
    images = TensorDataset(torch.arange(1_019))
    expected = random_split(images, [817, 101, 101], torch.Generator().manual_seed(42))
    found = split_as_published(1_019)
    assert list(found) == ["train", "validation", "test"]
    for part, indices in zip(expected, found.values(), strict=True):
        assert list(part.indices) == indices.tolist()


def test_published_sizes() -> None:
    parts = split_as_published(200_000)
    assert [len(part) for part in parts.values()] == [160_000, 20_000, 20_000]
    assert (np.sort(np.concatenate(list(parts.values()))) == np.arange(200_000)).all()
    assert [len(part) for part in split_as_published(199_999).values()] == [160_001, 19_999, 19_999]
