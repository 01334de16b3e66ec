"""Strict reading of archives and folders of files: everything wanted is read whole, or an error is raised.

A source is a folder, a zip or a tar; a tar may be compressed with gzip, xz or bzip2. The kind is recognised
by the first bytes, never by the name: Long Range Arena's ``.gz`` is a tar. The rules:

- Names have ``/`` between parts and no ``./`` before them. An absolute name, one with ``..`` or a backslash,
  or one that is not UTF-8 is refused.
- Directories are skipped. A link, a device or a sparse file is refused where it is wanted. In a folder,
  links are followed: they are the user's own.
- The same name again is skipped if its bytes are the same, and refused if they differ; two names that
  differ in case only are refused, as they are one file on some disks.
- A zip has a CRC for each file; gzip, xz and bzip2 have theirs; a tar has a checksum for each header, but
  none for the bytes of a file: only the digest of a whole uncompressed tar reveals a changed byte in a file.
- Truncation is an error wherever it occurs, as is anything after the end.

Files are decoded by `tarfile`, `zipfile`, `gzip`, `lzma` and `bz2`, block by block, so that no archive needs
to fit into memory. Added here are checks of what those accept without an error: a tar that is cut between two
files, a damaged header in its middle, bytes after the end, and a damaged list of a zip's files.
"""

import bz2
import csv
import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO

from msbench.console import encodable
from msbench.datasets import manifest
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.disk import HASH_CACHE, make_temporary_folder, require_space
from msbench.errors import DataError
from msbench.results.files import open_regular, parse_json, read_bytes

HEAD = 1024
"""Number of first bytes that `is_kind` needs; a tar needs 512."""
MAGIC = {
    "gzip": b"\x1f\x8b\x08",
    "xz": b"\xfd7zXZ\0",
    "bzip2": b"BZh",
    "zip": b"PK\x03\x04",
}
COMPRESSED = ("gzip", "xz", "bzip2")
BLOCK = 2**20
"""Bytes that are read or decompressed at once: bzip2 can make a million of one."""
FEED = 2**15
"""Compressed bytes that are read at once."""
LARGEST = 2**26
"""Most bytes of a file that is read as a whole, unless its reader states another bound."""
LARGEST_INNER = 2**30
"""Most bytes of a tar within a tar: those of ImageNet's classes have some hundred million."""
LARGEST_HEADER = 2**20
"""Most bytes before those of a member of a tar: its header, with long names and pax headers."""
LARGEST_DICTIONARY = 2**28
"""Most bytes of memory to decompress xz: its highest usual level needs a quarter."""
LONGEST_LINE = 64
"""Most blocks of a line: a file without line feeds must not be read into memory."""
REPORT_EVERY = 2**20
UNPACKED = ".unpacked.json"
OWN = (UNPACKED, manifest.MADE, HASH_CACHE)
"""Files that msbench itself leaves in a folder; they are no part of a source."""
DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # from zipfile, for encryption and unsupported compression
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
"""Exceptions that Python's readers raise for bytes that are no archive or a damaged one."""


def is_kind(head: bytes, kind: str) -> bool:
    """Return True if a file that begins with `head` is a `kind`: one of `MAGIC`, or ``tar``."""
    if kind == "tar":
        try:  # the checksum of the first header, as the oldest format has no magic
            tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            return False
        return True
    return head.startswith(MAGIC[kind])


