from pathlib import Path

import numpy as np
import pytest
from text_sources import accuracy, pairs, row, trained, write_archive, write_folder
from typer.testing import CliRunner

from msbench import datasets as data
from msbench.cli import app
from msbench.config.data import AanConfig
from msbench.datasets.aan import AAN
from msbench.datasets.dataset import Dataset, RaggedPairs
from msbench.errors import DataError

CONFIG = AanConfig()
INNER = "lra_release/lra_release/tsv_data/"
SUITE = """\
name: papers
title: Papers
protocol: scaled
data: {dataset: aan}
model: {d_model: 8, layers: 1}
train: {epochs: 3, batch_size: 2}
tasks: {retrieval: {}}
models: {mamba: {}}
"""


def texts_of(dataset: Dataset, name: str) -> list[tuple[str, str]]:
    """Both texts of every pair, from their ids; a question mark stands for what train does not have."""
    known = "?" + dataset.manifest["vocabulary"]
    batch = dataset.splits[name].batch(np.arange(len(dataset.splits[name])))
    found = []
    for sides, lengths in zip(batch.inputs, batch.lengths, strict=True):
        assert all(ids[length - 1] == 2 for ids, length in zip(sides, lengths, strict=True))
        first, second = (
            "".join(known[max(int(number) - 2, 0)] for number in ids[: length - 1])
            for ids, length in zip(sides, lengths, strict=True)
        )
        found.append((first, second))
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    noise = {"lra_release/listops-1000/basic_test.tsv": b"Source\tTarget\n", f"{INNER}README": b"\xff"}
    images = {"lra_release/lra_release/pathfinder32/curv_baseline/imgs/0/sample_172.png": b""}
    return write_archive(tmp_path / "lra_release.gz", {**noise, **pairs(), **images})


def test_the_archive_becomes_pairs(release: Path, root: Path) -> None:
    dataset = data.setup(CONFIG, root, source=release)
    for split in dataset.splits.values():
        assert isinstance(split, RaggedPairs)
        assert split.labels.tolist() == [1, 0]
        assert split.lengths.tolist() == [4, 7]
    assert texts_of(dataset, "train") == [("aab", "ab"), ('b "a\\n', "cb")]
    assert texts_of(dataset, "validation") == texts_of(dataset, "train")
    assert dataset.manifest["vocabulary"] == 'ab "\\cn'
    assert (dataset.info.kind, dataset.info.vocabulary, dataset.info.longest) == ("pairs", 10, 7)
    assert dataset.info.baselines == {"majority": 0.5}
    assert dataset.manifest["notes"][1] == (
        f"{INNER}new_aan_pairs.eval.tsv has 2 rows, the published file 18,090"
    )
    assert len({dataset.manifest["splits"][name]["ids"] for name in dataset.splits}) == 3
    assert data.open_dataset(CONFIG, root).digest == dataset.digest
    left = {path.name for path in AAN.folder_of(CONFIG, root).iterdir() if not path.name.startswith(".")}
    assert left == {"manifest.json", *dataset.splits}


@pytest.mark.parametrize("where", ["", "tsv_data/", "lra_release/tsv_data/", INNER])
def test_the_files_are_found_in_every_layout(where: str, release: Path, root: Path, tmp_path: Path) -> None:
    digest = data.setup(CONFIG, root, source=release).digest
    folder = write_folder(tmp_path / "imported", pairs(where))
    assert data.setup(CONFIG, tmp_path / "other", source=folder).digest == digest


def test_eval_is_validation_and_only_train_is_counted(root: Path, tmp_path: Path) -> None:
    files = pairs(eval=[row("0.0", "aé", "zz")] * 3)
    dataset = data.setup(CONFIG, root, source=write_archive(tmp_path / "a.gz", files))
    assert texts_of(dataset, "validation") == [("a?", "??")] * 3
    assert len(dataset.splits["test"]) == 2


