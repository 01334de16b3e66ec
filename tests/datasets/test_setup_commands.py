"""Every dataset through the whole command line: set up, verified, run offline, reported, damaged."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from archives import flipped
from ecg_files import write_small
from faulty_server import Reply, by_name, serving, status, whole
from published import PUBLISHED, Published, generated
from typer.testing import CliRunner, Result

from msbench import datasets as data
from msbench.cli import app
from msbench.datasets.archive_dataset import ArchiveDataset
from msbench.datasets.dataset import SPLITS
from msbench.datasets.disk import hash_file
from msbench.errors import ExitCode

SMALL = ("train.max_steps=3", "train.batch_size=4", "model.layers=1", "model.d_model=8")


def msbench(*words: str | Path, sets: tuple[str, ...] = ()) -> Result:
    options = [word for each in sets for word in ("--set", each)]
    return CliRunner().invoke(app, [*map(str, words), *options])


@dataclass(frozen=True)
class Place:
    """A published dataset that was set up below `root`; `printed` is what ``--json`` said of it."""

    published: Published
    root: Path
    sources: list[Path]
    printed: dict[str, Any]

    @property
    def sets(self) -> tuple[str, ...]:
        return self.published.sets + self.published.implied

    @property
    def arrays(self) -> list[Path]:
        return sorted((self.root / "data" / self.published.dataset).rglob("*.npy"))

    @property
    def images(self) -> list[Path]:
        return sorted((self.root / "data" / self.published.dataset).rglob("*.JPEG"))

    def check(self) -> Result:
        return msbench("setup", self.published.dataset, "--check", sets=self.sets)

    def run(self, *words: str) -> Result:
        tasks = [word for task in self.published.counts for word in ("--task", task)]
        where = ("--results", str(self.root / "results"), "--model", "mamba", "--json", *tasks)
        return msbench("run", self.published.suite, *where, *words, sets=SMALL + self.sets)


@contextmanager
def served(published: Published, sources: list[Path], patch: pytest.MonkeyPatch) -> Iterator[None]:
    """The remotes of a dataset are these files, at a server that is there as long as this lasts."""
    replies = {path.name: whole(path.read_bytes()) for path in sources}
    with serving(by_name(replies)) as server:
        point(published.dataset, server.url, sources, patch)
        yield


def point(name: str, url: str, sources: list[Path], patch: pytest.MonkeyPatch) -> None:
    """Let a dataset be fetched from this server, with the digests of these files where it has digests."""
    kept = data.DATASETS[name]
    assert isinstance(kept, ArchiveDataset)
    remotes = tuple(
        replace(
            remote,
            url=url.rpartition("/")[0] + "/" + path.name,
            name=path.name,
            digest=remote.digest and f"md5:{hash_file(path, 'md5')}",
        )
        for remote, path in zip(kept.remotes, sources, strict=True)
    )
    patch.setitem(data.DATASETS, name, replace(kept, remotes=remotes))


@pytest.fixture(scope="module", params=PUBLISHED)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The dataset, set up as a user would; the server is gone again, and what was imported is deleted."""
    published, root = PUBLISHED[request.param], tmp_path_factory.mktemp(request.param)
    (root / "published").mkdir()
    sources = published.build(root / "published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MSBENCH_DATA", str(root / "data"))
        words = ["setup", published.dataset, "--json", "--quiet"]
        if published.fetched:
            with served(published, sources, patch):
                done = msbench(*words, sets=published.sets)
        else:
            options = ["--from", *map(str, sources)] if sources else []
            done = msbench(*words, *options, sets=published.sets)
        assert done.exit_code == 0, done.stderr
        shutil.rmtree(root / "published")
        yield Place(published, root, sources, json.loads(done.stdout)[0])


@pytest.fixture
def place(made: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("MSBENCH_DATA", str(made.root / "data"))
    return made


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a socket was asked for")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")


def test_the_manifest_says_what_there_is_and_where_it_is_from(place: Place) -> None:
    manifest, counts = place.printed["manifest"], next(iter(place.published.counts.values()))
    assert place.printed["ready"]
    assert [manifest["splits"][name]["examples"] for name in SPLITS] == [*counts]
    if place.published.dataset != "ptbxl":  # of which an example has several labels
        assert [sum(manifest["splits"][name]["labels"].values()) for name in SPLITS] == [*counts]
    named = [source.get("file", source.get("folder")) for source in manifest["sources"]]
    assert named == [path.name for path in place.sources]
    assert all(len(source["sha256"]) == 64 for source in manifest["sources"] if "file" in source)
    assert len(manifest["digest"]) == len(place.printed["digest"]) == 64
    assert manifest["licence"]
    assert set(manifest["files"]) == {path.relative_to(path.parents[1]).as_posix() for path in place.arrays}


@pytest.mark.usefixtures("offline")
def test_what_is_set_up_needs_no_network(place: Place) -> None:
    assert place.check().exit_code == 0
    again = msbench("setup", place.published.dataset, "--json", sets=place.sets)
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)[0]["manifest"]["digest"] == place.printed["manifest"]["digest"]


