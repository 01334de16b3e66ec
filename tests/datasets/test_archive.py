"""Reading and unpacking: all formats, what is refused, and what is spoilt wherever it is spoilt."""

import bz2
import gzip
import io
import itertools
import json
import lzma
import os
import random
import shutil
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from archives import FILES, FORMATS, Files, flipped, special_tar, tar_bytes, write_folder, zip_bytes
from hypothesis import given
from hypothesis import strategies as st
from text_sources import write_archive

from msbench.datasets import archive as archive_module
from msbench.datasets.archive import (
    BLOCK,
    HEAD,
    LARGEST,
    LARGEST_HEADER,
    MAGIC,
    OWN,
    UNPACKED,
    CountedFile,
    TarStream,
    decompress,
    detect_kind,
    is_kind,
    is_web_page,
    open_tree,
    read_content,
    read_lines,
    read_members,
    split_lines,
    unpack,
)
from msbench.datasets.archive_dataset import describe_source
from msbench.datasets.dataset import ignore_progress
from msbench.errors import DataError

TAR_END = -(-len(tar_bytes(FILES).rstrip(b"\0")) // 512) * 512
"""Where the two blocks of zeros begin."""


def everything(_name: str) -> bool:
    return True


def read_all(source: Path, *, nested: bool = False) -> list[tuple[str, bytes]]:
    return list(read_members(source, everything, nested=nested))


def write(folder: Path, data: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(data)
    return path


def on_disk(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name not in OWN}


def nothing_left(folder: Path) -> None:
    assert {path.name for path in folder.parent.glob(f"*{folder.name}*")} <= {f".{folder.name}.lock"}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_file_comes_in_the_order_of_the_archive(tmp_path: Path, kind: str) -> None:
    source = write(tmp_path, FORMATS[kind](FILES))
    assert read_all(source) == list(FILES.items())
    some = list(read_members(source, lambda name: name.startswith("top/part1/")))
    assert some == [(name, data) for name, data in FILES.items() if "/part1/" in name]


def test_a_folder_is_sorted_and_its_links_followed(tmp_path: Path) -> None:
    elsewhere = write_folder(tmp_path / "elsewhere", {"x": b"x", "y": b"y"})
    folder = write_folder(
        tmp_path / "folder", {**FILES, "a-b/x": b"1", "a/x": b"2", **dict.fromkeys(OWN, b"")}
    )
    (folder / "a" / "linked").symlink_to(elsewhere)
    expected = [("a/linked/x", b"x"), ("a/linked/y", b"y"), ("a/x", b"2"), ("a-b/x", b"1")]
    assert read_all(folder) == expected + sorted(FILES.items())
    (elsewhere / "loop").symlink_to(folder)
    with pytest.raises(DataError, match="a/linked/loop is a link to a folder above it"):
        read_all(folder)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_cut_is_found_wherever_it_is(tmp_path: Path, kind: str) -> None:
    whole = FORMATS[kind](FILES)
    end = TAR_END + 1024 if kind == "tar" else len(whole)  # then zeros that fill up a record of a tape
    places = {end * part // 20 for part in range(20)} | {end - 1, end - 2}
    if kind == "tar":
        places |= set(range(512, end, 512))
    for place in places:
        source = write(tmp_path, whole[:place])
        with pytest.raises(DataError, match=r"archive: is (cut short or damaged|no folder, tar or zip)"):
            read_all(source)
        with pytest.raises(DataError):
            unpack(source, tmp_path / "out")
        nothing_left(tmp_path / "out")
    assert read_all(write(tmp_path, whole[: end if kind == "tar" else None])) == list(FILES.items())


@pytest.mark.parametrize("kind", FORMATS)
def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path: Path, kind: str) -> None:
    """Fields that nobody reads, such as dates, may change. An uncompressed tar has no checksum of bytes."""
    whole, found = FORMATS[kind](FILES), 0
    places = range(0, len(whole) if kind != "tar" else TAR_END, 41)
    for place in places:
        try:
            read = read_all(write(tmp_path, flipped(whole, place)))
        except DataError:
            found += 1
            continue
        if kind == "tar":
            assert [name for name, _ in read] == list(FILES)
        else:
            assert read == list(FILES.items())
    assert found > len(places) * (0.2 if kind == "tar" else 0.85)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("garbage", [b"?", b"more" * 256, b"\0" * 700 + b"\1"], ids=["byte", "text", "late"])
def test_what_follows_the_end_is_found(tmp_path: Path, kind: str, garbage: bytes) -> None:
    message = "there are bytes after its end" if kind in ("tar", "zip") else "cut short or damaged"
    with pytest.raises(DataError, match=message):
        read_all(write(tmp_path, FORMATS[kind](FILES) + garbage))


def test_every_header_of_a_tar_is_checked(tmp_path: Path) -> None:
    """Python's own reader takes a damaged header for the end of the archive."""
    whole = tar_bytes({**FILES, "top/empty": b""})  # after its header are zeros, as after the last one
    for start in (
        place for place in range(0, TAR_END + 512, 512) if whole[place + 257 : place + 262] == b"ustar"
    ):
        spoilt = write(tmp_path, flipped(whole, start + 10))
        with pytest.raises(DataError, match=r"damaged|no folder, tar or zip"):
            read_all(spoilt)


def test_a_header_that_points_backwards_is_damage_and_no_endless_loop(tmp_path: Path) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"size": "-1024"}
    source = write(tmp_path, member.tobuf(tarfile.PAX_FORMAT) + tar_bytes(FILES))
    with pytest.raises(DataError, match="a header points backwards"):
        list(read_members(source, lambda name: name != "a"))


def test_streams_end_to_end_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "FEED", 100)
    whole = tar_bytes(FILES)
    for pack in (gzip.compress, lzma.compress):
        halves = pack(whole[:5000]) + b"\0" * 8 + pack(whole[5000:]) + b"\0" * 4
        assert read_all(write(tmp_path, halves)) == list(FILES.items())
        with pytest.raises(DataError, match="it ends before its end mark"):
            read_all(write(tmp_path, pack(whole[:5000])))