def is_web_page(head: bytes) -> bool:
    """Return True if the bytes begin like HTML."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith((b"<!doctype", b"<html", b"<head", b"<?xml"))


def detect_kind(path: Path) -> str | None:
    """Return the kind of an archive or a compressed file, or None."""
    with open(path, "rb", opener=open_regular) as stream:
        head = stream.read(HEAD)
    return next((kind for kind in (*COMPRESSED, "zip", "tar") if is_kind(head, kind)), None)


class RefusedEntry(ValueError):
    """Entry that must not be read, even from an undamaged source; the message names it and the reason."""


@dataclass(frozen=True)
class ArchiveEntry:
    """An entry that is not a directory.

    `special` says what it is where it is no ordinary file; `open_blocks` yields its bytes block by block, in
    a tar until the next entry is requested; `start` is their offset in an uncompressed tar.
    """

    name: str
    special: str
    size: int
    open_blocks: Callable[[], Iterator[bytes]]
    start: int = 0

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes block by block. Raises RefusedEntry if it is no ordinary file."""
        if self.special:
            raise RefusedEntry(f"{self.name} is {self.special}")
        return self.open_blocks()

    def read(self, largest: int = LARGEST) -> bytes:
        """Return all bytes. Raises RefusedEntry if it is no ordinary file, or has more than `largest`."""
        blocks = self.blocks()
        require_small(self.size, self.name, largest)
        data = b"".join(blocks)
        if len(data) != self.size:
            raise EOFError(f"{self.name} has {len(data):,} bytes instead of {self.size:,}")
        return data


def require_small(size: int, name: str, largest: int) -> None:
    """Raise RefusedEntry for more than `largest` bytes."""
    if size > largest:
        raise RefusedEntry(f"{name} has {size:,} bytes; more than {largest:,} are not read at once")


@contextmanager
def explain_errors(source: Path) -> Iterator[None]:
    """Turn errors of `source` into one DataError."""
    try:
        yield
    except RefusedEntry as error:
        raise DataError(f"{source}: {error}") from None
    except FileNotFoundError as error:
        raise DataError(f"{error.filename or source}: no such file") from None
    except DAMAGE as error:
        if (
            isinstance(error, OSError) and error.errno is not None
        ):  # gzip and bz2 give no errno for damaged data
            raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from None
        raise DataError(f"{source}: is cut short or damaged: {error}: get it again") from error


def read_file(path: Path, largest: int) -> bytes:
    """Return the bytes of a file as it is. Raises DataError where it cannot be read, or is larger."""
    with explain_errors(path):
        return read_bytes(path, largest)


def decode_text(content: bytes, where: str) -> str:
    """Return UTF-8 text without a byte order mark. Raises DataError naming the line that is no such text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{where}, line {line}: is not UTF-8") from None


def read_csv(content: bytes, where: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the location of each row, and its fields by column, without blank lines.

    Raises DataError naming the line.
    """
    reader = csv.reader(io.StringIO(decode_text(content, where), newline=""), strict=True)
    try:
        header = next(reader, [])
        if lacking := [name for name in columns if header.count(name) != 1]:
            listed = ", ".join(name or "(the unnamed first one)" for name in lacking)
            raise DataError(f"{where}, line 1: the header must name these columns once: {listed}")
        for fields in reader:
            if not fields:
                continue
            line = f"{where}, line {reader.line_num}"
            if len(fields) != len(header):
                raise DataError(f"{line}: {len(fields)} fields instead of {len(header)}")
            yield line, dict(zip(header, fields, strict=True))
    except csv.Error as error:
        raise DataError(f"{where}, line {reader.line_num}: {error}") from None


@contextmanager
def open_entries(source: Path, progress: Progress = ignore_progress) -> Iterator[Iterator[ArchiveEntry]]:
    """Yield all entries of `source`, with plain names; the source stays open meanwhile."""
    if source.is_dir():
        yield _read_folder(source, partial(progress, f"reading {source.name}", 0, 1))
        return
    kind = detect_kind(source)
    if kind is None:
        raise DataError(f"{source}: is no folder, tar or zip")
    if kind == "zip":
        with zipfile.ZipFile(source) as archive:
            _require_zip_end(archive)
            yield _read_zip(archive, partial(progress, f"reading {source.name}"))
        return
    with closing(_read_blocks(source, kind, progress)) as blocks:
        yield _read_tar(blocks)


