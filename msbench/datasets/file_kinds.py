"""File formats recognised by the first bytes, never by the name: Long Range Arena's ``.gz`` is a tar."""

import re
import tarfile
from pathlib import Path

HEAD = 1024
"""Number of first bytes that `is_kind` and `kind_of` need; a tar needs 512."""

MAGIC = {
    "gzip": b"\x1f\x8b\x08",
    "xz": b"\xfd7zXZ\0",
    "bzip2": b"BZh",
    "zip": b"PK\x03\x04",
    "idx": b"\0\0\x08",  # unsigned bytes, as all of MNIST
    "parquet": b"PAR1",
}
COMPRESSED = ("gzip", "xz", "bzip2")


def is_kind(head: bytes, kind: str) -> bool:
    """Return True if a file that begins with `head` is a `kind`: one of `MAGIC`, ``tar`` or ``text``."""
    if kind == "tar":
        return _is_tar(head)
    if kind == "text":
        return not is_web_page(head) and b"\0" not in head
    return head.startswith(MAGIC[kind])


def detect_kind(path: Path) -> str | None:
    """Return the kind of an archive or a compressed file, or None."""
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    return next((kind for kind in (*COMPRESSED, "zip", "tar") if is_kind(head, kind)), None)


def is_web_page(head: bytes) -> bool:
    """Return True if the bytes begin like HTML."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml"))


def find_title(head: bytes) -> str:
    """Return the title of a web page, or an empty string."""
    found = re.search(rb"<title[^>]*>(.*?)</title", head, re.IGNORECASE | re.DOTALL)
    return " ".join(found[1].decode(errors="replace").split())[:80] if found else ""


def _is_tar(head: bytes) -> bool:
    try:  # the checksum of the first header, as the oldest format has no magic
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True