@pytest.mark.parametrize("pack", [bz2.compress, gzip.compress, lzma.compress])
@pytest.mark.parametrize("most", [7, 2**20])
def test_what_makes_much_of_little_is_read_little_by_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes], most: int
) -> None:
    monkeypatch.setattr(archive_module, "BLOCK", most)
    size = 2000 * most if most < 2**10 else 2**25
    packed = pack(bytes(size)) + pack(b"end")
    kind = detect_kind(write(tmp_path, packed))
    assert kind is not None
    raw = CountedFile(io.BytesIO(packed), "", len(packed), ignore_progress)
    stream = TarStream(decompress(raw, kind))
    tracemalloc.start()
    try:
        assert stream.read_content(10) == bytes(10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 2 or most < 2**10  # xz has a dictionary of 8 MiB
    rest = b""
    while block := stream.read_content(2**22):
        rest = rest[-10:] + block
    assert rest.endswith(bytes(10) + b"end")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_has_no_bound_is_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w", method) as archive:
        archive.writestr("a", b"a" * 1000)
    with pytest.raises(DataError, match=r"a is neither stored nor deflated.*pack it anew"):
        read_all(tmp_path / "archive")


def test_a_file_without_a_name_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "archive", "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), b"x")
    with pytest.raises(DataError, match="archive: the name '' leads elsewhere"):
        read_all(tmp_path / "archive")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "a\\b", ".", "\udcff"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    archives = [tar_bytes({name: b"x"}, prefix="")]
    if name not in (".", "\udcff"):
        archives.append(zip_bytes({name: b"x"}))
    for archive in archives:
        with pytest.raises(DataError, match=r"the name .* (leads elsewhere|is not UTF-8)"):
            read_all(write(tmp_path, archive))
        with pytest.raises(DataError):
            unpack(tmp_path / "archive", tmp_path / "out")
        nothing_left(tmp_path / "out")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused_where_wanted(tmp_path: Path, kind: bytes) -> None:
    source = write(tmp_path, special_tar("top/special", kind, FILES))
    assert list(read_members(source, lambda name: name != "top/special")) == list(FILES.items())
    with pytest.raises(DataError, match=r"top/special is (a link|no file)"):
        read_all(source)
    with pytest.raises(DataError):
        unpack(source, tmp_path / "out")
    nothing_left(tmp_path / "out")


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="link is a link"):
        read_all(write(tmp_path, stream.getvalue()))