@pytest.mark.usefixtures("offline")
def test_shipped_suites_run_on_it_and_a_report_calls_it_modified(place: Place) -> None:
    done = place.run()
    assert done.exit_code == 0, done.stderr
    records = json.loads(done.stdout)
    assert {record["task"]: record["status"] for record in records} == dict.fromkeys(
        place.published.counts, "finished"
    )
    written = [json.loads(path.read_bytes()) for path in (place.root / "results").rglob("run.json")]
    assert {record["run_id"] for record in written} == {record["run_id"] for record in records}
    for record in records:
        assert record["n_test"] == place.published.counts[record["task"]][2]

    report = ("report", place.published.suite, "--results", place.root / "results", "--json")
    plain, marked = msbench(*report), msbench(*report, "--modified")
    assert plain.exit_code == ExitCode.UNDECIDED
    assert marked.exit_code == ExitCode.OK, marked.stderr
    for record in records:
        assert record["run_id"] not in plain.stdout
        assert record["run_id"] in marked.stdout
        texts = (*record["data_notes"], *record["data_remarks"])
        assert all(json.dumps(text)[1:-1] in marked.stdout for text in texts)
    assert all(record["data_notes"] for record in records) == bool(place.sources)


def test_a_byte_that_is_another_is_found_by_all_that_open_it(place: Place) -> None:
    assert place.arrays
    for path in place.arrays + place.images:
        content = path.read_bytes()
        path.write_bytes(flipped(content, len(content) - 1))
        try:
            found = place.check()
            assert (found.exit_code, str(path) in found.stderr) == (ExitCode.DATA, True), path
            if path in (place.arrays[-1], *place.images[-1:]):
                refused = place.run("--fresh")
                assert (refused.exit_code, str(path) in refused.stderr) == (ExitCode.DATA, True)
        finally:
            path.write_bytes(content)
    assert place.check().exit_code == 0


IMPORTED = [name for name, published in PUBLISHED.items() if published.build is not generated]


@pytest.mark.parametrize("name", IMPORTED)
def test_sources_and_data_may_lie_in_folders_that_are_no_utf_8(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published, root = PUBLISHED[name], tmp_path / os.fsdecode(b"caf\xe9")
    (root / "published").mkdir(parents=True)
    sources = published.build(root / "published")
    source = root / "published"
    if len(sources) == 1:
        source = sources[0].with_name(os.fsdecode(b"\xe9-" + os.fsencode(sources[0].name)))
        sources[0].rename(source)
    monkeypatch.setenv("MSBENCH_DATA", str(root / "data"))
    words = ("setup", published.dataset, "--quiet", "--json")
    done = msbench(*words, "--from", source, sets=published.sets)
    assert done.exit_code == 0, (done.stderr, done.exception)
    again = msbench(*words, "--from", source, sets=published.sets)
    assert (again.exit_code, again.stdout) == (0, done.stdout)
    assert place_in(published, root, done).check().exit_code == 0
    ran = place_in(published, root, done).run("--quiet")
    assert ran.exit_code == 0, (ran.stderr, ran.exception)
    assert len(list((root / "results").rglob("run.json"))) == len(published.counts)


def place_in(published: Published, root: Path, done: Result) -> Place:
    return Place(published, root, [], json.loads(done.stdout)[0])


@pytest.mark.parametrize("refusal", [404, 403])
def test_where_one_server_refuses_the_other_datasets_are_set_up(
    refusal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    built: dict[str, list[Path]] = {}
    for name, published in (("imdb", "imdb"), ("mnist", "mnist"), ("cifar10", "cifar10-rgb")):
        (tmp_path / name).mkdir()
        built[name] = PUBLISHED[published].build(tmp_path / name)
    replies: dict[str, Reply] = {
        path.name: whole(path.read_bytes()) for sources in built.values() for path in sources
    }
    (reviews,) = built["imdb"]
    with serving(by_name({**replies, reviews.name: status(refusal)})) as server:
        for name, sources in built.items():
            point(name, server.url, sources, monkeypatch)
        done = msbench("setup", *built, "--quiet")
    assert done.exit_code == ExitCode.DATA
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("msbench: "))
    for words in ("imdb", f"/{reviews.name}", str(refusal), "msbench setup imdb --from PATH"):
        assert words in line
    assert done.stderr.splitlines()[-1] == "2 of 3 set up"
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == ["not", "18", "90"]
    assert not list((tmp_path / "data" / "downloads" / "imdb").glob(reviews.name + "*"))
    assert msbench("setup", "mnist", "cifar10", "--check").stderr.splitlines()[-1] == "2 of 2 verified"


def test_a_record_with_a_wrong_checksum_is_named_and_nothing_is_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_DATA", str(tmp_path / "data"))
    source = write_small(tmp_path / "source")
    file = source / "records100/00000/00005_lr.dat"
    file.write_bytes(flipped(file.read_bytes(), 1000))
    done = msbench("setup", "ptbxl", "--from", source, "--quiet")
    assert done.exit_code == ExitCode.DATA
    assert "record records100/00000/00005_lr: samples do not add up to the checksums" in done.stderr
    assert not list((tmp_path / "data").rglob("*.npy"))
    assert not list((tmp_path / "data").rglob("*building*"))


def test_a_source_for_what_is_only_generated_is_refused(tmp_path: Path) -> None:
    done = msbench("setup", "recall", "--from", tmp_path)
    assert done.exit_code == ExitCode.USAGE, done.stderr
    assert f"recall is generated here, so nothing is read from {tmp_path}; leave out --from" in done.stderr


@pytest.mark.parametrize("dataset", [name for name in data.DATASETS if name != "recall"])
def test_a_pipe_as_source_is_refused_at_once(dataset: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = msbench("setup", dataset, "--from", tmp_path / "pipe")
    assert done.exit_code == ExitCode.DATA, done.stderr
    assert "pipe: is neither a regular file nor a folder" in done.stderr
