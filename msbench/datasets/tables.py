"""Tables of a release: text files that are read line by line, from a folder or an archive.

Copies of a file in several folders must be equal, and all files must lie in one folder.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msbench.datasets.archive import read_lines
from msbench.datasets.dataset import Progress
from msbench.errors import DataError

T = TypeVar("T")


class TableFile:
    """A file, the `names` of its equal copies and itself, and size and hash of the lines read so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: list[str] = []
        self.bytes = 0
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """SHA-256 in hexadecimal."""
        return self._hash.hexdigest()

    def count(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the same lines, and add them to size and hash."""
        for line in lines:
            self.bytes += len(line)
            self._hash.update(line)
            yield line

    def describe(self) -> dict[str, Any]:
        """Describe the file for the manifest."""
        return {"file": self.name, "bytes": self.bytes, "sha256": self.sha256}


def read_tables(
    source: Path,
    folders: Sequence[str],
    files: Mapping[str, str],
    read: Callable[[str, Iterator[bytes]], T],
    progress: Progress,
) -> dict[str, tuple[TableFile, T]]:
    """Read the file of each split, in the order of the source, with its result of `read`.

    `files` are names by split, in one of `folders` that end in ``/``, or are empty. `read` gets the name for
    messages, and the lines. Raises DataError where a file is missing, or not in the folder of the others.
    """
    splits = {folder + file: split for folder in folders for split, file in files.items()}
    found: dict[str, tuple[TableFile, T]] = {}
    for name, lines in read_lines(source, splits, progress):
        file = TableFile(name)
        counted = file.count(lines)
        if splits[name] not in found:
            found[splits[name]] = file, read(f"{source}: {name}", counted)
        for _ in counted:  # the lines that were not read count too
            pass
        first, _ = found[splits[name]]
        if first.sha256 != file.sha256:
            both = f"{first.name} and {name}"
            raise DataError(f"{source}: {both} differ: give --from the folder of the right one")
        first.names.append(name)
    if missing := [file for split, file in files.items() if split not in found]:
        raise DataError(f"{source}: holds no {missing[0]}, nor has one in {', '.join(folders[1:])}")
    places = [{name.rpartition("/")[0] for name in file.names} for file, _ in found.values()]
    if not set.intersection(*places):
        names = ", ".join(file.name for file, _ in found.values())
        raise DataError(f"{source}: {names} do not lie in one folder: give --from the right one")
    return found


def parse_rows(
    where: str, lines: Iterator[bytes], parse: Callable[[bytes], T], first: int = 1
) -> Iterator[T]:
    """Yield each line parsed; `first` is the number of the next one.

    Raises DataError, naming the line, where `parse` raises ValueError, and where there are no lines.
    """
    number = None
    for number, line in enumerate(lines, start=first):
        try:
            yield parse(line)
        except ValueError as error:
            raise DataError(f"{where}, line {number}: {error}") from None
    if number is None:
        raise DataError(f"{where}: no rows")
