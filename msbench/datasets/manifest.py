"""Datasets on disk: plain arrays and a manifest that is written last.

::

    <root>/<dataset>/<key>/
        train/ validation/ test/
            <array>.npy   such as tokens, offsets and labels: the arrays of the dataset's split
        manifest.json     contents: counts, sources, digests; its presence means that the data are complete
        .made.json        build time: not in the manifest, which is the same for every build

A dataset is built in ``.<key>.building-<pid>`` next to its folder, under ``.<key>.lock``, and renamed when
complete.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msbench.datasets.dataset import SPLITS, Progress, RaggedTokens
from msbench.datasets.disk import HashCache, hash_file, lock_path
from msbench.errors import NO_ROOM, DataError, explain_unwritable
from msbench.results.files import parse_json, read_bytes

FORMAT = 1
MANIFEST = "manifest.json"
MADE = ".made.json"
IN_MEMORY = 2**20
"""Arrays of fewer bytes are read rather than mapped: a map costs a page fault a page, and a descriptor."""
UNMAPPABLE = errno.ENODEV
"""The error of a file system that cannot map a file, as some network mounts."""

Arrays = dict[str, dict[str, NDArray[Any]]]
"""Arrays by split and name."""
Splits = Mapping[str, RaggedTokens]


def build_folder(
    folder: Path, fill: Callable[[Path], None], progress: Progress, marker: str = MANIFEST
) -> bool:
    """Let `fill` write a dataset into an empty folder, which then becomes `folder`; return True if it did.

    `marker` is the file that `fill` writes last: a folder that has it is left alone, one without it is
    removed. One process builds while others wait, then find it built. A process that dies leaves neither a
    lock nor a folder under the final name; its temporary folder is removed by the next build.
    """
    try:
        with lock_path(folder, progress):
            if (folder / marker).exists():
                return False
            _remove(folder, *folder.parent.glob(f".{folder.name}.building-*"))
            temporary = folder.with_name(f".{folder.name}.building-{os.getpid()}")
            temporary.mkdir()
            began = time.monotonic()
            try:
                fill(temporary)
                seconds = round(time.monotonic() - began, 3)
                (temporary / MADE).write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
                temporary.rename(folder)
                return True
            finally:
                _remove(temporary)
    except OSError as error:
        if error.errno in (*NO_ROOM, UNMAPPABLE):
            raise DataError(explain_unwritable(folder, error, "MSBENCH_DATA")) from error
        raise DataError(f"{folder}: cannot be built: {error}") from error


def _remove(*folders: Path) -> None:
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)


def path_next_to(building: Path, name: str) -> Path:
    """Return a path next to a folder being built, for data that must outlive an interrupted build."""
    return building.with_name(f"{building.name.partition('.building-')[0]}.{name}")


def write_token_splits(folder: Path, splits: Splits, facts: Mapping[str, Any]) -> None:
    """Write splits of tokens, then the manifest: `facts`, a summary of the examples, a hash of every file."""
    described = {
        name: save_split(
            folder, name, split.lengths, tokens=split.tokens, offsets=split.offsets, labels=split.labels
        )
        for name, split in splits.items()
    }
    write_manifest(folder, facts, described, digest_splits(splits))


def write_manifest(
    folder: Path,
    facts: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, Any]],
    content: str | None = None,
) -> None:
    """Write the manifest of a folder that holds all of its arrays: the last step in `build_folder`.

    `splits` holds for each the result of `describe_split`; `content` is the digest of the examples, by
    default one of the names and hashes of all files.
    """
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())  # so that no power cut leaves a manifest without its arrays
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": hash_file(path)}
    named = "".join(f"{name} {entry['sha256']}\n" for name, entry in files.items())
    manifest = {
        "format": FORMAT,
        **facts,
        "splits": splits,
        "digest": content or hashlib.sha256(named.encode()).hexdigest(),
        "files": files,
    }
    manifest["checksum"] = _compute_checksum(manifest)
    text = json.dumps(manifest, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    with (folder / MANIFEST).open("wb") as stream:
        # A lone surrogate is a byte of a path that is not UTF-8; as a JSON escape it is read back unchanged.
        stream.write(text.encode(errors="backslashreplace"))
        stream.flush()
        os.fsync(stream.fileno())


def save_split(
    folder: Path, split: str, lengths: NDArray[np.int64] | int, **arrays: NDArray[Any]
) -> dict[str, Any]:
    """Save the arrays of a split, ``labels`` among them; return what `describe_split` does."""
    for name, array in arrays.items():
        save_array(folder, split, name, array)
    return describe_split(arrays["labels"], lengths)


def save_array(folder: Path, split: str, name: str, array: NDArray[Any]) -> None:
    """Save an array of a split, in a folder that is being built."""
    (folder / split).mkdir(exist_ok=True)
    np.save(folder / split / f"{name}.npy", array, allow_pickle=False)


def create_array(folder: Path, split: str, name: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Create an array of a split on disk, to be filled in place: for data too large for memory."""
    (folder / split).mkdir(exist_ok=True)
    path = folder / split / f"{name}.npy"
    array: NDArray[Any] = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    # Otherwise the file is sparse, and a disk that fills up meanwhile kills the process (SIGBUS).
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as stream:
            os.posix_fallocate(stream.fileno(), 0, path.stat().st_size)
    return array