def _plain(name: str, special: str, size: int, blocks: Callable[[], Iterator[bytes]]) -> ArchiveEntry:
    """Return an entry, its name without ``./``.

    Raises RefusedEntry if the name leads out of the folder or is not UTF-8.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or not parts:
        raise RefusedEntry(f"the name {name!r} leads elsewhere")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RefusedEntry(f"the name {name!r} is not UTF-8") from None
    return ArchiveEntry("/".join(parts), special, size, blocks)


def _read_folder(
    folder: Path, look: Callable[[], None], prefix: str = "", above: tuple[tuple[int, int], ...] = ()
) -> Iterator[ArchiveEntry]:
    """Yield all entries below `folder`, names sorted part by part; `look`, called before each, may raise.

    Raises RefusedEntry for a link to a folder above it.
    """
    status = folder.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise RefusedEntry(f"{prefix.rstrip('/')} is a link to a folder above it")
    with os.scandir(folder) as scan:
        found = sorted(scan, key=lambda entry: entry.name)
    for entry in found:
        path, name = Path(entry.path), prefix + entry.name
        look()
        # What systems and editors leave (.DS_Store, ._x, .#x), and names that no dataset has.
        if name in OWN or entry.name.startswith(".") or "\\" in name or name != encodable(name):
            continue
        if entry.is_dir():
            yield from _read_folder(path, look, f"{name}/", (*above, here))
        elif entry.is_file():
            yield _plain(name, "", entry.stat().st_size, partial(_read_stream, partial(io.FileIO, path)))
        else:
            special = "a broken link" if entry.is_symlink() else "no file"
            yield _plain(name, special, 0, lambda: iter(()))


def _read_stream(open_stream: Callable[[], IO[bytes]]) -> Iterator[bytes]:
    with open_stream() as stream:
        yield from iter(partial(stream.read, BLOCK), b"")


def _read_zip(archive: zipfile.ZipFile, progress: Callable[[int, int], None]) -> Iterator[ArchiveEntry]:
    """Yield all entries of a zip, in the order of its directory."""
    # Not is_dir(), which needs a name of at least one character.
    infos = [info for info in archive.infolist() if not info.filename.endswith("/")]
    for done, info in enumerate(infos):
        progress(done, len(infos))
        blocks = partial(_read_stream, partial(archive.open, info))
        yield _plain(info.filename, _find_special_zip(info), info.file_size, blocks)
    progress(max(len(infos), 1), max(len(infos), 1))


def _find_special_zip(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # Python's reader decompresses other methods to their end, whatever size the entry declares.
        return "neither stored nor deflated, as files of a zip should be: pack it anew"
    return "" if kind in (0, stat.S_IFREG) else "a link" if kind == stat.S_IFLNK else "no file"


def _require_zip_end(archive: zipfile.ZipFile) -> None:
    """Raise BadZipFile where bytes follow the end of a zip, or its directory is incomplete.

    Python's reader ignores both: a damaged length in the directory hides the entries after it.
    """
    stream, end = archive.fp, 22 + len(archive.comment)
    assert stream is not None
    stream.seek(0, io.SEEK_END)
    stream.seek(-min(stream.tell(), 76 + end), io.SEEK_END)  # 76: Zip64 end records before it
    tail = stream.read()
    if tail[-end:][:4] != b"PK\x05\x06":
        raise zipfile.BadZipFile("there are bytes after its end")
    (entries,) = struct.unpack_from("<H", tail[-end:], 10)
    if tail.startswith(b"PK\x06\x06"):
        (entries,) = struct.unpack_from("<Q", tail, 32)
    if entries != len(archive.infolist()):
        raise zipfile.BadZipFile(f"its directory has {len(archive.infolist()):,} of {entries:,} entries")


class CountedFile:
    """File that reports to `progress` how much of it was read."""

    def __init__(self, raw: BinaryIO, what: str, size: int, progress: Progress) -> None:
        self._raw, self._what, self._size, self._progress = raw, what, max(size, 1), progress
        self._next = REPORT_EVERY

    def read(self, size: int) -> bytes:
        """Read from the file."""
        data = self._raw.read(size)
        if (done := self._raw.tell()) >= self._next or not data:
            self._next = done + REPORT_EVERY
            self._progress(self._what, min(done, self._size), self._size)
        return data


def _read_blocks(source: Path, kind: str | None, progress: Progress) -> Generator[bytes, None, None]:
    """Yield the bytes of a file, decompressed if its kind is `COMPRESSED`, in blocks of at most `BLOCK`."""
    with open(source, "rb", opener=open_regular) as raw:
        counted = CountedFile(raw, f"reading {source.name}", source.stat().st_size, progress)
        yield from (
            decompress(counted, kind) if kind in COMPRESSED else iter(partial(counted.read, BLOCK), b"")
        )


def decompress(raw: CountedFile, kind: str) -> Iterator[bytes]:
    """Yield the content of a gzip, xz or bzip2 file; streams end to end are read as one, as their tools do.

    Raises EOFError where the file is truncated. Unlike Python's readers of xz and bzip2, this one does not
    ignore whatever follows the end of the data.
    """
    if kind == "gzip":
        yield from iter(partial(gzip.GzipFile(fileobj=raw).read1, BLOCK), b"")  # type: ignore[call-overload]
        return
    data = raw.read(FEED)
    while data:
        decoder = (
            lzma.LZMADecompressor(lzma.FORMAT_XZ, LARGEST_DICTIONARY)
            if kind == "xz"
            else bz2.BZ2Decompressor()
        )
        while not decoder.eof:
            if decoder.needs_input and not data and not (data := raw.read(FEED)):
                raise EOFError("it ends before its end mark")
            yield decoder.decompress(data, BLOCK)
            data = b""
        data = decoder.unused_data.lstrip(b"\0")  # padding, which xz allows between streams
        while not data and (more := raw.read(FEED)):
            data = more.lstrip(b"\0")


class TarStream:
    """Forward-only input for tarfile that remembers the last block, and bounds the headers of a member.

    Python's tarfile takes a damaged, a truncated or a missing header for the end of the archive; only the
    block it read last shows which it was. It reads long names and pax headers whole, whatever their size.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._buffer = bytearray()
        self._position = self._header_start = 0
        self.last = b""

    def tell(self) -> int:
        """Return the number of bytes read or skipped."""
        return self._position

    def begin_header(self) -> None:
        """Count the bytes of headers from here."""
        self._header_start = self._position

    def read(self, size: int) -> bytes:
        """Return `size` bytes of a header, or fewer at the end.

        Raises RefusedEntry where the headers of one member are more than `LARGEST_HEADER`.
        """
        require_small(self._position - self._header_start + size, "a header", LARGEST_HEADER)
        return self._read(size)

    def read_content(self, size: int) -> bytes:
        """Return `size` bytes of a file, or fewer at the end."""
        content = self._read(size)
        self.begin_header()
        return content

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            block = next(self._blocks, None)
            if block is None:
                break
            self._buffer += block
        self.last = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._position += len(self.last)
        return self.last

    def seek(self, position: int) -> int:
        """Advance to `position`, or to the end. Raises ReadError for an earlier position."""
        if position < self._position:
            raise tarfile.ReadError("a header points backwards")
        while self._position < position and self.read_content(min(BLOCK, position - self._position)):
            pass
        return self._position

    def require_end(self) -> None:
        """Check that two blocks of zeros end the tar, and that nothing but zeros follows."""
        if len(self.last) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it ends before its end mark")
        if any(self.last):
            raise tarfile.ReadError(f"the header before byte {self.tell():,} is damaged")
        zeros = 0
        while block := self.read_content(BLOCK):
            if block.count(0) != len(block):
                raise tarfile.ReadError("there are bytes after its end")
            zeros += len(block)
        if zeros < tarfile.BLOCKSIZE or zeros % tarfile.BLOCKSIZE:
            raise tarfile.ReadError("it ends within its end mark")