def test_a_pipe_and_a_broken_link_in_a_folder_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is no file"):
        read_all(tmp_path)
    assert list(read_members(tmp_path, lambda name: name != "pipe")) == []
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(DataError, match="link is a broken link"):
        read_all(tmp_path)


def test_what_systems_and_editors_leave_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    for name in (".DS_Store", "._a", b"caf\xe9.txt", "back\\slash"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"\xff")
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "a").write_bytes(b"2")
    (tmp_path / ".#a").symlink_to("somebody@host.1:2")
    assert read_all(tmp_path) == [("a", b"1")]
    with open_tree(tmp_path) as tree:
        assert tree.names() == ["a"]
    (tmp_path / "link").symlink_to("nowhere")
    assert describe_source(tmp_path)["files"] == 3


def twice(*files: tuple[str, bytes]) -> dict[str, bytes]:
    """The same small files as a tar and as a zip, names repeated."""
    tar, packed = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive, zipfile.ZipFile(packed, "w") as other:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
            other.writestr(name, data)
    return {"tar": tar.getvalue(), "zip": packed.getvalue()}


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_name_that_comes_twice(tmp_path: Path, kind: str) -> None:
    same = write(tmp_path, twice(("a", b"1"), ("./a", b"1"), ("b", b"2"))[kind])
    assert read_all(same) == [("a", b"1"), ("b", b"2")]
    with open_tree(same) as tree:
        assert tree.names() == ["a", "b"]
    unpack(same, tmp_path / "out")
    other = write(tmp_path, twice(("a", b"1"), ("a", b"2"))[kind])
    with pytest.raises(DataError, match="a comes twice, with different bytes"):
        read_all(other)
    with pytest.raises(DataError, match="a comes twice, with different bytes"), open_tree(other):
        pass
    cased = write(tmp_path, twice(("a/b", b"1"), ("A/b", b"1"))[kind])
    with pytest.raises(DataError, match="a/b and A/b differ in case only"):
        read_all(cased)
    with pytest.raises(DataError, match="a/b and A/b differ in case only"), open_tree(cased):
        pass


def test_a_zip_of_many_files_has_its_count_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    whole = zip_bytes(FILES)
    place = whole.index(b"PK\x06\x06")
    assert read_all(write(tmp_path, whole)) == list(FILES.items())
    with pytest.raises(DataError, match=r"its directory has 7 of 23 entries"):
        read_all(write(tmp_path, flipped(whole, place + 32)))


def test_an_encrypted_zip_is_refused(tmp_path: Path) -> None:
    whole = bytearray(zip_bytes({"a": b"x"}))
    directory = whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1)
    whole[directory + 8] |= 1
    with pytest.raises(DataError, match="a is encrypted"):
        read_all(write(tmp_path, bytes(whole)))


@pytest.mark.parametrize("data", [b"", b"plain text", b"\0" * 2048, b"PK\x03\x04", b"\x1f\x8b\x08"])
def test_what_is_no_archive_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}/archive: is "):
        read_all(write(tmp_path, data))
    with pytest.raises(DataError, match=f"{tmp_path}/archive: is "), open_tree(tmp_path / "archive"):
        pass


def test_a_compressed_file_that_is_no_tar_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="archive: is cut short or damaged"):
        read_all(write(tmp_path, gzip.compress(b"one file, compressed" * 99)))


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{tmp_path}/none: no such file"):
        read_all(tmp_path / "none")
    with pytest.raises(DataError, match=f"{tmp_path}/none: no such file"):
        unpack(tmp_path / "none", tmp_path / "out")


