import gzip
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_sources import write_archive, write_folder

from msbench.datasets.archives.entries import SKIP
from msbench.datasets.archives.lines import lines, split
from msbench.errors import DataError

LONG = b"x" * (SKIP + 7) + b"\tend\n"
FILES = {"a/other.png": b"\n" * 5000, "a/one.tsv": b"1\r\n\n2\x85\n" + LONG * 3 + b"3", "two.tsv": b""}
NAMES = ("two.tsv", "a/one.tsv", "absent.tsv")


def collected(source: Path) -> dict[str, list[bytes]]:
    return {name: list(rows) for name, rows in lines(source, NAMES)}


def source_of(kind: str, folder: Path) -> Path:
    if kind == "folder":
        return write_folder(folder / "files", FILES)
    if kind == "zip":
        with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in FILES.items():
                archive.writestr(name, data)
        return folder / "a.zip"
    return write_archive(folder / "a.gz", FILES, {"tar": "w", "gzip": "w:gz", "xz": "w:xz"}[kind])


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "gzip", "xz"])
def test_every_source_gives_the_same_lines(kind: str, tmp_path: Path) -> None:
    found = collected(source_of(kind, tmp_path))
    assert found == {"a/one.tsv": [b"1\r\n", b"\n", b"2\x85\n", LONG, LONG, LONG, b"3"], "two.tsv": []}


@given(st.lists(st.sampled_from([b"", b"a", b"\n", b"b\nc", b"\r\n", b"\n\nd"])))
def test_blocks_may_end_anywhere(blocks: list[bytes]) -> None:
    assert list(split(iter(blocks))) == b"".join(blocks).splitlines(keepends=True)


def test_a_file_that_is_not_read_is_passed_over(tmp_path: Path) -> None:
    source = write_archive(tmp_path / "a.tar", {"two.tsv": LONG, "a/one.tsv": b"1\n"}, "w")
    found = [(name, next(rows) if name == "a/one.tsv" else b"") for name, rows in lines(source, NAMES)]
    assert found == [("two.tsv", b""), ("a/one.tsv", b"1\n")]


def test_a_cut_is_an_error_within_a_file_and_behind_it(tmp_path: Path) -> None:
    whole = source_of("gzip", tmp_path).read_bytes()
    cuts = {
        "it ends before its end mark": whole[:-4],
        "it ends within a/one.tsv": gzip.compress(gzip.decompress(whole)[:200_000]),
    }
    for place, data in cuts.items():
        (tmp_path / "cut.gz").write_bytes(data)
        with pytest.raises(DataError, match=f"cut.gz: is cut short or damaged: {place}"):
            collected(tmp_path / "cut.gz")


def test_what_is_ambiguous_is_refused(tmp_path: Path) -> None:
    twice = write_archive(tmp_path / "twice.tar", {"two.tsv": b"1\n", "./two.tsv": b"1\n"}, "w")
    with pytest.raises(DataError, match=r"two\.tsv comes twice"):
        collected(twice)
    (tmp_path / "page.gz").write_bytes(b"<html>")
    with pytest.raises(DataError, match="is no folder, tar or zip"):
        collected(tmp_path / "page.gz")


def test_a_line_without_end_is_an_error_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msbench.datasets.archives.lines.LONGEST", 2)
    (tmp_path / "a.tsv").write_bytes(b"x" * (3 * SKIP + 1))
    (_, found) = next(lines(tmp_path, ["a.tsv"]))
    with pytest.raises(DataError, match=r"a line of more than 2,097,152 bytes"):
        list(found)