def _read_tar(blocks: Iterator[bytes]) -> Iterator[ArchiveEntry]:
    """Yield all entries of a tar, up to its end. Raises tarfile.TarError where it is truncated or damaged."""
    stream = TarStream(blocks)
    with tarfile.TarFile(fileobj=stream) as tar:  # type: ignore[arg-type]  # tarfile needs no other methods
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # can be millions; only links need them
            stream.begin_header()
            tar.pax_headers = {}  # those for all members would add up; nothing read here depends on them
            if not member.isdir():
                special = _find_special_tar(member)
                entry = _plain(member.name, special, member.size, partial(_tar_blocks, stream, member))
                yield replace(entry, start=member.offset_data)
        stream.require_end()


def _find_special_tar(member: tarfile.TarInfo) -> str:
    if member.issparse():
        return "a sparse file"
    if member.isreg():
        return ""
    return "a link" if member.issym() or member.islnk() else "no file"


def _tar_blocks(stream: TarStream, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream.seek(member.offset_data)
    left = member.size
    while left and (block := stream.read_content(min(BLOCK, left))):
        left -= len(block)
        yield block
    if left:
        raise tarfile.ReadError(f"it ends within {member.name}")


class SeenFiles:
    """Names of the files so far, none in two spellings, and the digests of those that were read."""

    def __init__(self) -> None:
        self._spellings: dict[str, str] = {}
        self._digests: dict[str, bytes] = {}

    def check_spelling(self, name: str) -> None:
        """Raise RefusedEntry for a name that differs from an earlier one in case only."""
        earlier = self._spellings.setdefault(name.casefold(), name)
        if earlier != name:
            raise RefusedEntry(f"{earlier} and {name} differ in case only")

    def is_new(self, name: str, data: bytes) -> bool:
        """Return False for a repeated file. Raises RefusedEntry for one that contradicts an earlier one."""
        self.check_spelling(name)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if name not in self._digests:
            self._digests[name] = digest
            return True
        if self._digests[name] != digest:
            raise RefusedEntry(f"{name} comes twice, with different bytes")
        return False


def read_members(
    source: Path,
    wanted: Callable[[str], bool],
    progress: Progress = ignore_progress,
    *,
    largest: int = LARGEST,
    nested: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file in `source` that is `wanted`, in its order; folders sorted.

    The source is known to be whole only once it is read to the end: use it inside `manifest.build_folder`.
    With `nested`, the files of an inner tar replace it, as ``<its name without .tar>/<their name>``; `wanted`
    is called for them, and every tar is read. Raises DataError naming the source, and the file where it
    concerns one, such as one of more than `largest` bytes.
    """
    seen = SeenFiles()
    with explain_errors(source), open_entries(source, progress) as found:
        for entry in found:
            for name, data in _read_wanted(entry, wanted, largest, nested=nested):
                if seen.is_new(name, data):
                    yield name, data


def _read_wanted(
    entry: ArchiveEntry, wanted: Callable[[str], bool], largest: int, *, nested: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield the file if it is wanted; if `nested`, the files of an inner tar."""
    if nested and entry.name.endswith(".tar") and not entry.special:
        try:
            for inner in _read_tar(iter((entry.read(LARGEST_INNER),))):
                name = f"{entry.name.removesuffix('.tar')}/{inner.name}"
                if wanted(name):
                    yield name, replace(inner, name=name).read(largest)
        except tarfile.TarError as error:
            raise tarfile.ReadError(f"{entry.name}: {error}") from error
    elif wanted(entry.name):
        yield entry.name, entry.read(largest)


def read_content(source: Path, progress: Progress = ignore_progress) -> bytes:
    """Return a file's bytes, decompressed if gzip, xz or bzip2, and verified as far as these allow."""
    parts: list[bytes] = []
    size = 0
    with explain_errors(source):
        kind = detect_kind(source)
        for part in _read_blocks(source, kind, progress):
            parts.append(part)
            size += len(part)
            require_small(size, source.name, LARGEST)
    return b"".join(parts)


def read_lines(
    source: Path, names: Collection[str], progress: Progress = ignore_progress
) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield name and lines of every file in `source` that has one of these names, each line with its end.

    The lines of a file must be read before the next file is requested. In a folder the files are looked up,
    in the order of `names`; an archive is read completely, and is known to be whole only once it is read to
    the end. Raises DataError naming the source, and the file where it concerns one.
    """
    if source.is_dir():
        for name in names:
            if (source / name).is_file():
                yield name, _explain_lines(source, _read_blocks(source / name, None, progress))
        return
    seen: set[str] = set()
    with explain_errors(source), open_entries(source, progress) as found:
        for entry in found:
            if entry.name in names:
                blocks = entry.blocks()
                if entry.name in seen:
                    raise RefusedEntry(f"{entry.name} comes twice")
                seen.add(entry.name)
                yield entry.name, _explain_lines(source, blocks)


def _explain_lines(source: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    with explain_errors(source):
        yield from split_lines(blocks)


def split_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines, each with its end; only a line feed ends one, and the last may have none."""
    rest: list[bytes] = []
    for block in blocks:
        *whole, last = block.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line, b"\n"))
            rest = []
        rest.append(last)
        if len(rest) > LONGEST_LINE:
            raise ValueError(f"a line of more than {LONGEST_LINE * BLOCK:,} bytes")
    if line := b"".join(rest):
        yield line


