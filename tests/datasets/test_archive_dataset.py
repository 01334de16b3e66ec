"""A dataset out of parts: numbers, a line each, which a factor is multiplied to when they are looked at."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from msbench import datasets as data
from msbench.config.base import DataConfig
from msbench.config.data import Cifar10Config, ImageNetConfig, ImdbConfig, ListOpsConfig, PathfinderConfig
from msbench.datasets import archive_dataset, manifest
from msbench.datasets.archive_dataset import GENERATED, ArchiveDataset, DatasetBuild, DatasetDescription
from msbench.datasets.dataset import SPLITS, Samples, TaskInfo
from msbench.datasets.download import RemoteFile
from msbench.errors import ConfigError, DataError
from msbench.runs.setup import setup_by_name

ABOUT = DatasetDescription("lines", "public domain", "anywhere, then: msbench setup numbers --from PATH")


class NumbersConfig(DataConfig):
    dataset: Literal["numbers"] = "numbers"
    source: Literal["file", "generated"] = "file"
    drop: int = 0
    factor: float = 1.0


def fill(config: NumbersConfig, build: DatasetBuild) -> None:
    lines = [path.read_text().split() for path in build.sources] or [["1", "2"]]
    values = np.array([float(text) for each in lines for text in each][config.drop :])
    for split in SPLITS:
        manifest.save_array(build.folder, split, "values", values.reshape(-1, 1, 1))
    build.finish(config, {name: {"examples": len(values)} for name in SPLITS}, dropped=config.drop)


def view(
    config: NumbersConfig, arrays: manifest.Arrays, facts: Mapping[str, Any]
) -> tuple[TaskInfo, dict[str, Samples]]:
    assert facts["dropped"] == config.drop
    splits = {
        name: Samples(each["values"], np.zeros(len(each["values"]), np.uint8), scale=1 / config.factor)
        for name, each in arrays.items()
    }
    return outline(config), splits


def outline(_config: NumbersConfig) -> TaskInfo:
    return TaskInfo("signal", 0, 1, 1, "accuracy", 1.0, {}, channels=1)


def numbers(remotes: tuple[RemoteFile, ...] = (), version: int = 1) -> ArchiveDataset[NumbersConfig]:
    def generated(config: NumbersConfig) -> bool:
        return config.source == "generated"

    return ArchiveDataset(
        name="numbers",
        version=version,
        about=ABOUT,
        fill=fill,
        view=view,
        outline=outline,
        remotes=remotes,
        views=frozenset({"factor"}),
        is_generated=generated,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.txt"
    path.write_text("3 4 5\n")
    return path


def test_what_was_imported_is_opened_and_says_where_it_is_from(file: Path, tmp_path: Path) -> None:
    dataset = numbers().setup(NumbersConfig(), tmp_path / "data", source=file)
    assert dataset.splits["train"].batch(np.array([2, 0])).inputs.ravel().tolist() == [5, 3]
    (source,) = dataset.manifest["sources"]
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert source == {"file": "numbers.txt", "bytes": 6, "sha256": digest}
    assert (dataset.manifest["dataset"], dataset.manifest["licence"]) == ("numbers", "public domain")
    assert dataset.manifest["splits"]["test"] == {"examples": 3}
    assert numbers().is_ready(NumbersConfig(), tmp_path / "data")


def test_views_share_a_folder_and_differ_in_digest(file: Path, tmp_path: Path) -> None:
    one = numbers().setup(NumbersConfig(), tmp_path, source=file)
    other = numbers().setup(NumbersConfig(factor=2), tmp_path)
    assert other.splits["train"].batch(np.array([0])).inputs.item() == 6
    assert one.digest != other.digest
    folders = {numbers().folder_of(NumbersConfig(factor=factor), tmp_path) for factor in (1, 2)}
    assert len(folders) == 1


@pytest.mark.parametrize("right", [True, False])
def test_an_archive_that_is_not_the_published_one_is_noted(file: Path, tmp_path: Path, right: bool) -> None:
    digest = hashlib.md5(file.read_bytes() + (b"" if right else b"6")).hexdigest()
    remote = RemoteFile("http://x/numbers.txt", "numbers.txt", f"md5:{digest}", "gzip", "numbers")
    dataset = numbers((remote,)).setup(NumbersConfig(), tmp_path / "data", source=file)
    assert any("is not the published file" in note for note in dataset.manifest["notes"]) != right


def test_what_is_kept_differently_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = {
        numbers().folder_of(NumbersConfig(), tmp_path),
        numbers().folder_of(NumbersConfig(drop=1), tmp_path),
        numbers(version=2).folder_of(NumbersConfig(), tmp_path),
    }
    assert len(folders) == 3


def test_without_a_source_it_says_what_to_bring(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"numbers: the data are not available\n") as caught:
        numbers().setup(NumbersConfig(), tmp_path)
    assert str(ABOUT) in str(caught.value)
    with pytest.raises(DataError, match=r"not set up in .*: run `msbench setup numbers --from PATH`"):
        numbers().open_dataset(NumbersConfig(), tmp_path)


def test_what_can_be_fetched_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remotes = tuple(RemoteFile("http://x/" + name, name, None, "gzip", "numbers") for name in "ab")
    asked: list[tuple[RemoteFile, Path]] = []

    def fetch(remote: RemoteFile, folder: Path, _progress: Any) -> Path:
        asked.append((remote, folder))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / remote.name).write_text("1" if remote.name == "a" else "2")
        return folder / remote.name

    monkeypatch.setattr(archive_dataset, "fetch_file", fetch)
    dataset = numbers(remotes).setup(NumbersConfig(), tmp_path)
    assert dataset.splits["train"].batch(np.arange(2)).inputs.ravel().tolist() == [1, 2]
    assert asked == [(remote, tmp_path / "downloads" / "numbers") for remote in remotes]
    assert [source["file"] for source in dataset.manifest["sources"]] == ["a", "b"]
    numbers(remotes).setup(NumbersConfig(), tmp_path)
    assert len(asked) == 2


def test_another_source_than_the_one_it_was_made_from_is_refused(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    numbers().setup(NumbersConfig(), root, source=file)
    renamed = file.rename(tmp_path / "renamed.txt")
    numbers().setup(NumbersConfig(), root, source=renamed)
    renamed.write_text("3 4 6\n")
    with pytest.raises(DataError, match=r"renamed\.txt is not what .* was built from"):
        numbers().setup(NumbersConfig(), root, source=renamed)


def test_a_folder_is_known_by_its_files_and_their_size(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("12")
    (tmp_path / "y").write_text("345")
    assert archive_dataset.describe_source(tmp_path) == {"folder": tmp_path.name, "files": 2, "bytes": 5}


def test_of_a_large_folder_only_the_first_files_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / f"{number}").write_text("1" * number)
    monkeypatch.setattr(archive_dataset, "MOST_FILES", 3)
    assert archive_dataset.describe_source(tmp_path) == {
        "folder": tmp_path.name,
        "files": 3,
        "bytes": 3,
        "counted": "the first files by name",
    }


def test_a_source_for_what_is_generated_is_refused(file: Path, tmp_path: Path) -> None:
    config = NumbersConfig(source="generated")
    made = numbers().setup(config, tmp_path)
    assert len(made.splits["train"]) == 2
    assert made.manifest["licence"] == GENERATED
    with pytest.raises(ConfigError, match="is generated here, so nothing is read from"):
        numbers().setup(config, tmp_path, source=file)


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent: no such file or folder"):
        numbers().setup(NumbersConfig(), tmp_path, source=tmp_path / "absent")


def test_a_damaged_file_is_named_with_what_to_do(file: Path, tmp_path: Path) -> None:
    root = tmp_path / "data"
    numbers().setup(NumbersConfig(), root, source=file)
    folder = numbers().folder_of(NumbersConfig(), root)
    path = folder / "test" / "values.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(DataError, match=rf"{path}: .* delete {folder}, then run `msbench setup numbers"):
        numbers().open_dataset(NumbersConfig(), root)
    json.loads((folder / manifest.MANIFEST).read_text())


def test_it_is_said_in_lines_that_are_aligned() -> None:
    about = DatasetDescription("two files,\none and two", "CC0", "here, then: msbench setup")
    assert str(about).splitlines() == [
        "  what:    two files,",
        "           one and two",
        "  licence: CC0",
        "  where:   here, then: msbench setup",
    ]


@pytest.mark.parametrize(
    ("config", "command"),
    [
        (PathfinderConfig(size=128, images=40), "pathfinder --set data.size=128 --set data.images=40"),
        (PathfinderConfig(source="release", size=128), "pathfinder --from PATH --set data.size=128"),
        (
            PathfinderConfig(size=128, documented_distractors=True, centred=False),
            "pathfinder --set data.size=128 --set data.documented_distractors=true",
        ),
        (Cifar10Config(colour="grey"), "cifar10"),
        (ImdbConfig(tokens="bytes", min_frequency=15), "imdb --set data.tokens=bytes"),
        (ImageNetConfig(unreadable="skip", patch=14), "imagenet --from PATH --set data.unreadable=skip"),
        (ListOpsConfig(train=60), "listops --set data.train=60"),
        (ListOpsConfig(source="release"), "listops --from PATH"),
    ],
)
def test_the_command_of_the_message_sets_up_that_very_data(
    config: DataConfig, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        DataError, match=rf"is not set up in .*: run `msbench setup {re.escape(command)}`$"
    ) as caught:
        data.open_dataset(config, tmp_path)
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path))
    name, *words = command.split()
    source = Path("imported") if "--from" in words else None
    sets = [word for word in words if word.startswith("data.")]
    (meant,) = setup_by_name([name], source, sets, check_only=True, quiet=True).items
    assert meant.error == str(caught.value)  # of the same folder


@pytest.mark.parametrize("key", ["dropped", "config", "sources"])
def test_a_field_that_only_the_dataset_reads_may_be_absent_too(file: Path, tmp_path: Path, key: str) -> None:
    dataset, config = numbers(), NumbersConfig()
    dataset.setup(config, tmp_path / "data", source=file)
    path = dataset.folder_of(config, tmp_path / "data") / manifest.MANIFEST
    facts = json.loads(path.read_bytes())
    del facts[key]
    facts["checksum"] = manifest._compute_checksum(facts)
    path.write_text(json.dumps(facts), encoding="utf-8")
    if key == "dropped":
        with pytest.raises(DataError, match=rf"{path}: is damaged \(no 'dropped'\): delete"):
            dataset.open_dataset(config, tmp_path / "data")
        return
    dataset.open_dataset(config, tmp_path / "data")
    if key == "sources":
        with pytest.raises(DataError, match="is not what"):
            dataset.setup(config, tmp_path / "data", source=file)
