"""Files of a folder, a zip or an uncompressed tar by name, in any order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, Protocol

from msbench.datasets.archives.entries import ArchiveEntry, RefusedEntry
from msbench.datasets.archives.member_files import (
    TWICE,
    Spellings,
    described,
    entries,
    plain_name,
    read_entry,
)
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.file_kinds import COMPRESSED, detect_kind
from msbench.errors import DataError


class FileTree(Protocol):
    """Files by name; for one process and one thread."""

    def names(self) -> list[str]:
        """Return all names, in the order of the source."""

    def read(self, name: str) -> bytes:
        """Return the bytes of one file. Raises DataError where it is missing or damaged."""


@contextmanager
def open_tree(source: Path, progress: Progress = ignore_progress) -> Iterator[FileTree]:
    """Yield the files of `source` while it is open. Raises DataError unless it is a folder, zip or plain tar.

    Opening reads the names and the end; the bytes of a file are verified when they are read.
    """
    with described(source):
        if source.is_file() and detect_kind(source) in COMPRESSED:
            raise DataError(f"{source}: is compressed as a whole: unpack it, then name the folder")
        with entries(source, progress) as found:
            if source.is_file() and detect_kind(source) == "tar":
                with source.open("rb") as stream:
                    yield _Tree(source, [_at(stream, entry) for entry in found])
            else:
                yield _Tree(source, list(found))


def _at(stream: BinaryIO, entry: ArchiveEntry) -> ArchiveEntry:
    """Return an entry for the same file of a tar that can be read at any time."""

    def read() -> bytes:
        stream.seek(entry.start)
        return stream.read(entry.size)

    return ArchiveEntry(entry.name, entry.special, entry.size, read)


class _Tree:
    def __init__(self, source: Path, found: list[ArchiveEntry]) -> None:
        self._source = source
        self._files: dict[str, Callable[[], bytes]] = {}
        spellings = Spellings()
        for entry in found:
            name = plain_name(entry.name)
            spellings.check(name)
            read = partial(read_entry, entry, name)
            if name in self._files and read() != self._files[name]():
                raise RefusedEntry(TWICE.format(name))
            self._files.setdefault(name, read)

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        if name not in self._files:
            raise DataError(f"{self._source}: holds no {name}")
        with described(self._source):
            return self._files[name]()