class FileTree:
    """Entries that can be read at any time, by name; for one process and one thread."""

    def __init__(self, source: Path, found: list[ArchiveEntry]) -> None:
        self._source = source
        self._entries: dict[str, ArchiveEntry] = {}
        seen = SeenFiles()
        for entry in found:
            seen.check_spelling(entry.name)
            first = self._entries.setdefault(entry.name, entry)
            if first is not entry and entry.read() != first.read():
                raise RefusedEntry(f"{entry.name} comes twice, with different bytes")

    def names(self) -> list[str]:
        """Return all names, in the order of the source."""
        return list(self._entries)

    def read(self, name: str) -> bytes:
        """Return the bytes of one file. Raises DataError where it is missing or damaged."""
        if name not in self._entries:
            raise DataError(f"{self._source}: holds no {name}")
        with explain_errors(self._source):
            return self._entries[name].read()


@contextmanager
def open_tree(source: Path, progress: Progress = ignore_progress) -> Iterator[FileTree]:
    """Yield the files of `source`, to be read in any order, while it is open.

    Opening reads the names and the end; the bytes of a file are verified when they are read. Raises DataError
    unless the source is a folder, a zip or a plain tar.
    """
    with explain_errors(source):
        kind = None if source.is_dir() else detect_kind(source)
        if kind in COMPRESSED:
            raise DataError(f"{source}: is compressed as a whole: unpack it, then name the folder")
        with open_entries(source, progress) as found:
            entries = list(found)
            if kind == "tar":
                entries = [replace(each, open_blocks=partial(_read_at, source, each)) for each in entries]
            yield FileTree(source, entries)


