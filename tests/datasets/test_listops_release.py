import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from listops_trees import Tree, bracketed, parse, trees, value, words_of, write_rows

from msbench.datasets.dataset import RaggedTokens, ignore_progress
from msbench.datasets.listops.dataset import FILES, FOLDERS, read_split
from msbench.datasets.tables import TableFile, read_tables
from msbench.errors import DataError


def read(path: Path) -> RaggedTokens:
    with path.open("rb") as lines:
        return read_split(str(path), iter(lines))


def read_all(source: Path) -> dict[str, tuple[TableFile, RaggedTokens]]:
    return read_tables(source, FOLDERS, FILES, read_split, ignore_progress)


GOOD = "( ( ( [MAX 2 ) 4 ) ] )\t4"


@pytest.fixture(scope="module")
def listops_samples(sample: Callable[..., Path]) -> Path:
    return sample("listops")


@settings(max_examples=50, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=8), st.sampled_from(["\r\n", "\n"]))
def test_different_expressions_have_different_ids(examples: list[Tree], end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = [f"{bracketed(tree)}\t{value(tree)}" for tree in examples]
        split = read(write_rows(Path(folder) / "basic_test.tsv", rows, end=end))
    assert [parse(words_of(split, index)) for index in range(len(split))] == examples
    assert split.labels.tolist() == [value(tree) for tree in examples]


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.tsv", ["4\t( ( ( [MAX 2 ) 4 ) ] )", "7\t7"], "Target\tSource", "\n")
    assert words_of(read(path), 0) == ["[MAX", "2", "4", "]"]


def test_the_last_line_need_not_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"Source\tTarget\r\n7\t7\r\n3\t3")
    assert read(path).labels.tolist() == [7, 3]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("", "1 fields instead of 2"),
        ("7", "1 fields instead of 2"),
        ("7\t7\t7", "3 fields instead of 2"),
        ("( ( ( [SUM 2 ) 4 ) ] )\t6", r"unknown symbol '\[SUM'"),
        ('"7"\t7', "unknown symbol '\"7\"'"),
        ("( ( ( [MAX 2 ) 4 ) ]\t4", "round brackets do not balance"),
        ("( ( [MAX 2 ) 4 )\t4", r"\[MAX is not closed"),
        ("7 7\t7", "more than one expression"),
        ("\t7", "no expression"),
        ("( ( ( [MAX 2 ) 4 ) ] )\t5", "the target is 5 but the expression evaluates to 4"),
        ("7\t10", "the target '10' is no digit from 0 to 9"),
        ("7\t-1", "the target '-1' is no digit"),
        ("7\t7.0", "the target '7.0' is no digit"),
        ("7\t٧", "the target .* is no digit"),
        ("7\t", "the target '' is no digit"),
        ('7\t"7"', "the target .* is no digit"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, fault: str) -> None:
    path = write_rows(tmp_path / "basic_val.tsv", [GOOD, row, GOOD])
    with pytest.raises(DataError, match=rf"basic_val\.tsv, line 3: {fault}"):
        read(path)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "basic_val.tsv"
    path.write_bytes(b"Source\tTarget\n7\t7\n\xff\t7\n")
    with pytest.raises(DataError, match=r"basic_val\.tsv, line 3: 'utf-8'"):
        read(path)


@pytest.mark.parametrize(
    ("field", "line"), [('"7\t7', 2), ('"\t7', 2), ('7\t7"', 2)], ids=["opened", "alone", "in the target"]
)
def test_quotes_do_not_join_rows(tmp_path: Path, field: str, line: int) -> None:
    path = write_rows(tmp_path / "a.tsv", [field, "3\t3", field])
    with pytest.raises(DataError, match=f"line {line}: "):
        read(path)


@pytest.mark.parametrize("header", ["", "Source", "Source\tLabel", "7\t7", "Source\tTarget\tTarget"])
def test_a_header_without_the_two_names_is_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(DataError, match="line 1: the header must name"):
        read(write_rows(tmp_path / "a.tsv", [GOOD], header))


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no rows"):
        read(write_rows(tmp_path / "a.tsv", []))
    (tmp_path / "b.tsv").touch()
    with pytest.raises(DataError, match="line 1"):
        read(tmp_path / "b.tsv")


def release(folder: Path, row: str = GOOD) -> None:
    for name in FILES.values():
        write_rows(folder / name, [row])


@pytest.mark.parametrize(
    "where", ["", "listops-1000/", "lra_release/listops-1000/", "lra_release/lra_release/listops-1000/"]
)
def test_the_files_are_found_in_every_layout_of_the_archive(tmp_path: Path, where: str) -> None:
    release(tmp_path / where)
    assert read_all(tmp_path)["validation"][0].name == f"{where}basic_val.tsv"


def test_equal_copies_are_one(tmp_path: Path) -> None:
    release(tmp_path / "lra_release/listops-1000")
    release(tmp_path / "lra_release/lra_release/listops-1000")
    assert read_all(tmp_path)["train"][0].name == "lra_release/listops-1000/basic_train.tsv"


def test_copies_that_differ_are_both_named(tmp_path: Path) -> None:
    inner, outer = tmp_path / "lra_release/lra_release/listops-1000", tmp_path / "lra_release/listops-1000"
    release(inner)
    release(outer)
    write_rows(inner / "basic_test.tsv", ["7\t7"])
    with pytest.raises(DataError) as caught:
        read_all(tmp_path)
    for folder in (inner, outer):
        assert str((folder / "basic_test.tsv").relative_to(tmp_path)) in str(caught.value)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no such file"):
        read_all(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"holds no basic_train\.tsv, nor has one in listops-1000/, "):
        read_all(tmp_path)
    release(tmp_path)
    (tmp_path / "basic_val.tsv").unlink()
    with pytest.raises(DataError, match=r"holds no basic_val\.tsv"):
        read_all(tmp_path)


def test_rows_of_the_original_generator(listops_samples: Path, tmp_path: Path) -> None:
    for name in FILES.values():
        shutil.copyfile(listops_samples / f"generated_{name}", tmp_path / name)
    splits = {split: read for split, (_, read) in read_all(tmp_path).items()}
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 200,
        "validation": 50,
        "test": 50,
    }
    lengths = [length - 1 for split in splits.values() for length in split.lengths]
    assert (min(lengths), max(lengths)) == (504, 1987)


def test_the_original_test_set(listops_samples: Path) -> None:
    split = read(listops_samples / "original_test_d20s.tsv")
    lengths = split.lengths - 1
    assert (len(split), lengths.min(), lengths.max()) == (10_000, 1, 939)


def test_the_files_are_read_from_an_archive(tmp_path: Path) -> None:
    inner = tmp_path / "unpacked" / "lra_release" / "listops-1000"
    release(inner, "7\t7")
    (inner / "other.txt").write_text("of no use")
    archive = tmp_path / "lra_release.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "unpacked" / "lra_release", "lra_release")
    found = read_all(archive)
    assert {split: read.labels.tolist() for split, (_, read) in found.items()} == {
        split: [7] for split in FILES
    }
