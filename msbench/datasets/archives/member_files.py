"""The files of a source, one after the other, and the rules for their names."""

import hashlib
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msbench.datasets.archives.entries import (
    SKIP,
    ArchiveEntry,
    RefusedEntry,
    folder_entries,
    require_small,
    require_zip_end,
    tar_entries,
    zip_entries,
)
from msbench.datasets.archives.streams import Counted, Decompressed
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.file_kinds import COMPRESSED, detect_kind
from msbench.errors import DataError

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
TWICE = "{} comes twice, with different bytes"


def members(
    source: Path,
    wanted: Callable[[str], bool],
    progress: Progress = ignore_progress,
    *,
    nested: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every file in `source` that is `wanted`, in its order; folders sorted.

    The source is known to be whole only once it is read to the end: use it inside `manifest.build`. With
    `nested`, the files of an inner tar replace it, as ``<its name without .tar>/<their name>``; `wanted` is
    called for them, and every tar is read. Raises DataError naming the source, and the file where it concerns
    one.
    """
    seen = SeenFiles()
    with described(source), entries(source, progress) as found:
        for entry in found:
            for name, data in _files(entry, wanted, nested=nested):
                if seen.is_new(name, data):
                    yield name, data


def content(source: Path, progress: Progress = ignore_progress) -> bytes:
    """Return a file's bytes, decompressed if gzip, xz or bzip2, and verified as far as these allow."""
    with described(source), source.open("rb") as raw:
        kind = detect_kind(source)
        counted = Counted(raw, f"reading {source.name}", source.stat().st_size, progress)
        if kind not in COMPRESSED:
            return counted.read()
        stream, parts = Decompressed(counted, kind), []
        while part := stream.read(SKIP):
            parts.append(part)
            require_small(SKIP * len(parts), source.name)
        return b"".join(parts)


@contextmanager
def entries(source: Path, progress: Progress = ignore_progress) -> Iterator[Iterator[ArchiveEntry]]:
    """Yield all entries of `source`, which stays open meanwhile."""
    if source.is_dir():
        yield folder_entries(source, partial(progress, f"reading {source.name}", 0, 1))
        return
    kind = detect_kind(source)
    if kind is None:
        raise DataError(f"{source}: is no folder, tar or zip")
    if kind == "zip":
        with zipfile.ZipFile(source) as archive:
            require_zip_end(archive)
            yield zip_entries(archive, progress)
        return
    with source.open("rb") as raw:
        counted = Counted(raw, f"reading {source.name}", source.stat().st_size, progress)
        yield tar_entries(Decompressed(counted, kind) if kind in COMPRESSED else counted)


@contextmanager
def described(source: Path) -> Iterator[None]:
    """Turn errors of `source` into one DataError."""
    try:
        yield
    except RefusedEntry as error:
        raise DataError(f"{source}: {error}") from None
    except FileNotFoundError as error:
        raise DataError(f"{error.filename or source}: no such file") from None
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # without errno: from bzip2, on its data
            raise DataError(f"{error.filename or source}: cannot be read: {error.strerror}") from None
        raise DataError(f"{source}: is cut short or damaged: {error}: get it again") from error


def _files(
    entry: ArchiveEntry, wanted: Callable[[str], bool], *, nested: bool
) -> Iterator[tuple[str, bytes]]:
    """Yield the file if it is wanted; if `nested`, the files of an inner tar."""
    name = plain_name(entry.name)
    if nested and name.endswith(".tar") and not entry.special:
        yield from _files_within(name, read_entry(entry, name), wanted)
    elif wanted(name):
        yield name, read_entry(entry, name)


def _files_within(tar: str, data: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    try:
        for entry in tar_entries(io.BytesIO(data)):
            name = f"{tar.removesuffix('.tar')}/{plain_name(entry.name)}"
            if wanted(name):
                yield name, read_entry(entry, name)
    except tarfile.TarError as error:
        raise tarfile.ReadError(f"{tar}: {error}") from error


def read_entry(entry: ArchiveEntry, name: str) -> bytes:
    """Return the bytes of an entry. Raises RefusedEntry if it is no ordinary file."""
    if entry.special:
        raise RefusedEntry(f"{name} is {entry.special}")
    require_small(entry.size, name)
    data = entry.read()
    if len(data) != entry.size:
        raise EOFError(f"{name} has {len(data):,} bytes instead of {entry.size:,}")
    return data


def plain_name(name: str) -> str:
    """Return the name without ``./``. Raises RefusedEntry if it leads out of the folder or is not UTF-8."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name or not parts:
        raise RefusedEntry(f"the name {name!r} leads elsewhere")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise RefusedEntry(f"the name {name!r} is not UTF-8") from None
    return "/".join(parts)


class Spellings:
    """The one spelling that each name may have."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def check(self, name: str) -> None:
        """Raise RefusedEntry for a name that differs from an earlier one in case only."""
        earlier = self._known.setdefault(name.casefold(), name)
        if earlier != name:
            raise RefusedEntry(f"{earlier} and {name} differ in case only")


class SeenFiles:
    """Files already read."""

    def __init__(self) -> None:
        self._spellings = Spellings()
        self._digests: dict[str, bytes] = {}

    def is_new(self, name: str, data: bytes) -> bool:
        """Return False for a repeated file. Raises RefusedEntry for one that contradicts an earlier one."""
        self._spellings.check(name)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if name not in self._digests:
            self._digests[name] = digest
            return True
        if self._digests[name] != digest:
            raise RefusedEntry(TWICE.format(name))
        return False