def test_content_of_one_file(tmp_path: Path) -> None:
    data = FILES["top/part0/file4.bin"]
    for whole in (data, gzip.compress(data), lzma.compress(data)):
        assert read_content(write(tmp_path, whole)) == data
    for spoilt in (gzip.compress(data)[:-1], gzip.compress(data) + b"?", flipped(gzip.compress(data), 99)):
        with pytest.raises(DataError, match="archive: is cut short or damaged"):
            read_content(write(tmp_path, spoilt))


@pytest.mark.parametrize("kind", ["folder", "zip", "tar"])
def test_a_tree_reads_in_any_order(tmp_path: Path, kind: str) -> None:
    folder = write_folder(tmp_path / "folder", FILES)
    source = folder if kind == "folder" else write(tmp_path, FORMATS[kind](FILES))
    with open_tree(source) as tree:
        assert sorted(tree.names()) == sorted(FILES)
        for name in [*reversed(list(FILES)), *FILES]:
            assert tree.read(name) == FILES[name]
        with pytest.raises(DataError, match=r"holds no top/none"):
            tree.read("top/none")


def test_a_tree_verifies_what_it_reads(tmp_path: Path) -> None:
    whole = zip_bytes(FILES)
    name = "top/part0/file4.bin"
    source = write(tmp_path, flipped(whole, whole.index(FILES[name][:100])))
    with open_tree(source) as tree:
        with pytest.raises(DataError, match="archive: is cut short or damaged: Bad CRC"):
            tree.read(name)
        assert tree.read("top/part0/file2.bin") == FILES["top/part0/file2.bin"]


def test_a_tree_whose_tar_is_cut_meanwhile_says_so(tmp_path: Path) -> None:
    source = write(tmp_path, tar_bytes(FILES))
    with open_tree(source) as tree:
        os.truncate(source, TAR_END - 1)
        with pytest.raises(DataError, match=r"file5.bin has 1,535 bytes instead of 1,536"):
            tree.read("top/part1/file5.bin")


def test_a_tree_of_a_compressed_tar_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path, FORMATS["tar.gz"](FILES))
    with pytest.raises(DataError, match="is compressed as a whole: unpack it"), open_tree(source):
        pass


NESTED: Files = {
    "n01.tar": tar_bytes({"a.JPEG": b"1"}),
    "n02.tar": tar_bytes({"b.JPEG": b"2"}),
    "notes": b"3",
}


def test_a_tar_within_stands_for_its_files(tmp_path: Path) -> None:
    source = write(tmp_path, tar_bytes(NESTED))
    assert read_all(source, nested=True) == [("n01/a.JPEG", b"1"), ("n02/b.JPEG", b"2"), ("notes", b"3")]
    assert read_all(source) == list(NESTED.items())
    assert list(read_members(source, lambda name: "n02" in name, nested=True)) == [("n02/b.JPEG", b"2")]
    cut = {**NESTED, "n02.tar": NESTED["n02.tar"][:1024]}
    with pytest.raises(DataError, match=r"archive: .*n02\.tar: it ends"):
        read_all(write(tmp_path, tar_bytes(cut)), nested=True)


@pytest.mark.parametrize("kind", FORMATS)
def test_unpacking_is_done_once(tmp_path: Path, kind: str) -> None:
    source, folder = write(tmp_path, FORMATS[kind](FILES)), tmp_path / "new" / "out"
    unpack(source, folder)
    assert on_disk(folder) == FILES
    assert read_all(folder) == sorted(FILES.items())
    facts = json.loads((folder / UNPACKED).read_text())
    total = sum(map(len, FILES.values()))
    assert (facts["archive"], facts["files"], facts["total"]) == ("archive", len(FILES), total)
    before = (folder / UNPACKED).stat()
    unpack(source, folder)
    assert (folder / UNPACKED).stat() == before
    write(tmp_path, FORMATS[kind]({"a": b"x"}))
    with pytest.raises(DataError, match=r"out: was unpacked from archive of .* bytes, not from archive of"):
        unpack(source, folder)


