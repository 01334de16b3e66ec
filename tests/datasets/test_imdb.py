from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from text_sources import accuracy, reviews, trained, write_archive, write_folder

from msbench import datasets as data
from msbench.config.data import ImdbConfig
from msbench.datasets.dataset import Dataset, RaggedTokens
from msbench.datasets.imdb import IMDB, Review, choose_validation, parse_name
from msbench.errors import DataError

CONFIG = ImdbConfig(min_frequency=1)
SUITE = """\
name: reviews
title: Reviews
protocol: scaled
data: {dataset: imdb, min_frequency: 1}
model: {d_model: 8, layers: 1}
train: {epochs: 1, batch_size: 4}
tasks: {text: {}}
models: {mamba: {}}
"""


def split_of(dataset: Dataset, name: str) -> RaggedTokens:
    split = dataset.splits[name]
    assert isinstance(split, RaggedTokens)
    return split


def written(dataset: Dataset, name: str) -> list[str]:
    """The texts of a split, from their ids; a question mark stands for what train does not have."""
    known = "?" + dataset.manifest["vocabulary"]
    split = split_of(dataset, name)
    examples = [split.example(index).tolist() for index in range(len(split))]
    assert all(ids[-1] == 2 for ids in examples)
    return ["".join(known[max(number - 2, 0)] for number in ids[:-1]) for ids in examples]


def ids_of(dataset: Dataset, root: Path, name: str) -> list[tuple[int, int]]:
    ids = np.load(IMDB.folder_of(CONFIG, root) / name / "ids.npy")
    return list(zip(split_of(dataset, name).labels.tolist(), ids.tolist(), strict=True))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "aclImdb_v1.tar.gz", reviews())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_the_archive_becomes_three_splits(archive: Path, root: Path) -> None:
    dataset = data.setup(CONFIG, root, source=archive)
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 36,
        "validation": 4,
        "test": 40,
    }
    assert split_of(dataset, "test").labels.tolist() == [0] * 20 + [1] * 20
    assert written(dataset, "test")[:21] == [
        *(f"A bad film.<br />t??t {number}" for number in range(20)),  # train has neither e nor s
        "A good film.<br />t??t 0",
    ]
    assert dataset.info.kind == "tokens"
    assert dataset.info.vocabulary == 3 + len(dataset.manifest["vocabulary"])
    assert (dataset.info.classes, dataset.info.chance, dataset.info.longest) == (2, 0.5, 27)
    assert dataset.info.baselines == {"majority": 0.5}
    assert dataset.manifest["notes"] == [
        "aclImdb_v1.tar.gz is not the published file: its digest is another",
        "train has 40 reviews, the published data 25,000",
        "test has 40 reviews, the published data 25,000",
    ]
    assert data.open_dataset(CONFIG, root).digest == dataset.digest


def test_no_review_is_in_two_splits_and_each_label_gives_its_share(archive: Path, root: Path) -> None:
    dataset = data.setup(CONFIG, root, source=archive)
    train, validation = (ids_of(dataset, root, name) for name in ("train", "validation"))
    assert sorted(train + validation) == [(label, number) for label in (0, 1) for number in range(20)]
    assert (train, validation) == (sorted(train), sorted(validation))
    assert [label for label, _ in validation] == [0, 0, 1, 1]
    assert all("train" in text for text in written(dataset, "train") + written(dataset, "validation"))
    digests = [dataset.manifest["splits"][name]["ids"] for name in dataset.splits]
    assert len(set(digests)) == 3


def test_validation_is_the_same_everywhere_and_changes_with_the_seed() -> None:
    pool = [Review(label, number) for label in (0, 1) for number in range(10)]
    assert choose_validation(pool, 0.1, 0) == {Review(0, 9), Review(1, 9)}
    assert choose_validation(reversed(pool), 0.1, 0) == choose_validation(pool, 0.1, 0)
    assert (
        choose_validation(pool, 0.1, 0) < choose_validation(pool, 0.5, 0) != choose_validation(pool, 0.5, 1)
    )