def test_every_line_is_a_row_whatever_it_quotes(root: Path, tmp_path: Path) -> None:
    rows = [
        row("0.0", '"fully"', "b", ids='"\t"'),
        row("1.0", '"opened', "b"),
        row("0", "a\rb\x85\u2028", 'say "'),
        b'1\tx\ty\t"\t"',  # the last line need not end
    ]
    dataset = data.setup(CONFIG, root, source=write_folder(tmp_path / "a", pairs(train=rows)))
    assert dataset.manifest["splits"]["train"]["examples"] == 4
    assert texts_of(dataset, "train") == [
        ('"fully"', "b"),
        ('"opened', "b"),
        ("a\rb\x85\u2028", 'say "'),
        ('"', '"'),
    ]


def test_both_texts_are_cut_to_the_same_length(root: Path, tmp_path: Path) -> None:
    files = pairs(train=[row("0.0", "é" * 9, "a" * 300 + "b")])
    source = write_folder(tmp_path / "a", files)
    dataset = data.setup(AanConfig(max_length=5), root, source=source)
    assert texts_of(dataset, "train") == [("éééé", "aaaa")]
    assert dataset.manifest["vocabulary"] == "aé"
    assert dataset.manifest["truncated"] == {"train": 2, "validation": 1, "test": 1}
    remark = "texts truncated to data.max_length 5: 2 of train, 1 of validation, 1 of test"
    assert dataset.manifest["remarks"] == [remark]
    long = data.setup(AanConfig(max_length=5, tokens="bytes", eos=False), root, source=source)
    assert long.splits["train"].batch(np.array([0])).inputs.tolist() == [
        [[0xC4, 0xAA, 0xC4, 0xAA, 0xC4], [98] * 5]
    ]
    assert long.info.vocabulary == 257


def test_truncated_texts_are_reported(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_folder(tmp_path / "a", pairs(train=[row("0.0", "a" * 9, "a" * 300)]))
    monkeypatch.setenv("MSBENCH_DATA", str(root))
    words = ["setup", "aan", "--from", str(source)]
    done = CliRunner().invoke(app, [*words, "--set", "data.max_length=8"])
    assert done.exit_code == 0, done.stderr
    assert "aan: texts truncated to data.max_length 8: 2 of train, 0 of validation, 0 of test" in done.stderr
    assert "truncated" not in CliRunner().invoke(app, words).stderr


def test_lines_may_end_in_two_characters(root: Path, tmp_path: Path) -> None:
    files = {name: text.replace(b"\n", b"\r\n") for name, text in pairs().items()}
    dataset = data.setup(CONFIG, root, source=write_folder(tmp_path / "a", files))
    assert texts_of(dataset, "test")[0] == ("aab", "ab")


def test_an_empty_text_has_its_end_alone(root: Path, tmp_path: Path) -> None:
    source = write_folder(tmp_path / "a", pairs(test=[row("1.0", "", "b")]))
    dataset = data.setup(CONFIG, root, source=source)
    assert texts_of(dataset, "test") == [("", "b")]
    assert dataset.manifest["empty texts"] == {"train": 0, "validation": 0, "test": 1}
    with pytest.raises(DataError, match=r"test\.tsv, line 1: an empty text has no token; set data\.eos"):
        data.setup(AanConfig(tokens="bytes", eos=False), root, source=source)


def test_pairs_of_train_that_come_again_are_counted(root: Path, tmp_path: Path) -> None:
    again = [row("0.0", "a", "b", "train1\tP"), row("0.0", "a", "b", "P\ttrain1")]
    dataset = data.setup(CONFIG, root, source=write_folder(tmp_path / "a", pairs(test=again)))
    assert dataset.manifest["pairs in train"] == {"validation": 0, "test": 1}


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"\n", "1 fields instead of 5"),
        (b"0.0\tx\ty\ta\n", "4 fields instead of 5"),
        (b"0.0\tx\ty\ta\tb\tc\n", "6 fields instead of 5"),
        (b"label\tx\ty\ta\tb\n", "the label 'label' is neither 0.0 nor 1.0"),
        (b"0.5\tx\ty\ta\tb\n", "the label '0.5' is neither"),
        (b"nan\tx\ty\ta\tb\n", "the label 'nan' is neither"),
        (b"\tx\ty\ta\tb\n", "the label '' is neither"),
        (b'"0.0"\tx\ty\ta\tb\n', "the label '\"0.0\"' is neither"),
        (b"0.0\tx\ty\ta\t\xff\n", "'utf-8' codec"),
    ],
)
def test_a_bad_row_is_named(line: bytes, fault: str, root: Path, tmp_path: Path) -> None:
    files = pairs(eval=[row("1.0", "a", "b"), line, row("1.0", "a", "b")])
    source = write_archive(tmp_path / "lra_release.gz", files)
    with pytest.raises(DataError, match=rf"lra_release\.gz: .*new_aan_pairs\.eval\.tsv, line 2: {fault}"):
        data.setup(CONFIG, root, source=source)
    assert not data.is_ready(CONFIG, root)