@pytest.mark.parametrize("change", ["deleted", "shortened", "added"])
def test_an_unpacked_folder_is_not_trusted_by_its_mark(tmp_path: Path, change: str) -> None:
    source, folder = write(tmp_path, tar_bytes(FILES)), tmp_path / "out"
    unpack(source, folder)
    (folder / ".DS_Store").write_bytes(b"hidden")
    unpack(source, folder)
    (path, *_) = [folder / name for name, content in FILES.items() if content]
    if change == "deleted":
        path.unlink()
    else:
        (folder / "more" if change == "added" else path).write_bytes(b"")
    with pytest.raises(
        DataError, match=rf"out: holds \d+ files of \d+ bytes, but {len(FILES)} of \d+ were unp"
    ):
        unpack(source, folder)


def test_unpacking_nested(tmp_path: Path) -> None:
    unpack(write(tmp_path, tar_bytes(NESTED)), tmp_path / "out", nested=True)
    assert on_disk(tmp_path / "out") == {"n01/a.JPEG": b"1", "n02/b.JPEG": b"2", "notes": b"3"}


def test_a_folder_that_somebody_made_is_left_alone(tmp_path: Path) -> None:
    source, folder = write(tmp_path, tar_bytes(FILES)), tmp_path / "out"
    folder.mkdir()
    (folder / "precious").touch()
    with pytest.raises(DataError, match="out: exists and was not unpacked by msbench: move it away"):
        unpack(source, folder)
    assert list(folder.iterdir()) == [folder / "precious"]
    (folder / "precious").unlink()
    unpack(source, folder)
    assert on_disk(folder) == FILES
    (tmp_path / "file").write_text("precious")
    with pytest.raises(DataError, match="file: cannot be built: "):
        unpack(source, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{"])
def test_a_damaged_note_of_what_was_unpacked_is_named(tmp_path: Path, text: str) -> None:
    source, folder = write(tmp_path, tar_bytes(FILES)), tmp_path / "out"
    unpack(source, folder)
    (folder / UNPACKED).write_text(text)
    with pytest.raises(DataError, match=f"{folder}.*: (is cut short or damaged|was unpacked from None)"):
        unpack(source, folder)


@pytest.mark.parametrize("files", [{"a": b"", "a/b": b""}, {"a/b": b"", "a": b""}, {UNPACKED: b"{}"}])
def test_files_that_cannot_be_side_by_side_are_refused(tmp_path: Path, files: Files) -> None:
    with pytest.raises(DataError, match="out: cannot be built: "):
        unpack(write(tmp_path, tar_bytes(files)), tmp_path / "out")
    nothing_left(tmp_path / "out")


@pytest.mark.parametrize("kind", FORMATS)
def test_room_is_looked_for_before_and_on_the_way(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FORMATS[kind](FILES)
    known = sum(map(len, FILES.values())) if kind == "zip" else len(whole)
    usage = shutil.disk_usage(tmp_path)
    for free, needed in [([known - 1], known), ([known, 2999], 3000)]:
        rest = itertools.chain(free, itertools.repeat(free[-1]))
        monkeypatch.setattr(shutil, "disk_usage", lambda _path, rest=rest: usage._replace(free=next(rest)))
        with pytest.raises(DataError, match=f"archive: cannot be unpacked: {needed:,} bytes are needed and"):
            unpack(write(tmp_path, whole), tmp_path / "out")
        nothing_left(tmp_path / "out")


def test_progress_tells_bytes_and_may_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "REPORT_EVERY", 1000)
    monkeypatch.setattr(archive_module, "BLOCK", 2**16)
    files = {"a": random.Random(0).randbytes(2**20)}
    said: list[tuple[str, int, int]] = []
    for kind in ("tar", "tar.gz"):
        source = write(tmp_path, FORMATS[kind](files))
        list(read_members(source, everything, lambda *step: said.append(step)))
        assert len(said) >= 5
        assert {(what, total) for what, _, total in said} == {("reading archive", source.stat().st_size)}
        assert sorted(done for _, done, _ in said) == [done for _, done, _ in said]
        assert said[-1][1] == said[-1][2]
        said.clear()

    def stop(_what: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unpack(source, tmp_path / "out", stop)
    nothing_left(tmp_path / "out")
    unpack(source, tmp_path / "out", ignore_progress)


def header(kind: bytes, content: bytes) -> bytes:
    """A member whose bytes say something of the next one, as they stand in a tar."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, len(content)
    return member.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def pax(key: str, size: int) -> bytes:
    """A record of a pax header."""
    rest = f" {key}=".encode() + b"y" * (size - len(key) - 12) + b"\n"
    return f"{size}".encode() + rest.ljust(size - len(str(size)), b"y")[: size - len(str(size)) - 1] + b"\n"


FAR = 2**21
BOMBS: dict[str, Callable[[], bytes]] = {
    "tar.gz": lambda: gzip.compress(tar_bytes({"a": bytes(LARGEST + 1)}), 1),
    "zip": lambda: zip_bytes({"a": bytes(LARGEST + 1)}),
    "nested.gz": lambda: gzip.compress(tar_bytes({"within.tar": tar_bytes({"a": bytes(FAR)})})),
    "long name": lambda: gzip.compress(header(b"L", b"y" * FAR) + tar_bytes(FILES)),
    "long link": lambda: gzip.compress(header(b"K", b"y" * FAR) + tar_bytes(FILES)),
    "pax": lambda: gzip.compress(header(b"x", pax("comment", FAR)) + tar_bytes(FILES)),
    "global pax": lambda: gzip.compress(header(b"g", pax("comment", FAR)) + tar_bytes(FILES)),
    "many pax": lambda: gzip.compress(header(b"x", pax("comment", 2**18)) * 5 + tar_bytes(FILES)),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_what_is_far_too_large_once_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(archive_module, "LARGEST_INNER", FAR)
    source, nested = write(tmp_path, BOMBS[kind]()), kind.startswith("nested")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"has [\d,]+ bytes; more than [\d,]+ are not read at once"):
            list(read_members(source, everything, nested=nested))
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
    with pytest.raises(DataError, match="not read at once"):
        unpack(source, tmp_path / "out", nested=nested)
    nothing_left(tmp_path / "out")


def test_headers_for_all_members_do_not_add_up(tmp_path: Path) -> None:
    member, end = tar_bytes({"a": b"1"})[512:1536], bytes(1024)
    parts = (header(b"g", pax(f"key{number:02}", 2**19)) + member for number in range(64))
    source = write(tmp_path, gzip.compress(b"".join(parts) + end, 1))
    tracemalloc.start()
    try:
        assert read_all(source) == [("a", b"1")]
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_many_empty_files_are_no_long_header(tmp_path: Path) -> None:
    files = {f"{number}": b"" for number in range(LARGEST_HEADER // tarfile.BLOCKSIZE + 10)}
    assert len(read_all(write(tmp_path, tar_bytes(files)))) == len(files)


def test_a_reader_states_the_largest_file_that_it_takes(tmp_path: Path) -> None:
    source = write(tmp_path, tar_bytes({"a": bytes(1000)}))
    assert list(read_members(source, everything, largest=1000)) == [("a", bytes(1000))]
    with pytest.raises(DataError, match="a has 1,000 bytes; more than 999 are not read at once"):
        list(read_members(source, everything, largest=999))


def test_xz_that_needs_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**29}]
    content = lzma.compress(b"x", filters=filters)
    with pytest.raises(DataError, match="Memory usage limit"):
        read_content(write(tmp_path, content))


def test_one_compressed_file_is_refused_where_it_has_no_end(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not read at once"):
        read_content(write(tmp_path, gzip.compress(bytes(LARGEST + 1), 1)))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress])
def test_what_is_read_at_once_is_counted_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: Callable[[bytes], bytes]
) -> None:
    """Decompressors give blocks of any size, many small ones where the data hardly compress."""
    data = np.random.default_rng(0).bytes(2**21)
    source = write(tmp_path, compress(data))
    monkeypatch.setattr("msbench.datasets.archive.LARGEST", len(data))
    assert read_content(source) == data
    monkeypatch.setattr("msbench.datasets.archive.LARGEST", len(data) - 1)
    with pytest.raises(DataError, match="not read at once"):
        read_content(source)


LONG = b"x" * (BLOCK + 7) + b"\tend\n"
LINE_FILES = {"a/other.png": b"\n" * 5000, "a/one.tsv": b"1\r\n\n2\x85\n" + LONG * 3 + b"3", "two.tsv": b""}
LINE_NAMES = ("two.tsv", "a/one.tsv", "absent.tsv")


def collected(source: Path) -> dict[str, list[bytes]]:
    return {name: list(rows) for name, rows in read_lines(source, LINE_NAMES)}


def source_of(kind: str, folder: Path) -> Path:
    if kind == "folder":
        return write_folder(folder / "files", LINE_FILES)
    if kind == "zip":
        with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in LINE_FILES.items():
                archive.writestr(name, data)
        return folder / "a.zip"
    return write_archive(folder / "a.gz", LINE_FILES, {"tar": "w", "gzip": "w:gz", "xz": "w:xz"}[kind])


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "gzip", "xz"])
def test_every_source_gives_the_same_lines(kind: str, tmp_path: Path) -> None:
    found = collected(source_of(kind, tmp_path))
    assert found == {"a/one.tsv": [b"1\r\n", b"\n", b"2\x85\n", LONG, LONG, LONG, b"3"], "two.tsv": []}


@given(st.lists(st.sampled_from([b"", b"a", b"\n", b"b\nc", b"\r\n", b"\n\nd"])))
def test_blocks_may_end_anywhere(blocks: list[bytes]) -> None:
    assert list(split_lines(iter(blocks))) == b"".join(blocks).splitlines(keepends=True)


def test_a_file_that_is_not_read_is_passed_over(tmp_path: Path) -> None:
    source = write_archive(tmp_path / "a.tar", {"two.tsv": LONG, "a/one.tsv": b"1\n"}, "w")
    found = [
        (name, next(rows) if name == "a/one.tsv" else b"") for name, rows in read_lines(source, LINE_NAMES)
    ]
    assert found == [("two.tsv", b""), ("a/one.tsv", b"1\n")]


def test_a_cut_is_an_error_within_a_file_and_behind_it(tmp_path: Path) -> None:
    whole = source_of("gzip", tmp_path).read_bytes()
    cuts = {
        "Compressed file ended before the end-of-stream marker": whole[:-4],
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
    monkeypatch.setattr("msbench.datasets.archive.LONGEST_LINE", 2)
    (tmp_path / "a.tsv").write_bytes(b"x" * (3 * BLOCK + 1))
    (_, found) = next(read_lines(tmp_path, ["a.tsv"]))
    with pytest.raises(DataError, match=r"a line of more than 2,097,152 bytes"):
        list(found)


KINDS = {"tar": "tar", "tar.gz": "gzip", "tar.xz": "xz", "tar.bz2": "bzip2", "zip": "zip"}


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_tell_the_kind_whatever_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "archive.txt"
    path.write_bytes(FORMATS[name](FILES))
    assert detect_kind(path) == KINDS[name]
    head = path.read_bytes()[:HEAD]
    assert [kind for kind in (*MAGIC, "tar") if is_kind(head, kind)] == [KINDS[name]]


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


def test_no_other_kind_is_gzip() -> None:
    assert not is_kind(lzma.compress(b""), "gzip")


@pytest.mark.parametrize("head", [b"<!DOCTYPE html>", b"\n <HTML lang=en>", b"\xef\xbb\xbf<html>", b"<head>"])
def test_web_pages(head: bytes) -> None:
    assert is_web_page(head)


def test_what_is_no_web_page() -> None:
    assert not any(map(is_web_page, (b"", b"\x1f\x8b<html>", b"text <html>")))
