"""Entries of a folder, a tar or a zip, one by one, in its order."""

import io
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from msbench.datasets.dataset import Progress
from msbench.datasets.disk import HASH_CACHE
from msbench.datasets.manifest import MADE

SKIP = 2**20
LARGEST = 2**31
"""Largest file, or header, in bytes, read as a whole: above any dataset's, below an archive bomb's."""
UNPACKED = ".unpacked.json"
OWN = (UNPACKED, MADE, HASH_CACHE)
"""Files that msbench itself leaves in a folder; they are no part of a source."""


class RefusedEntry(ValueError):
    """Entry that must not be read, even from an undamaged source; the message names it and the reason."""


@dataclass(frozen=True)
class ArchiveEntry:
    """An entry that is not a directory.

    `special` says what it is where it is no ordinary file; `read` returns its bytes, until the next entry is
    requested; `blocks` yields them block by block; `start` is their offset in an uncompressed tar.
    """

    name: str
    special: str
    size: int
    read: Callable[[], bytes]
    start: int = 0
    blocks: Callable[[], Iterator[bytes]] | None = None


def require_small(size: int, name: str) -> None:
    """Raise RefusedEntry for more bytes than are read as a whole."""
    if size > LARGEST:
        raise RefusedEntry(f"{name} has {size:,} bytes; more than {LARGEST:,} are not read at once")


class Readable(Protocol):
    """Source of bytes for a tar."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or fewer at the end."""


def folder_entries(
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
        if name in OWN:
            continue
        if entry.is_dir():
            yield from folder_entries(path, look, f"{name}/", (*above, here))
        elif entry.is_file():
            yield ArchiveEntry(name, "", entry.stat().st_size, path.read_bytes)
        else:
            yield ArchiveEntry(name, "a broken link" if entry.is_symlink() else "no file", 0, bytes)


def zip_entries(archive: zipfile.ZipFile, progress: Progress) -> Iterator[ArchiveEntry]:
    """Yield all entries of a zip, in the order of its directory."""
    what = f"reading {Path(archive.filename or '').name}"
    infos = [info for info in archive.infolist() if not info.is_dir()]
    for done, info in enumerate(infos):
        progress(what, done, len(infos))
        read, blocks = partial(archive.read, info), partial(_zip_blocks, archive, info)
        yield ArchiveEntry(info.filename, _special_zip(info), info.file_size, read, blocks=blocks)
    progress(what, max(len(infos), 1), max(len(infos), 1))


def _zip_blocks(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(info) as stream:
        while block := stream.read(SKIP):
            yield block


def _special_zip(info: zipfile.ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 1:
        return "encrypted"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # Python's reader decompresses other methods to their end, whatever size the entry declares.
        return "neither stored nor deflated, as files of a zip should be: pack it anew"
    return "" if kind in (0, stat.S_IFREG) else "a link" if kind == stat.S_IFLNK else "no file"


def require_zip_end(archive: zipfile.ZipFile) -> None:
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


class Forward:
    """Forward-only input for tarfile that remembers the last block.

    Python's tarfile takes a damaged, a truncated or a missing header for the end of the archive; only the
    block it read last shows which it was.
    """

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._position = 0
        self.last = b""

    def tell(self) -> int:
        """Return the number of bytes read or skipped."""
        return self._position

    def read(self, size: int) -> bytes:
        """Return `size` bytes, or fewer at the end. Raises RefusedEntry for more than `LARGEST`."""
        require_small(size, "a part of it")
        self.last = self._source.read(size)
        self._position += len(self.last)
        return self.last

    def seek(self, position: int) -> int:
        """Advance to `position`, or to the end. Raises ReadError for an earlier position."""
        if position < self._position:
            raise tarfile.ReadError("a header points backwards")
        while self._position < position:
            data = self._source.read(min(SKIP, position - self._position))
            if not data:
                break
            self._position += len(data)
        return self._position


def tar_entries(source: Readable) -> Iterator[ArchiveEntry]:
    """Yield all entries of a tar, up to its end. Raises tarfile.TarError where it is truncated or damaged."""
    stream = Forward(source)
    with tarfile.TarFile(fileobj=stream) as tar:  # type: ignore[arg-type]  # tarfile needs no other methods
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # can be millions; only links need them
            if not member.isdir():
                yield ArchiveEntry(
                    member.name,
                    _special_tar(member),
                    member.size,
                    partial(_tar_bytes, stream, member),
                    member.offset_data,
                    partial(_tar_blocks, stream, member),
                )
        _require_tar_end(stream)


def _special_tar(member: tarfile.TarInfo) -> str:
    if member.issparse():
        return "a sparse file"
    return "" if member.isreg() else "a link" if member.issym() or member.islnk() else "no file"


def _tar_bytes(stream: Forward, member: tarfile.TarInfo) -> bytes:
    stream.seek(member.offset_data)
    data = stream.read(member.size)
    if len(data) != member.size:
        raise tarfile.ReadError(f"it ends within {member.name}")
    return data


def _tar_blocks(stream: Forward, member: tarfile.TarInfo) -> Iterator[bytes]:
    stream.seek(member.offset_data)
    left = member.size
    while left and (block := stream.read(min(SKIP, left))):
        left -= len(block)
        yield block
    if left:
        raise tarfile.ReadError(f"it ends within {member.name}")


def _require_tar_end(stream: Forward) -> None:
    """Check that two blocks of zeros end the tar, and that nothing but zeros follows."""
    if len(stream.last) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it ends before its end mark")
    if any(stream.last):
        raise tarfile.ReadError(f"the header before byte {stream.tell():,} is damaged")
    zeros = 0
    while block := stream.read(SKIP):
        if block.count(0) != len(block):
            raise tarfile.ReadError("there are bytes after its end")
        zeros += len(block)
    if zeros < tarfile.BLOCKSIZE or zeros % tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it ends within its end mark")