@pytest.mark.parametrize("kind", ["archive", "folder"])
def test_two_copies_must_be_equal(kind: str, root: Path, tmp_path: Path) -> None:
    outer = "lra_release/tsv_data/"

    def source(name: str, files: dict[str, bytes]) -> Path:
        return (
            write_archive(tmp_path / f"{name}.gz", files)
            if kind == "archive"
            else write_folder(tmp_path / name, files)
        )

    dataset = data.setup(CONFIG, root, source=source("equal", {**pairs(outer), **pairs()}))
    assert dataset.manifest["tables"]["test"]["file"] == f"{outer}new_aan_pairs.test.tsv"
    other = source("other", {**pairs(outer), **pairs(test=[row("1.0", "a", "b")])})
    with pytest.raises(DataError) as caught:
        data.setup(CONFIG, tmp_path / "data2", source=other)
    assert f"{outer}new_aan_pairs.test.tsv and {INNER}new_aan_pairs.test.tsv differ" in str(caught.value)


def test_what_is_missing_or_scattered_is_named(root: Path, tmp_path: Path) -> None:
    files = pairs()
    gone = files.pop(f"{INNER}new_aan_pairs.eval.tsv")
    with pytest.raises(DataError, match=r"holds no new_aan_pairs\.eval\.tsv, nor has one in tsv_data/"):
        data.setup(CONFIG, root, source=write_folder(tmp_path / "a", files))
    files["tsv_data/new_aan_pairs.eval.tsv"] = gone
    with pytest.raises(DataError, match="do not lie in one folder"):
        data.setup(CONFIG, root, source=write_folder(tmp_path / "b", files))
    with pytest.raises(DataError, match=r"new_aan_pairs\.test\.tsv: no rows"):
        data.setup(CONFIG, root, source=write_folder(tmp_path / "c", pairs(test=[])))
    assert not data.is_ready(CONFIG, root)
    files = {**pairs(), "tsv_data/new_aan_pairs.eval.tsv": gone}  # one of two copies is whole
    assert data.setup(CONFIG, root, source=write_folder(tmp_path / "d", files)).splits


def test_without_data_it_says_where_to_get_them(root: Path) -> None:
    with pytest.raises(DataError) as caught:
        data.setup(CONFIG, root)
    for word in ("what:", "lra_release.gz", "licence:", "where:", "msbench setup aan --from PATH"):
        assert word in str(caught.value)
    assert data.outline(CONFIG).vocabulary == 98
    assert data.outline(AanConfig(tokens="bytes")).vocabulary == 257


def test_a_run_from_the_archive_to_the_record(
    release: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, predictions = trained(SUITE, release, root, tmp_path, monkeypatch)
    assert record["status"] == "finished"
    assert record["metrics"]["test_accuracy"] == pytest.approx(accuracy(predictions))