def _read_at(source: Path, entry: ArchiveEntry) -> Iterator[bytes]:
    with open(source, "rb", opener=open_regular) as stream:
        stream.seek(entry.start)
        yield stream.read(entry.size)


def unpack(source: Path, folder: Path, progress: Progress = ignore_progress, *, nested: bool = False) -> None:
    """Unpack the archive `source` into `folder`, which appears whole or not at all.

    Repeating it changes nothing. With `nested`, an inner tar becomes a folder of its name without .tar, as
    for ImageNet's train set. Raises DataError naming the archive, or a folder that holds something else, or
    more or less than was unpacked.
    """
    with explain_errors(source):
        origin: dict[str, str | int] = {"archive": source.name, "bytes": source.stat().st_size}

    def read() -> Iterator[tuple[str, bytes]]:
        with explain_errors(source):
            size = source.stat().st_size
            if detect_kind(source) == "zip":
                with zipfile.ZipFile(source) as archive:
                    size = sum(info.file_size for info in archive.infolist())
        require_space(folder.parent, size, f"{source}: cannot be unpacked")
        yield from read_members(source, lambda _name: True, progress, nested=nested)

    unpack_files(folder, origin, read, progress)


def unpack_files(
    folder: Path,
    origin: Mapping[str, str | int],
    read: Callable[[], Iterator[tuple[str, bytes]]],
    progress: Progress,
) -> None:
    """Write the files that `read` yields by name into `folder`, as `unpack` does those of an archive.

    `origin` names their ``archive`` and its ``bytes``.
    """
    if not (folder / UNPACKED).exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder}: exists and was not unpacked by msbench: move it away")
        fill = partial(_unpack_into, origin=origin, files=read)
        manifest.build_folder(folder, fill, progress, UNPACKED)
    with explain_errors(folder / UNPACKED):
        parsed = parse_json(read_bytes(folder / UNPACKED))
    facts = parsed if isinstance(parsed, dict) else {}
    if {key: facts.get(key) for key in origin} != origin:
        was, now = (f"{values.get('archive')} of {values.get('bytes')} bytes" for values in (facts, origin))
        raise DataError(f"{folder}: was unpacked from {was}, not from {now}: move it away")
    with explain_errors(folder):
        found = _count_files(folder)
    if found != (facts.get("files"), facts.get("total")):
        were = f"{facts.get('files')} of {facts.get('total')} were unpacked"
        raise DataError(
            f"{folder}: holds {found[0]} files of {found[1]} bytes, but {were}: move it away, and the same"
            " command unpacks it again"
        )