def _compute_checksum(manifest: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in manifest.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def describe_split(labels: NDArray[Any], lengths: NDArray[np.int64] | int) -> dict[str, Any]:
    """Return the number of examples, of each label, and the lengths in positions (tokens with ``<eos>``).

    For labels (n, classes), the count of a class is the number of examples that have it. `lengths` may be the
    one that all examples have.
    """
    if labels.ndim == 2:
        values, counts = np.arange(labels.shape[1]), labels.sum(axis=0, dtype=np.int64)
    else:
        values, counts = np.unique(labels, return_counts=True)
    return {
        "examples": len(labels),
        "labels": {str(value): int(count) for value, count in zip(values, counts, strict=True)},
        "length": {
            "min": int(np.min(lengths)),
            "mean": round(float(np.mean(lengths)), 3),
            "median": float(np.median(lengths)),
            "max": int(np.max(lengths)),
        },
    }


def digest_splits(splits: Splits) -> str:
    """Return the sha256 of the decoded examples in order, whatever their storage.

    Hashed for train, validation and test: the name and a newline; then the number of examples, every length
    and every label as little-endian int64; then all token ids as little-endian uint16.
    """
    total = hashlib.sha256()
    for name in SPLITS:
        split = splits[name]
        total.update(f"{name}\n".encode())
        total.update(np.array([len(split)], "<i8").tobytes())
        total.update(split.lengths.astype("<i8").tobytes())
        total.update(split.labels.astype("<i8").tobytes())
        for start in range(0, len(split.tokens), 2**22):  # 8 MB at a time, not 200
            total.update(split.tokens[start : start + 2**22].astype("<u2").tobytes())
    return total.hexdigest()


def find_manifest(folder: Path) -> dict[str, Any] | None:
    """Return the manifest of a folder in which every file has its size, else None; compute no hashes."""
    try:
        manifest = read_manifest(folder, remedy="")
        for name, entry in manifest["files"].items():
            _check_size(folder / name, entry, remedy="")
    except DataError:
        return None
    return manifest


def read_manifest(folder: Path, remedy: str) -> dict[str, Any]:
    """Read the manifest of `folder`. Raises DataError, ending in `remedy`, where it is missing or damaged."""
    path = folder / MANIFEST
    with _explain_errors(path, remedy):
        manifest = parse_json(read_bytes(path))
    if not isinstance(manifest, dict) or manifest.get("checksum") != _compute_checksum(manifest):
        raise DataError(f"{path}: was changed after it was written: {remedy}")
    if (found := manifest.get("format")) != FORMAT:
        raise DataError(f"{path}: has format {found!s:.20}, this version reads {FORMAT}: {remedy}")
    from msbench.datasets.manifest_fields import find_fault  # pydantic stays out of the worker processes

    if fault := find_fault(manifest):
        raise DataError(f"{path}: is damaged ({fault}): {remedy}")
    return manifest


def load_arrays(folder: Path, remedy: str) -> tuple[Arrays, dict[str, Any]]:
    """Load arrays and manifest, verifying every file's hash; large arrays stay on disk, mapped.

    ``made_seconds`` is added to the manifest as written.
    A file that is unchanged since it was last hashed is not hashed again, see `HashCache`.
    Raises DataError naming the file that is missing or damaged; its message ends in `remedy`.
    """
    manifest, hashes = read_manifest(folder, remedy), HashCache(folder)
    for name, entry in manifest["files"].items():
        path = folder / name
        _check_size(path, entry, remedy)
        with _explain_errors(path, remedy):
            found = hashes.digest(path)
        if found != entry["sha256"]:
            raise DataError(f"{path}: is damaged, its sha256 is not the one in {MANIFEST}: {remedy}")
    arrays: Arrays = {}
    for name in manifest["files"]:
        split, _, file = name.rpartition("/")
        if file.endswith(".npy"):
            with _explain_errors(folder / name, remedy):
                arrays.setdefault(split, {})[file.removesuffix(".npy")] = _open_array(folder / name)
    return arrays, {**manifest, "made_seconds": read_build_seconds(folder)}


def read_build_seconds(folder: Path) -> float | None:
    """Return the duration of `fill` in seconds; None where unknown."""
    try:
        return float(parse_json(read_bytes(folder / MADE))["seconds"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _open_array(path: Path) -> NDArray[Any]:
    if path.stat().st_size > IN_MEMORY:
        try:
            return np.lib.format.open_memmap(path, mode="r")
        except OSError as error:
            if error.errno != UNMAPPABLE:
                raise
    array: NDArray[Any] = np.load(path, allow_pickle=False)
    return array


@contextmanager
def _explain_errors(path: Path, remedy: str) -> Iterator[None]:
    """Turn errors into a DataError; the remedy for a file that may be whole is never to delete it."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path}: no such file: {remedy}") from None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}): make it readable; it need not be damaged"
        ) from None
    except ValueError as error:
        raise DataError(f"{path}: is damaged ({error}): {remedy}") from None


def _check_size(path: Path, entry: Mapping[str, Any], remedy: str) -> None:
    with _explain_errors(path, remedy):
        size = path.stat().st_size
    if size != entry["bytes"]:
        raise DataError(f"{path}: has {size:,} bytes instead of {entry['bytes']:,}: {remedy}")


def hash_values(values: Mapping[str, Any]) -> str:
    """Return twelve hex digits for plain values, independent of the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def count_duplicates(splits: Iterable[RaggedTokens]) -> int:
    """Count the examples that repeat an earlier one, over all splits."""
    seen: set[bytes] = set()
    total = 0
    for split in splits:
        total += len(split)
        seen.update(
            hashlib.blake2b(split.example(index).tobytes(), digest_size=16).digest()
            for index in range(len(split))
        )
    return total - len(seen)