def test_validation_must_leave_both_parts_something() -> None:
    pool = [Review(0, 0), Review(0, 1), Review(1, 0)]
    with pytest.raises(DataError, match=r"of 2 training reviews in neg, data\.validation 0\.1 takes 0"):
        choose_validation(pool, 0.1, 0)
    with pytest.raises(DataError, match=r"of 1 training reviews in pos, data\.validation 0\.6 takes 1"):
        choose_validation(pool, 0.6, 0)


def test_archive_and_folder_give_the_same(archive: Path, root: Path, tmp_path: Path) -> None:
    digest = data.setup(CONFIG, root, source=archive).digest
    above = write_folder(tmp_path / "unpacked", reviews())
    write_folder(above, {"aclImdb/train/pos/.DS_Store": b"", "NOTE.md": b""})
    for number, source in enumerate((above, above / "aclImdb")):
        dataset = data.setup(CONFIG, tmp_path / str(number), source=source)
        assert dataset.digest == digest
        assert len(dataset.manifest["notes"]) == 2


def test_characters_are_counted_where_texts_are_kept_and_in_validation_too(
    root: Path, tmp_path: Path
) -> None:
    files = reviews()
    held = min(choose_validation([Review(label, number) for label in (0, 1) for number in range(20)], 0.1, 0))
    files[f"aclImdb/train/neg/{held.number}_1.txt"] = b"AZ" + b" " * 20 + b"Q"
    files["aclImdb/test/neg/0_1.txt"] = b"Z?"
    source = write_archive(tmp_path / "a.tgz", files)
    config = ImdbConfig(min_frequency=1, max_length=10)
    dataset = data.setup(config, root, source=source)
    known = dataset.manifest["vocabulary"]
    assert "Z" in known
    assert not {"Q", "?", "<"} & set(known)
    assert split_of(dataset, "test").example(0).tolist() == [3 + known.index("Z"), 1, 2]
    assert dataset.info.longest == 10
    # The texts of `reviews` are longer, but for the one that is two characters.
    assert dataset.manifest["truncated"] == {"train": 36, "validation": 4, "test": 39}


def test_bytes_of_long_range_arena(archive: Path, root: Path) -> None:
    config = ImdbConfig(tokens="bytes", eos=False, max_length=7)
    dataset = data.setup(config, root, source=archive)
    assert split_of(dataset, "test").example(0).tolist() == [byte + 1 for byte in b"A bad f"]
    assert dataset.info.vocabulary == 257
    assert dataset.manifest["vocabulary"] == ""


def test_repeated_reviews_are_kept_and_counted(root: Path, tmp_path: Path) -> None:
    files = reviews()
    for name in ("train/neg/0_1", "train/neg/1_1", "train/pos/0_10", "test/neg/5_1"):
        files[f"aclImdb/{name}.txt"] = b"The same."
    dataset = data.setup(CONFIG, root, source=write_archive(tmp_path / "a.tgz", files))
    counted = dataset.manifest["duplicates"]
    assert counted["train"] + counted["validation"] + counted["validation in train"] == 2
    assert (counted["test"], counted["test in train"]) == (0, 1)
    assert len(dataset.splits["train"]) == 36


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("train/pos/3_4.txt", b"a", "train/pos/3_4.txt: rating 4 in pos, which has 7 to 10"),
        ("test/neg/33_7.txt", b"a", "test/neg/33_7.txt: rating 7 in neg, which has 1 to 4"),
        ("train/neg/3_0.txt", b"a", "rating 0 in neg"),
        ("train/pos/3_9.txt", b"a", "train/pos/3_(9|10).txt: .*train/pos/3_(9|10).txt has the same id"),
        ("train/pos/03_9.txt", b"a", "train/pos/03_9.txt: is no review: those are named ID_RATING.txt"),
        ("train/pos/3-9.txt", b"a", "train/pos/3-9.txt: is no review"),
        ("test/pos/99_9.txt", b"caf\xe9 noir", "test/pos/99_9.txt: 'utf-8' codec"),
        ("test/pos/99_9.txt", b"", "test/pos/99_9.txt: is empty"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, root: Path, name: str, content: bytes, fault: str) -> None:
    source = write_archive(tmp_path / "a.tgz", {**reviews(), f"aclImdb/{name}": content})
    with pytest.raises(DataError, match=fault):
        data.setup(CONFIG, root, source=source)
    assert not data.is_ready(CONFIG, root)