def _count_files(folder: Path) -> tuple[int, int]:
    """Return the number of files below a folder and their total size, without hidden ones."""
    count = total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                is_folder = entry.is_dir()
                files, size = _count_files(Path(entry.path)) if is_folder else (1, entry.stat().st_size)
                count, total = count + files, total + size
    return count, total


def _unpack_into(
    new: Path, *, origin: Mapping[str, str | int], files: Callable[[], Iterator[tuple[str, bytes]]]
) -> None:
    _write_files(new, files(), f"{origin['archive']}: cannot be unpacked")
    count, total = _count_files(new)
    os.sync()  # once at the end: an fsync for each of a million files would be slow
    with (new / UNPACKED).open("x", encoding="utf-8") as stream:
        json.dump({**origin, "files": count, "total": total}, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _write_files(folder: Path, files: Iterator[tuple[str, bytes]], what: str) -> None:
    made = {folder}
    for name, data in files:
        require_space(folder, len(data), what)
        path = folder / name
        if path.parent not in made:  # 200,000 files lie in a few hundred folders
            path.parent.mkdir(parents=True, exist_ok=True)
            made.add(path.parent)
        with path.open("xb") as stream:
            stream.write(data)


@contextmanager
def open_folder(
    source: Path,
    wanted: Callable[[str], bool],
    scratch: Path,
    progress: Progress = ignore_progress,
    *,
    largest: int = LARGEST,
) -> Iterator[Path]:
    """Yield a folder with the files of `source`: itself, or the `wanted` files of an archive.

    The latter are unpacked into a temporary folder in `scratch`. Raises DataError as `read_members` does.
    """
    if source.is_dir():
        yield source
        return
    with make_temporary_folder(scratch, ".unpacked-") as folder:
        members = read_members(source, wanted, progress, largest=largest)
        _write_files(folder, members, f"{source}: cannot be unpacked")
        yield folder
