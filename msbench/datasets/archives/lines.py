"""Text files of a source line by line, for files too large for memory."""

from collections.abc import Collection, Iterator
from pathlib import Path

from msbench.datasets.archives.entries import SKIP, ArchiveEntry
from msbench.datasets.archives.member_files import described, entries, plain_name
from msbench.datasets.dataset import Progress, ignore_progress

LONGEST = 64
"""Most blocks of a line: a file without line feeds must not be read into memory."""


def lines(
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
                yield name, _described(source, _file_blocks(source / name))
        return
    seen: set[str] = set()
    with described(source), entries(source, progress) as found:
        for entry in found:
            name = plain_name(entry.name)
            if name in names:
                _refuse(entry, name, seen)
                assert entry.blocks is not None  # entries of an archive have blocks
                yield name, _described(source, entry.blocks())


def _refuse(entry: ArchiveEntry, name: str, seen: set[str]) -> None:
    if entry.special:
        raise ValueError(f"{name} is {entry.special}")
    if name in seen:
        raise ValueError(f"{name} comes twice")
    seen.add(name)


def _file_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while block := stream.read(SKIP):
            yield block


def _described(source: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    with described(source):
        yield from split(blocks)


def split(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield lines, each with its end; only a line feed ends one, and the last may have none."""
    rest: list[bytes] = []
    for block in blocks:
        *whole, last = block.split(b"\n")
        for line in whole:
            yield b"".join((*rest, line, b"\n"))
            rest = []
        rest.append(last)
        if len(rest) > LONGEST:
            raise ValueError(f"a line of more than {LONGEST * SKIP:,} bytes")
    if line := b"".join(rest):
        yield line