def test_what_is_no_review_is_not_looked_at(tmp_path: Path, root: Path, archive: Path) -> None:
    strays = ("test/neg/Thumbs.db", "train/pos/.DS_Store", "train/neg/notes.txt", "train/pos/caf\xe9.TXT")
    files = {**reviews(), **{f"aclImdb/{name}": b"caf\xe9" for name in strays}}
    source = write_folder(tmp_path / "strays", files)
    (source / "aclImdb" / "test" / "pos" / ".#notes.txt").symlink_to("somebody@host.1:2")
    (source / "aclImdb" / "test" / "pos" / "notes").symlink_to("nowhere")
    expected = data.setup(CONFIG, tmp_path / "other", source=archive)
    assert data.setup(CONFIG, root, source=source).digest == expected.digest


def test_a_part_that_is_missing_is_named(tmp_path: Path, root: Path) -> None:
    files = {name: text for name, text in reviews().items() if "/test/pos/" not in name}
    with pytest.raises(DataError, match=r"holds no aclImdb/test/pos/ID_RATING\.txt"):
        data.setup(CONFIG, root, source=write_folder(tmp_path / "part", files))
    whole = write_archive(tmp_path / "a.tgz", reviews())
    whole.write_bytes(whole.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"cut short or damaged"):
        data.setup(CONFIG, root, source=whole)


def test_names() -> None:
    assert parse_name("train/neg/0_1.txt") == ("train", Review(0, 0))
    assert parse_name("aclImdb/test/pos/12499_10.txt") == ("test", Review(1, 12499))


def test_without_data_and_network_it_says_where_to_get_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSBENCH_OFFLINE", "1")
    with pytest.raises(DataError, match=r"aclImdb_v1\.tar\.gz.*msbench setup imdb --from PATH"):
        data.setup(CONFIG, root)
    assert data.outline(ImdbConfig()).vocabulary == 135
    assert data.outline(ImdbConfig(tokens="bytes")).vocabulary == 257


def test_a_run_from_the_archive_to_the_record(
    archive: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, predictions = trained(SUITE, archive, root, tmp_path, monkeypatch)
    assert record["status"] == "finished"
    assert record["metrics"]["test_accuracy"] == pytest.approx(accuracy(predictions))


def test_real_reviews(sample: Callable[..., Path], root: Path) -> None:
    source = sample("imdb")
    config = ImdbConfig()
    dataset = data.setup(config, root, source=source)
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 2248,
        "validation": 250,
        "test": 2498,
    }
    assert dataset.info.longest == 4096
    known = dataset.manifest["vocabulary"]
    assert known[:4] == " eta"
    split = split_of(dataset, "test")
    path = min((source / "aclImdb/test/neg").iterdir(), key=lambda path: int(path.stem.split("_")[0]))
    ids = {character: 3 + place for place, character in enumerate(known)}
    text = path.read_bytes().decode()
    assert split.example(0).tolist() == [*(ids.get(character, 1) for character in text[:4095]), 2]


@pytest.mark.slow
def test_nearly_all_real_reviews_have_the_published_vocabulary(
    sample: Callable[..., Path], root: Path
) -> None:
    source = sample("imdb", "aclImdb_labelled_49960.tar.xz")
    dataset = data.setup(ImdbConfig(), root, source=source)
    # The whole data have 135: without 20 training reviews two characters come 14 times, not 15
    assert dataset.info.vocabulary == 134
    counts = {name: each["labels"] for name, each in dataset.manifest["splits"].items()}
    assert counts == {
        "train": {"0": 11241, "1": 11241},
        "validation": {"0": 1249, "1": 1249},
        "test": {"0": 12490, "1": 12490},
    }
    assert dataset.manifest["duplicates"]["test in train"] == 113
