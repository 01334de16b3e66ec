import gzip
import io
import lzma
import tarfile
from pathlib import Path

import pytest
from archives import FILES, FORMATS

from msbench.datasets.file_kinds import HEAD, MAGIC, detect_kind, find_title, is_kind, is_web_page

KINDS = {"tar": "tar", "tar.gz": "gzip", "tar.xz": "xz", "tar.bz2": "bzip2", "zip": "zip"}


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_tell_the_kind_whatever_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "archive.txt"
    path.write_bytes(FORMATS[name](FILES))
    assert detect_kind(path) == KINDS[name]
    head = path.read_bytes()[:HEAD]
    assert [kind for kind in (*MAGIC, "tar", "text") if is_kind(head, kind)] == [KINDS[name]]


def test_a_tar_older_than_its_magic_is_one() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("a"))
    head = bytearray(stream.getvalue()[:512])
    head[257:265] = bytes(8)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    assert is_kind(bytes(head), "tar")
    assert not is_kind(bytes(512), "tar")
    assert not is_kind(bytes(head[:511]), "tar")


def test_other_kinds() -> None:
    assert is_kind(b"\0\0\x08\x03\0\0", "idx")
    assert is_kind(b"PAR1....", "parquet")
    assert is_kind(b"label\ttext\n", "text")
    assert not is_kind(b"<html>", "text")
    assert not is_kind(gzip.compress(b"label"), "text")
    assert not is_kind(lzma.compress(b""), "gzip")


@pytest.mark.parametrize("head", [b"<!DOCTYPE html>", b"\n <HTML lang=en>", b"\xef\xbb\xbf<html>", b"<head>"])
def test_web_pages(head: bytes) -> None:
    assert is_web_page(head)
    assert find_title(head) == ""
    assert find_title(head + b"<Title id=1>\n Quota  exceeded</title>") == "Quota exceeded"


def test_what_is_no_web_page() -> None:
    assert not any(map(is_web_page, (b"", b"\x1f\x8b<html>", b"text <html>")))
