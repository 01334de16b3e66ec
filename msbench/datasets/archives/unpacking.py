"""Unpacking of an archive's files to disk: all of them, or none."""

import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msbench.datasets import manifest
from msbench.datasets.archives.entries import UNPACKED
from msbench.datasets.archives.member_files import described, members
from msbench.datasets.dataset import Progress, ignore_progress
from msbench.datasets.disk import make_temporary_folder, require_space
from msbench.datasets.file_kinds import detect_kind
from msbench.errors import DataError
from msbench.results.files import parse_json, read_bytes

Origin = dict[str, str | int]
"""Name and size of an archive, as stored in the file `UNPACKED`, which is written last."""


def unpack(source: Path, folder: Path, progress: Progress = ignore_progress, *, nested: bool = False) -> None:
    """Unpack the archive `source` into `folder`, which appears whole or not at all.

    Repeating it changes nothing. With `nested`, an inner tar becomes a folder of its name without .tar, as
    for ImageNet's train set. Raises DataError naming the archive, or a folder that holds something else.
    """
    with described(source):
        origin: Origin = {"archive": source.name, "bytes": source.stat().st_size}
    if not (folder / UNPACKED).exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise DataError(f"{folder}: is there and was not unpacked by msbench: move it away")
        manifest.build_folder(
            folder, lambda new: _fill(new, source, origin, progress, nested), progress, UNPACKED
        )
    _refuse_other(folder, origin)


@contextmanager
def opened(
    source: Path, wanted: Callable[[str], bool], scratch: Path, progress: Progress = ignore_progress
) -> Iterator[Path]:
    """Yield a folder with the files of `source`: itself, or the `wanted` files of an archive.

    The latter are unpacked into a temporary folder in `scratch`. Raises DataError as `members` does.
    """
    if source.is_dir():
        yield source
        return
    with make_temporary_folder(scratch, ".unpacked-") as folder:
        made: set[Path] = set()
        for name, data in members(source, wanted, progress):
            path = folder / name
            if path.parent not in made:  # 200,000 files lie in a few hundred folders
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(data)
        yield folder


def _refuse_other(folder: Path, origin: Origin) -> None:
    with described(folder / UNPACKED):
        read = parse_json(read_bytes(folder / UNPACKED))
    facts = read if isinstance(read, dict) else {}
    if {key: facts.get(key) for key in origin} != origin:
        was, now = (f"{values.get('archive')} of {values.get('bytes')} bytes" for values in (facts, origin))
        raise DataError(f"{folder}: was unpacked from {was}, not from {now}: move it away")


def _fill(new: Path, source: Path, origin: Origin, progress: Progress, nested: bool) -> None:
    what = f"{source}: cannot be unpacked"
    require_space(new, _known_size(source), what)
    files = total = 0
    for name, data in members(source, lambda _name: True, progress, nested=nested):
        require_space(new, len(data), what)
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            stream.write(data)
        files, total = files + 1, total + len(data)
    os.sync()  # once at the end: an fsync for each of a million files would be slow
    with (new / UNPACKED).open("x", encoding="utf-8") as stream:
        json.dump({**origin, "files": files, "total": total}, stream)
        stream.flush()
        os.fsync(stream.fileno())


def _known_size(source: Path) -> int:
    """Return the total size of the files, as far as the archive states it beforehand."""
    with described(source):
        kind = detect_kind(source)
        if kind == "zip":
            with zipfile.ZipFile(source) as archive:
                return sum(info.file_size for info in archive.infolist())
        return source.stat().st_size
